import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import { PagedTable, type SortableColumn } from "../../components/paged_table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hasInterval } from "../../interval";
import { setParams } from "../../route";
import type { Json } from "../../workload";
import { timeOf } from "./grid";

interface Props {
  paths: readonly string[];
  points: readonly SweepPoint[];
  sort: string;
  /** To what leads on to the point's costs. */
  hrefOfPoint: (point: SweepPoint, index: number) => string;
}

type Row = SweepPoint & { number: number };

const valueOf = (point: SweepPoint, path: string): number | string => {
  const value = point.row?.fields[path] as Json | undefined;
  return typeof value === "number" ? value : String(value ?? "");
};

export function PointTable({ paths, points, sort, hrefOfPoint: hrefOfAny }: Props) {
  const hrefOfPoint = (row: Row): string => hrefOfAny(row, row.number - 1);
  const rows: Row[] = points.map((point, index) => ({ ...point, number: index + 1 }));
  const columns: SortableColumn<Row>[] = [
    { id: "point", head: "point", cell: ({ number }) => number, sortKey: ({ number }) => number },
    ...paths.map((path): SortableColumn<Row> => ({ id: path, head: path, numeric: true, cell: (row) => valueOf(row, path), sortKey: (row) => valueOf(row, path) })),
    {
      id: "schedule",
      head: "best schedule",
      cell: ({ row, ...point }) => row?.best === undefined
        ? <span class="reason">none: {row?.reason ?? "not known"}</span>
        : (
          <>
            <span class={`swatch ${familyClass(row.best.schedule)}`} aria-hidden="true" />
            <a href={hrefOfPoint({ row, ...point })}>{describePlan(row.best)}</a>
            {row.extrapolated === true && <> <span class="badge warn">extrapolated</span></>}
          </>
        ),
      sortKey: ({ row }) => row?.best?.schedule,
    },
    { id: "time", head: "time", numeric: true, cell: (row) => <Time time={timeOf(row)} href={hrefOfPoint(row)} />, sortKey: timeOf },
    {
      id: "interval", head: "90 % interval", numeric: true,
      cell: ({ row, ...point }) => row?.best === undefined ? "–" : !hasInterval(row.best) ? "not known"
        : <a href={hrefOfPoint({ row, ...point })}>{text.seconds(row.best.lowS)} to {text.seconds(row.best.highS)}</a>,
    },
    { id: "baseline", head: "baseline", numeric: true, cell: (row) => <Time time={row.baselineTimeS} href={hrefOfPoint(row)} />, sortKey: ({ baselineTimeS }) => baselineTimeS },
    { id: "speedup", head: "speedup", numeric: true, cell: (row) => (speedup(row) === undefined ? "–" : <a href={hrefOfPoint(row)}>{text.factor(speedup(row)!)}</a>), sortKey: speedup },
    { id: "runnerUp", head: "runner-up", cell: ({ runnerUp }) => (runnerUp === undefined ? "none" : describePlan(runnerUp)), sortKey: ({ runnerUp }) => runnerUp?.schedule },
    { id: "runnerUpTime", head: "its time", numeric: true, cell: (row) => <Time time={row.runnerUp?.predictedTimeS} href={hrefOfPoint(row)} />, sortKey: ({ runnerUp }) => runnerUp?.predictedTimeS },
    { id: "exposed", head: "exposed communication", numeric: true, cell: (row) => <Time time={row.row?.best?.exposedCommunicationS} href={hrefOfPoint(row)} />, sortKey: ({ row }) => row?.best?.exposedCommunicationS },
    { id: "memory", head: "memory", numeric: true, cell: (row) => (row.row?.best === undefined ? "–" : <a href={hrefOfPoint(row)}>{text.bytes(row.row.best.memoryBytes)}</a>), sortKey: ({ row }) => row?.best?.memoryBytes },
  ];
  return (
    <PagedTable
      caption="Points of the sweep, the last axis fastest unless sorted"
      columns={columns}
      rows={rows}
      keyOf={({ number }) => number}
      sort={sort}
      onSort={(wanted) => setParams({ sort: wanted }, true)}
    />
  );
}

function speedup(point: SweepPoint): number | undefined {
  const time = timeOf(point);
  return time === undefined || point.baselineTimeS === undefined || time <= 0 ? undefined : point.baselineTimeS / time;
}

function Time({ time, href }: { time: number | undefined; href: string }) {
  return time === undefined ? <>–</> : <a href={href}>{text.seconds(time)}</a>;
}
