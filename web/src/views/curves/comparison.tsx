// Two curves of the same cost in numbers.
import { Table } from "../../components/table";
import * as text from "../../format";
import { labelOf } from "./charts";
import { compareCurves, type ComparedSize } from "./compare";

import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

const mostRows = 17;

export function Comparison({ first, second }: { first: GetCurveResponse; second: GetCurveResponse }) {
  const rows = compareCurves(first.points, second.points, mostRows);
  return (
    <section class="card" aria-labelledby="compare-title">
      <h2 id="compare-title">{labelOf(first)}, beside {labelOf(second)}</h2>
      {rows.length === 0
        ? <p class="muted">The two curves reach no size in common.</p>
        : (
          <Table<ComparedSize>
            caption="Times at sizes of both, read off the curves; ratio: second over first"
            rows={rows}
            keyOf={(_, index) => index}
            columns={[
              { head: "Size", numeric: true, cell: ({ size }) => text.sizeOf(first.unit, size) },
              { head: `First: ${labelOf(first)}`, numeric: true, cell: ({ firstS }) => text.seconds(firstS) },
              { head: `Second: ${labelOf(second)}`, numeric: true, cell: ({ secondS }) => text.seconds(secondS) },
              { head: "Ratio", numeric: true, cell: ({ ratio }) => text.factor(ratio) },
              { head: "90 % intervals", cell: ({ overlap }) => (overlap === null ? "not known" : overlap ? "overlap" : "apart") },
            ]}
          />
        )}
    </section>
  );
}
