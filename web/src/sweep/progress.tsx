// How far a sweep is, what went wrong, and how to end it or begin again.
import { ErrorNote } from "../components/notes";
import * as text from "../format";
import { axisOf } from "./axes";
import type { Sweeping, Swept } from "./use_sweep";
import "./progress.css";

export function Progress({ swept, cancel, again }: { swept: Swept } & Pick<Sweeping, "cancel" | "again">) {
  const { state, points, total, error } = swept;
  const done = `${text.count(points.length)} of ${text.count(total)} points`;
  return (
    <>
      {error !== null && <ErrorNote error={error} {...(axisOf(error.field) === null ? {} : { message: `Axis ${axisOf(error.field)! + 1}: ${error.message}` })} />}
      <div class="row progress">
        <p role="status">
          {state === "running" && `Sweeping: ${done} …`}
          {state === "waiting" && `${done}; going on once the planner is back.`}
          {state === "cancelled" && `Cancelled after ${done}.`}
          {state === "failed" && points.length > 0 && `Ended after ${done}.`}
          {state === "done" && `Swept ${text.count(total)} points.`}
        </p>
        {(state === "running" || state === "waiting") && (
          <>
            <progress max={total} value={points.length} aria-label="Points that are planned" />
            <button type="button" onClick={cancel}>Cancel</button>
          </>
        )}
        {(state === "cancelled" || state === "failed") && <button type="button" onClick={again}>Sweep again</button>}
      </div>
    </>
  );
}
