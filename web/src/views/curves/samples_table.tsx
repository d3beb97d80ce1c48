// Every sample of the curve with where it comes from, in pages.
import { useEffect, useMemo, useRef } from "preact/hooks";

import { AsTable } from "../../charts/as_table";
import { PagedTable, type SortableColumn } from "../../components/paged_table";
import * as text from "../../format";
import { setParams } from "../../route";
import { agentOf, deviceOf, hostOf, indexOf, kindCounts, sampleKinds, takenAtOf, type Item } from "./samples";
import { spreadText } from "./words";

import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

const pageSize = 25;
const most = 10_000;

const ofAll = (shown: number, all: number): string => (shown < all ? `${text.count(shown)} of ${text.count(all)}` : text.count(all));

const stateClass = { counted: "good", outlier: "bad", retired: "warn", "set aside": "bad" } as const;

function Provenance({ item }: { item: Item }) {
  return (
    <dl class="facts">
      {Object.entries(item.provenance).map(([key, value]) => [<dt key={`${key} name`}>{key}</dt>, <dd key={key}>{value}</dd>])}
      <dt>received</dt>
      <dd>{item.receivedAt}</dd>
      <dt>repeats</dt>
      <dd>{item.repeats.map((time, repeat) => `${text.seconds(time)}${item.rejected.includes(repeat) ? " (rejected)" : ""}`).join(", ")}</dd>
    </dl>
  );
}

interface Row {
  item: Item;
  /** Its place among all of the curve. */
  index: number;
}

const columnsOf = (unit: string): SortableColumn<Row>[] => [
  { id: "size", head: "Size", numeric: true, cell: ({ item }) => (Number.isNaN(item.size) ? "–" : text.sizeOf(unit, item.size)), sortKey: ({ item }) => item.size },
  { id: "median", head: "Median", numeric: true, cell: ({ item }) => text.seconds(item.timeS), sortKey: ({ item }) => item.timeS },
  { id: "repeats", head: "Repeats", cell: ({ item }) => spreadText(item), sortKey: ({ item }) => item.repeats.length },
  {
    id: "predicted", head: "Predicted", numeric: true,
    cell: ({ item }) => (item.predictedS === null ? "–" : text.seconds(item.predictedS)),
    sortKey: ({ item }) => item.predictedS ?? undefined,
  },
  {
    id: "residual", head: "Residual", numeric: true,
    cell: ({ item }) => (item.residual === null ? "–" : text.signedPercent(item.residual)),
    sortKey: ({ item }) => item.residual ?? undefined,
  },
  {
    id: "state", head: "State",
    cell: ({ item }) => <><span class={`badge ${stateClass[item.kind]}`}>{item.kind}</span>{(item.kind === "set aside" || item.kind === "outlier") && ` ${item.reason}`}</>,
    sortKey: ({ item }) => sampleKinds.indexOf(item.kind),
  },
  { id: "agent", head: "Agent", cell: ({ item }) => agentOf(item), sortKey: ({ item }) => agentOf(item) },
  { id: "host", head: "Host", cell: ({ item }) => hostOf(item), sortKey: ({ item }) => hostOf(item) },
  { id: "device", head: "Device", cell: ({ item }) => deviceOf(item), sortKey: ({ item }) => deviceOf(item) },
  { id: "taken", head: "Taken at", cell: ({ item }) => <time dateTime={takenAtOf(item)}>{takenAtOf(item)}</time>, sortKey: ({ item }) => takenAtOf(item) },
  { id: "request", head: "Request", cell: ({ item }) => <code>{item.requestId}</code>, sortKey: ({ item }) => item.requestId },
  {
    id: "calibration", head: "Calibration",
    cell: ({ item }) => (item.calibration === "" ? "–" : <code>{item.calibration}</code>),
    sortKey: ({ item }) => (item.calibration === "" ? undefined : item.calibration),
  },
  { id: "provenance", head: "Provenance", cell: ({ item }) => <AsTable summary="All">{() => <Provenance item={item} />}</AsTable> },
];

