// That an answer is on its way, and how to call it off.
import type { Loaded } from "../api/use_call";
import "../sweep/progress.css";

interface Props {
  asked: Pick<Loaded<unknown>, "data" | "loading" | "cancelled" | "cancel">;
  /** What the planner does meanwhile. */
  doing: string;
}

export function Waiting({ asked: { data, loading, cancelled, cancel }, doing }: Props) {
  return (
    <div class="row progress">
      <p class="muted" role="status">
        {loading && doing}
        {cancelled && `Cancelled.${data === null ? "" : " What stands below was answered before."}`}
      </p>
      {loading && <button type="button" onClick={cancel}>Cancel</button>}
    </div>
  );
}
