// The chosen form and single samples in words. Pure.
import * as text from "../../format";
import { agentOf, deviceOf, hostOf, type Item } from "./samples";

export function formName(chosen: string): string {
  switch (chosen) {
    case "logLog": return "logLog: log time linear in log size between its points";
    case "efficiency": return "efficiency: a share of the peak rate by size";
    case "interpolated": return "interpolated: time linear in size between its points";
    case "alphaBeta": return "alphaBeta: a line, α + β·size";
    default: return chosen;
  }
}

/** What one sample says, in one line. */
export function itemText(item: Item, unit: string): string {
  const predicted = item.predictedS === null || item.residual === null
    ? ""
    : `, predicted ${text.seconds(item.predictedS)}, residual ${text.signedPercent(item.residual)}`;
  const reason = item.reason === "" ? "" : `; ${item.kind}: ${item.reason}`;
  return `${text.sizeOf(unit, item.size)}, median ${text.seconds(item.timeS)} of ${item.repeats.length}${predicted}; agent ${agentOf(item)}, host ${hostOf(item)}, ${deviceOf(item)}${reason}`;
}

/** The repeats' span: "118 µs to 1.1 ms, 5 repeats, 1 of them rejected". */
export function spreadText({ repeats, rejected }: Item): string {
  if (repeats.length === 0) return "no repeat";
  if (repeats.length === 1) return rejected.length === 0 ? "1 repeat" : "1 repeat, rejected";
  const some = rejected.length === 0 ? "" : `, ${rejected.length} of them rejected`;
  return `${text.seconds(Math.min(...repeats))} to ${text.seconds(Math.max(...repeats))}, ${repeats.length} repeats${some}`;
}
