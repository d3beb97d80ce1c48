// What leaves the page: the answer as a file, and the address.
import type { PlanResponse } from "../../../generated/moeplan/v1/plan";
import { saveFile } from "../../charts/svg_file";
import { CopyLink } from "../../components/copy_link";
import { fileNameOf } from "./plan_facts";

export function Share({ answer }: { answer: PlanResponse }) {
  const save = (): void => saveFile(fileNameOf(answer), "application/json", `${JSON.stringify(answer, null, 2)}\n`);
  return (
    <div class="share">
      <button type="button" onClick={save}>Download answer (JSON)</button>
      <CopyLink profile={answer.profileName} version={answer.profileVersion} />
    </div>
  );
}
