import { useRef } from "preact/hooks";

import type { Cluster } from "../../../generated/moeplan/v1/cluster";
import type { ImportModelResponse, RankLayoutsRequest, RankLayoutsResponse } from "../../../generated/moeplan/v1/planner_service";
import type { LayoutResult, RankedLayout } from "../../../generated/moeplan/v1/report";
import { familyClass } from "../../charts/colors";
import { LabelledBars } from "../../charts/labelled_bars";
import { useArrival } from "../../components/arrival";
import { CopyLink } from "../../components/copy_link";
import { WarningList } from "../../components/notes";
import { PagedTable, type SortableColumn } from "../../components/paged_table";
import * as text from "../../format";
import { PricedFrom } from "../../job/priced_from";
import { hrefOf, hrefWith, setParams } from "../../route";
import { LayoutDetails } from "./details";
import { batchAxis, layerOf, nodesAxis, rowText } from "./links";
import { chosenOf, memoryParts } from "./memory";

interface Props {
  request: RankLayoutsRequest;
  answer: RankLayoutsResponse;
  /** What the model's MoE layer is; null: not known yet. */
  imported: ImportModelResponse | null;
  /** The machines of the profile that was used; undefined: not known yet. */
  cluster: Cluster | undefined;
  sort: string;
  /** Which layout the address asks about, by its rank. */
  chosen: string | undefined;
  /** Whether it answers what was asked before. */
  isOld: boolean;
}

const mostBars = 20;

/** A layout with its place among them. */
type Row = RankedLayout & { rank: number };

export function Answer({ request, answer, imported, cluster, sort, chosen: param, isOld }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useArrival(param ?? null, () => heading.current);
  const result = answer.result;
  if (result === undefined) return null;
  const rows = result.layouts.map((layout, index) => ({ ...layout, rank: index + 1 }));
  const limit = answer.deviceMemoryBytes;
  const chosen = chosenOf(rows, param);
  // A profile lacks the costs that hardware filled in, so it has neither their curves nor plans that need them.
  const source = answer.profileVersion > 0 && request.hardware === "" ? { profile: answer.profileName, version: answer.profileVersion } : null;
  const linksOf: LinksOf | null = source === null ? null : (row) => linksOfLayer(row, { request, answer, imported, cluster });
  return (
    <div class={isOld ? "old-answer" : undefined} aria-busy={isOld}>
      <PricedFrom profile={answer.profileName} version={answer.profileVersion} hardware={request.hardware} />
      <p>
        {text.count(result.enumerated)} layouts and micro-batches looked at, {text.count(result.fitting)} fit{limit > 0 ? ` in ${text.bytes(limit)} of memory` : ""},{" "}
        {text.count(result.priced)} priced{result.priced < result.fitting && "; the others cannot be faster"}.
      </p>
      {!isOld && <p class="row"><CopyLink profile={answer.profileName} version={answer.profileVersion} /></p>}
      <WarningList warnings={result.warnings} />
      {rows.length === 0 ? <NoneFits result={result} limit={limit} /> : (
        <>
          <div class="pair">
            <MemoryBars rows={rows.slice(0, mostBars)} limit={limit} />
            <StepBars rows={rows.slice(0, mostBars)} />
          </div>
          {chosen !== null && <LayoutDetails row={chosen} source={source} limit={limit} plan={linksOf?.(chosen)?.closest ?? null} heading={heading} />}
          <RankedTable rows={rows} limit={limit} sort={sort} chosen={chosen} linksOf={linksOf} />
        </>
      )}
    </div>
  );
}

function NoneFits({ result, limit }: { result: LayoutResult; limit: number }) {
  return (
    <section class="note error" role="alert">
      <h2>No layout fits</h2>
      <p>
        Of {text.count(result.enumerated)} layouts the smallest needs {text.bytes(result.missingBytes)} more than the {text.bytes(limit)} of a GPU. More
        GPUs, a higher ZeRO stage or computing more again take less.
      </p>
    </section>
  );
}

const choose = (rank: number): void => setParams({ layout: rank });

const barLabel = (row: Row): string => `${row.rank}. ${rowText(row)}`;

