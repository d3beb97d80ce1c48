// Every sample of the curve with where it comes from, in pages.
import { useEffect, useMemo, useRef } from "preact/hooks";

import { Table } from "../../components/table";
import * as text from "../../format";
import { setParams, type Params } from "../../route";
import { agentOf, deviceOf, hostOf, kindCounts, sampleKinds, takenAtOf, type Item } from "./samples";
import { signedPercent, spreadText } from "./words";

import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

const pageSize = 25;
const most = 10_000;

const stateClass = { counted: "good", outlier: "bad", retired: "warn", "set aside": "bad" } as const;

function Provenance({ item }: { item: Item }) {
  return (
    <details>
      <summary>All</summary>
      <dl class="facts">
        {Object.entries(item.provenance).map(([key, value]) => [<dt key={`${key} name`}>{key}</dt>, <dd key={key}>{value}</dd>])}
        <dt>received</dt>
        <dd>{item.receivedAt}</dd>
        <dt>repeats</dt>
        <dd>{item.repeats.map(text.seconds).join(", ")}</dd>
      </dl>
    </details>
  );
}

interface Row {
  item: Item;
  /** Its place among all of the curve. */
  index: number;
}

export function SamplesTable({ curve, items, params }: { curve: GetCurveResponse; items: readonly Item[]; params: Params }) {
  const section = useRef<HTMLElement>(null);
  const counts = useMemo(() => kindCounts(items), [items]);
  const kind = sampleKinds.find((name) => name === params["kind"]);
  const chosen = params["sample"] === undefined ? -1 : Number(params["sample"]);
  const rows = useMemo(
    () => items.map((item, index): Row => ({ item, index })).filter(({ item }) => kind === undefined || item.kind === kind),
    [items, kind],
  );
  const pages = Math.max(1, Math.ceil(rows.length / pageSize));
  const ofChosen = Math.floor(rows.findIndex(({ index }) => index === chosen) / pageSize) + 1;
  const wanted = params["page"] === undefined ? ofChosen : Math.trunc(Number(params["page"])) || 1;
  const page = Math.min(pages, Math.max(1, wanted));
  const shown = rows.slice((page - 1) * pageSize, page * pageSize);

  const before = useRef(chosen);
  useEffect(() => {
    const row = chosen < 0 ? null : section.current?.querySelector('tr[aria-current="true"]');
    row?.querySelector("th")?.scrollIntoView({ block: "center" });
    // Where it was chosen here, what follows is its provenance.
    if (chosen !== before.current) row?.querySelector("summary")?.focus({ preventScroll: true });
    before.current = chosen;
  }, [chosen]);

  const unit = curve.unit;
  const stored = curve.samples.length;
  return (
    <section ref={section} class="card" aria-labelledby="samples-title">
      <h2 id="samples-title">Samples</h2>
      <p>
        {stored < curve.totalSamples
          ? `${text.count(stored)} of ${text.count(curve.totalSamples)} stored samples shown, spread over all of them. `
          : `${text.count(stored)} stored. `}
        {curve.laterSamples > 0 && `${text.count(curve.laterSamples)} more came after this version, whose fit does not know them. `}
        {counts.outlier > 0 && `${text.count(counts.outlier)} rejected by the fit as outliers. `}
        {counts.retired > 0 && `${text.count(counts.retired)} retired. `}
        {counts["set aside"] > 0 && `${text.count(counts["set aside"])} set aside on arrival.`}
        {stored < curve.totalSamples && stored < most && (
          <>{" "}<button type="button" onClick={() => setParams({ samples: most, sample: undefined, page: undefined })}>Show up to {text.count(most)}</button></>
        )}
      </p>
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
            <Table<Row>
              caption={`By size; page ${page} of ${pages}`}
              rows={shown}
              keyOf={({ index }) => index}
              isCurrent={({ index }) => index === chosen}
              columns={[
                { head: "Size", numeric: true, cell: ({ item }) => (Number.isNaN(item.size) ? "–" : text.sizeOf(unit, item.size)) },
                { head: "Median", numeric: true, cell: ({ item }) => text.seconds(item.timeS) },
                { head: "Repeats", cell: ({ item }) => spreadText(item) },
                { head: "Predicted", numeric: true, cell: ({ item }) => (item.predictedS === null ? "–" : text.seconds(item.predictedS)) },
                { head: "Residual", numeric: true, cell: ({ item }) => (item.residual === null ? "–" : signedPercent(item.residual)) },
                {
                  head: "State",
                  cell: ({ item }) => <><span class={`badge ${stateClass[item.kind]}`}>{item.kind}</span>{item.kind === "set aside" && ` ${item.reason}`}</>,
                },
                { head: "Agent", cell: ({ item }) => agentOf(item) },
                { head: "Host", cell: ({ item }) => hostOf(item) },
                { head: "Device", cell: ({ item }) => deviceOf(item) },
                { head: "Taken at", cell: ({ item }) => <time dateTime={takenAtOf(item)}>{takenAtOf(item)}</time> },
                { head: "Request", cell: ({ item }) => <code>{item.requestId}</code> },
                { head: "Calibration", cell: ({ item }) => (item.calibration === "" ? "–" : <code>{item.calibration}</code>) },
                { head: "Provenance", cell: ({ item }) => <Provenance item={item} /> },
              ]}
            />
            {pages > 1 && (
              <div class="row pager">
                <button type="button" disabled={page === 1} onClick={() => setParams({ page: page - 1 }, true)}>Previous samples</button>
                <span>Page {page} of {pages}</span>
                <button type="button" disabled={page === pages} onClick={() => setParams({ page: page + 1 }, true)}>Next samples</button>
              </div>
            )}
          </>
        )}
    </section>
  );
}
