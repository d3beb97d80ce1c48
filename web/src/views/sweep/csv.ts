// A sweep as comma-separated values (RFC 4180), in the columns of `moeplan what-if --csv` and a few more at their end. Pure.
import type { Plan } from "../../../generated/moeplan/v1/plan";
import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";

/** As it is: what begins with "=" is data, too, and changing it would change the data. */
function cellText(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvRecord = (cells: readonly string[]): string => `${cells.map(cellText).join(",")}\r\n`;

const planColumns = [
  "schedule", "chunks", "partitionDegree", "allToAll", "dispatchCodec", "combineCodec", "overlappedGather", "chunkShares",
  "predictedTimeS", "lowS", "highS", "communicationTimeS", "exposedCommunicationS", "computeTimeS", "memoryBytes", "communicationCtas",
];

function planCells(plan: Plan): string[] {
  return [
    plan.schedule, plan.chunks, plan.partitionDegree, plan.allToAll, plan.dispatchCodec, plan.combineCodec, plan.overlappedGather,
    plan.chunkShares.join(";"), plan.predictedTimeS, plan.lowS, plan.highS, plan.communicationTimeS, plan.exposedCommunicationS,
    plan.computeTimeS, plan.memoryBytes, plan.communicationCtas,
  ].map(String);
}

const numberText = (value: number | undefined): string => (value === undefined ? "" : String(value));

export function sweepCsv(paths: readonly string[], points: readonly SweepPoint[], extrapolates: boolean): string {
  const header = [...paths, ...planColumns, "reason", ...(extrapolates ? ["extrapolated"] : []), "baselineTimeS", "runnerUpSchedule", "runnerUpTimeS"];
  const records = points.map(({ row, runnerUp, baselineTimeS }) => [
    ...paths.map((path) => String((row?.fields[path] as unknown) ?? "")),
    ...(row?.best === undefined ? planColumns.map(() => "") : planCells(row.best)),
    row?.reason ?? "",
    ...(extrapolates ? [String(row?.extrapolated ?? false)] : []),
    numberText(baselineTimeS),
    runnerUp?.schedule ?? "",
    numberText(runnerUp?.predictedTimeS),
  ]);
  return [header, ...records].map(csvRecord).join("");
}