function MemoryBars({ rows, limit }: { rows: readonly Row[]; limit: number }) {
  const known = limit > 0;
  const bars = rows.map((row) => ({
    key: row.rank,
    label: barLabel(row),
    value: row.memoryBytes,
    parts: memoryParts(row).map(({ class: part, bytes }) => ({ class: part, value: bytes })),
    valueText: known ? `${text.bytes(row.memoryBytes)}, ${text.bytes(limit - row.memoryBytes)} free` : text.bytes(row.memoryBytes),
  }));
  const least = Math.min(...rows.map(({ memoryBytes }) => memoryBytes));
  const most = Math.max(...rows.map(({ memoryBytes }) => memoryBytes));
  return (
    <section class="card">
      <h2>Memory of one GPU</h2>
      <ul class="legend">
        {memoryParts(rows[0]!).map(({ name, class: part }) => <li key={name}><span class={`swatch ${part}`} aria-hidden="true" />{name}</li>)}
      </ul>
      <LabelledBars
        summary={`Peak memory of the ${rows.length} best layouts: ${text.bytes(least)} to ${text.bytes(most)}${known ? ` of ${text.bytes(limit)}` : ""}; the table below has each.`}
        bars={bars}
        onPick={choose}
        {...(known ? { limit: { value: limit, text: `limit ${text.bytes(limit)}` } } : {})}
      />
      {!known && <p class="muted">The profile does not say how much memory a GPU has, so every layout counts as fitting.</p>}
    </section>
  );
}

function StepBars({ rows }: { rows: readonly Row[] }) {
  const bars = rows.map((row) => ({ key: row.rank, label: barLabel(row), value: row.stepTimeS, valueText: text.seconds(row.stepTimeS) }));
  return (
    <section class="card">
      <h2>Time of a training step</h2>
      <LabelledBars
        summary={`Step time of the ${rows.length} best layouts: ${bars[0]!.valueText} to ${bars[bars.length - 1]!.valueText}; the table below has each.`}
        bars={bars}
        onPick={choose}
      />
    </section>
  );
}

interface TableProps {
  rows: readonly Row[];
  limit: number;
  sort: string;
  chosen: Row | null;
  /** null: there is no profile whose other views could look closer. */
  linksOf: LinksOf | null;
}

