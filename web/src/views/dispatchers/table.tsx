import type { DispatcherCrossover, DispatcherPoint } from "../../../generated/moeplan/v1/advice";
import { Table, type Column } from "../../components/table";
import * as text from "../../format";
import { axisName, dispatcherName, ratioText, reasonWords, valueText } from "./words";

interface Props {
  crossover: DispatcherCrossover;
  dispatchers: readonly string[];
}

export function DispatcherTable({ crossover: { path, points }, dispatchers }: Props) {
  const columns: Column<DispatcherPoint>[] = [
    { head: axisName(path), numeric: true, cell: ({ value }) => valueText(value) },
    ...dispatchers.map((dispatcher): Column<DispatcherPoint> => ({ head: dispatcherName(dispatcher), numeric: true, cell: (point) => <Step point={point} dispatcher={dispatcher} /> })),
    { head: "next", cell: ({ runnerUp }) => (runnerUp === undefined ? "none" : dispatcherName(runnerUp)) },
    { head: "next over best (90 %)", numeric: true, cell: (point) => ratioText(point) || "–" },
    { head: "told apart", cell: ({ runnerUp, decided }) => (runnerUp === undefined ? "–" : decided ? "yes" : "no") },
    ...(points.some((point) => reasonWords(point) !== "") ? [{ head: "why none", cell: (point: DispatcherPoint) => <span class="reason">{reasonWords(point)}</span> }] : []),
  ];
  return <Table caption="Step time with each dispatcher, the fastest in bold; told apart: whether the 90 % interval of the ratio says that the next one is slower" columns={columns} rows={points} keyOf={({ value }) => value} />;
}

function Step({ point, dispatcher }: { point: DispatcherPoint; dispatcher: string }) {
  const time = point.steps.find((one) => one.dispatcher === dispatcher)?.stepTimeS;
  if (time === undefined) return <>none</>;
  return point.best === dispatcher ? <strong>{text.seconds(time)}</strong> : <>{text.seconds(time)}</>;
}