interface Props {
  curve: GetCurveResponse;
  items: readonly Item[];
  /** Of the address, what it is about. */
  shown: Readonly<Record<"sample" | "kind" | "sort" | "page", string | undefined>>;
}

export function SamplesTable({ curve, items, shown }: Props) {
  const section = useRef<HTMLElement>(null);
  const counts = useMemo(() => kindCounts(items), [items]);
  const kind = sampleKinds.find((name) => name === shown.kind);
  const identity = shown.sample;
  const chosen = useMemo(() => (identity === undefined ? -1 : indexOf(items, identity)), [items, identity]);
  const rows = useMemo(
    () => items.map((item, index): Row => ({ item, index })).filter(({ item }) => kind === undefined || item.kind === kind),
    [items, kind],
  );
  const page = shown.page === undefined ? undefined : Math.trunc(Number(shown.page)) || 1;

  const before = useRef(identity);
  useEffect(() => {
    const row = chosen < 0 ? null : section.current?.querySelector('tr[aria-current="true"]');
    row?.querySelector("th")?.scrollIntoView({ block: "center" });
    // Where it was chosen here, what follows is its provenance.
    if (identity !== before.current) row?.querySelector("summary")?.focus({ preventScroll: true });
    before.current = identity;
  }, [chosen, identity]);

  const columns = useMemo(() => columnsOf(curve.unit), [curve.unit]);
  const stored = curve.samples.length;
  const cut = stored < curve.totalSamples || counts["set aside"] < curve.totalRejected;
  return (
    <section ref={section} class="card" aria-labelledby="samples-title">
      <h2 id="samples-title">Samples</h2>
      <p>
        {stored < curve.totalSamples
          ? `${text.count(stored)} of ${text.count(curve.totalSamples)} stored samples shown, spread over all sizes. `
          : `${text.count(stored)} stored. `}
        {curve.laterSamples > 0 && `${text.count(curve.laterSamples)} more came after this version, whose fit does not know them. `}
        {curve.totalOutlierRepeats > 0 && `The fit rejects ${text.count(curve.totalOutlierRepeats)} of all their repeats as outliers`}
        {curve.totalOutlierRepeats > 0 && (curve.totalOutliers > 0 ? `, most repeats of ${ofAll(counts.outlier, curve.totalOutliers)} of them. ` : ". ")}
        {curve.totalRetired > 0 && `${ofAll(counts.retired, curve.totalRetired)} retired. `}
        {counts["set aside"] < curve.totalRejected
          ? `${text.count(counts["set aside"])} of ${text.count(curve.totalRejected)} that were set aside on arrival shown, the last received.`
          : counts["set aside"] > 0 && `${text.count(counts["set aside"])} set aside on arrival.`}
        {cut && Math.max(stored, counts["set aside"]) < most && (
          <>{" "}<button type="button" onClick={() => setParams({ samples: most, page: undefined })}>Show up to {text.count(most)}</button></>
        )}
      </p>
      {identity !== undefined && chosen < 0 && <p class="note warning">The sample of this address is not among those shown.</p>}
      {items.length === 0
        ? <p class="muted">No sample of this cost is stored: the profile was fitted elsewhere, or its samples were removed.</p>
        : (
          <>
            <label class="kind">
              Show
              <select value={kind ?? ""} onChange={(event) => setParams({ kind: event.currentTarget.value, page: undefined })}>
                <option value="">all ({text.count(items.length)})</option>
                {sampleKinds.map((name) => <option key={name} value={name}>{name} ({text.count(counts[name])})</option>)}
              </select>
            </label>
            <PagedTable
              caption="Samples of this cost, by size unless sorted"
              columns={columns}
              rows={rows}
              keyOf={({ index }) => index}
              isCurrent={({ index }) => index === chosen}
              sort={shown.sort ?? "size"}
              onSort={(sort) => setParams({ sort, page: undefined }, true)}
              paging={{ size: pageSize, page, onPage: (next) => setParams({ page: next }, true) }}
            />
          </>
        )}
    </section>
  );
}