function RankedTable({ rows, limit, sort, chosen, linksOf }: TableProps) {
  /** To the plan of the MoE layer. */
  const planned = (row: Row, words: string) => {
    const links = linksOf?.(row) ?? null;
    return links === null ? words : <a href={links.closest}>{words}</a>;
  };
  /** To what the number is made of. */
  const detailed = ({ rank }: Row, words: string) => <a href={hrefWith({ layout: rank })}>{words}</a>;
  const degree = (id: string, head: string, of: (row: Row) => number | undefined): SortableColumn<Row> => ({
    id, head, numeric: true, cell: (row) => of(row) ?? "–", sortKey: of,
  });
  const columns: SortableColumn<Row>[] = [
    { id: "rank", head: "rank", cell: ({ rank, extrapolated }) => <span class="unbroken">{rank}{extrapolated && <> <span class="badge warn">extrapolated</span></>}</span>, sortKey: ({ rank }) => rank },
    degree("tp", "TP", ({ layout }) => layout?.tensorParallel),
    degree("ep", "EP", ({ layout }) => layout?.expertParallel),
    degree("esp", "ESP", ({ layout }) => layout?.expertShardingParallel),
    degree("cp", "CP", ({ layout }) => layout?.contextParallel),
    degree("pp", "PP", ({ layout }) => layout?.pipelineParallel),
    degree("dp", "DP", ({ layout }) => layout?.dataParallel),
    degree("micro", "micro-batch", ({ microBatch }) => microBatch),
    { id: "step", head: "step", numeric: true, cell: (row) => detailed(row, text.seconds(row.stepTimeS)), sortKey: ({ stepTimeS }) => stepTimeS },
    { id: "tokens", head: "tokens/s", numeric: true, cell: (row) => detailed(row, text.count(row.tokensPerS)), sortKey: ({ tokensPerS }) => tokensPerS },
    { id: "mfu", head: "MFU", numeric: true, cell: (row) => (row.mfu > 0 ? detailed(row, text.percent(row.mfu)) : "not known"), sortKey: ({ mfu }) => mfu },
    { id: "memory", head: "memory", numeric: true, cell: (row) => detailed(row, text.bytes(row.memoryBytes)), sortKey: ({ memoryBytes }) => memoryBytes },
    ...(limit > 0 ? [{ id: "free", head: "free", numeric: true, cell: (row: Row) => detailed(row, text.bytes(limit - row.memoryBytes)), sortKey: ({ memoryBytes }: Row) => limit - memoryBytes }] : []),
    {
      id: "network", head: "network scale", numeric: true,
      cell: (row) => detailed(row, `${text.count(row.networkScale)} ranks${row.horizontalContexts ? ", horizontal" : ""}`),
      sortKey: ({ networkScale }) => networkScale,
    },
    { id: "bubble", head: "bubble", numeric: true, cell: (row) => detailed(row, text.percent(row.pipelineBubble)), sortKey: ({ pipelineBubble }) => pipelineBubble },
    { id: "gradients", head: "gradients alone", numeric: true, cell: (row) => detailed(row, text.seconds(row.gradientS)), sortKey: ({ gradientS }) => gradientS },
    {
      id: "moe", head: "MoE layer",
      cell: (row) => row.moeLayerS > 0 && (
        <span class="unbroken">
          <span class={`swatch ${familyClass(row.moeSchedule)}`} aria-hidden="true" />
          {row.moeSchedule}{row.moePieces > 1 ? ` in ${row.moePieces}` : ""}, {planned(row, text.seconds(row.moeLayerS))}
        </span>
      ),
      sortKey: ({ moeLayerS }) => (moeLayerS > 0 ? moeLayerS : undefined),
    },
    ...(linksOf === null ? [] : [{ id: "open", head: "look closer", cell: (row: Row) => <Closer name={rowText(row)} links={linksOf(row)} /> }]),
  ];
  return (
    <PagedTable
      caption="Layouts, fastest first unless sorted; the MoE layer is timed forward and backward on one micro-batch; each figure leads to what it is made of"
      columns={columns}
      rows={rows}
      keyOf={({ rank }) => rank}
      isCurrent={(row) => row === chosen}
      sort={sort}
      onSort={(wanted) => setParams({ sort: wanted }, true)}
    />
  );
}

/** Where a layout's MoE layer can be looked at closer. */
interface Links {
  /** null: over other nodes than the profile's, only a sweep of cluster.nodes can price the layer. */
  plan: string | null;
  whatIf: string;
  /** The plan, or what leads to it. */
  closest: string;
}
/** null: there is no such layer, or it is not known yet. */
type LinksOf = (row: Row) => Links | null;

function linksOfLayer(row: Row, { request, answer, imported, cluster }: Pick<Props, "request" | "answer" | "imported" | "cluster">): Links | null {
  // Over how many nodes the profile's cluster is tells whether a plan can price the layer.
  if (row.moeLayerS <= 0 || imported?.workload === undefined || imported.moeLayers === 0 || cluster === undefined) return null;
  const workload = JSON.stringify(layerOf(imported.workload, row, request, answer.result?.mostPieces ?? 1));
  const shared = { profile: answer.profileName, version: answer.profileVersion, workload, extrapolate: "1" };
  const nodes = nodesAxis(request.gpus, cluster);
  const [axis1, axis2] = [nodes, batchAxis(row.microBatch)].filter((axis) => axis !== null);
  const whatIf = hrefOf("what-if", { ...shared, axis1, axis2 });
  const plan = nodes === null ? hrefOf("plan", shared) : null;
  return { plan, whatIf, closest: plan ?? whatIf };
}

function Closer({ name, links }: { name: string; links: Links | null }) {
  if (links === null) return null;
  return (
    <>
      {links.plan !== null && <><a href={links.plan} aria-label={`Plan its MoE layer: ${name}`}>plan</a>, </>}
      <a href={links.whatIf} aria-label={`What if, of its MoE layer: ${name}`}>what-if</a>
    </>
  );
}
