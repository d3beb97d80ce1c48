import type { ComponentChildren } from "preact";

import type { Run } from "../../../generated/moeplan/v1/planner_service";
import { PagedTable, type SortableColumn } from "../../components/paged_table";
import { Table, type Column } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hrefOf, hrefWith, setParams, type Params } from "../../route";
import { signedError } from "../../signed_error";
import { hasInterval, isInside, profileOf, summariesBy, type ErrorSummary } from "./statistics";

type Group = { key: string; summary: ErrorSummary };

const barWidth = 48;

/** As long as the share is of `most`. */
function Bar({ share, most }: { share: number; most: number }) {
  const width = most > 0 ? Math.max(1, (share / most) * barWidth) : 0;
  return (
    <svg class="share-bar" width={barWidth} height="10" aria-hidden="true">
      <rect width={width} height="10" />
    </svg>
  );
}

interface GroupsProps {
  caption: string;
  head: string;
  runs: readonly Run[];
  keyOf: (run: Run) => string;
  /** What narrows the address to the runs of a key. */
  paramsOfKey: (key: string) => Params;
}

export function Groups({ caption, head, runs, keyOf, paramsOfKey }: GroupsProps) {
  const groups = summariesBy(runs, keyOf);
  const most = Math.max(...groups.map(({ summary }) => summary.absoluteP50));
  const columns: Column<Group>[] = [
    { head, cell: ({ key }) => <a href={hrefWith(paramsOfKey(key))}>{key}</a> },
    { head: "runs", numeric: true, cell: ({ summary }) => text.count(summary.count) },
    { head: "median |error|", numeric: true, cell: ({ summary }) => <><Bar share={summary.absoluteP50} most={most} /> <OfRun run={summary.runOf.absoluteP50}>{text.percent(summary.absoluteP50)}</OfRun></> },
    { head: "p95 |error|", numeric: true, cell: ({ summary }) => <OfRun run={summary.runOf.absoluteP95}>{text.percent(summary.absoluteP95)}</OfRun> },
    { head: "bias", numeric: true, cell: ({ summary }) => <OfRun run={summary.runOf.bias}>{text.signedPercent(summary.bias)}</OfRun> },
    { head: "in interval", numeric: true, cell: ({ key, summary }) => <Inside summary={summary} narrowed={paramsOfKey(key)} /> },
  ];
  return <Table caption={caption} columns={columns} rows={groups} keyOf={({ key }) => key} />;
}

/** Leads to the run that a figure of several is of; it stands above. */
export function OfRun({ run, children }: { run: number | null; children: ComponentChildren }) {
  return run === null ? <>{children}</> : <a href={hrefWith({ run })} title={`Run ${run}`}>{children}</a>;
}

/** "92 % of 240", which leads to the table of them, those outside first. */
export function Inside({ summary: { inside, withInterval }, narrowed }: { summary: ErrorSummary; narrowed: Params }) {
  if (withInterval === 0) return <>not known</>;
  return <a href={hrefWith({ ...narrowed, sort: "inside" })}>{text.percent(inside / withInterval)} of {text.count(withInterval)}</a>;
}

/** Leads to its timelines, whose tasks lead to their costs. */
function AtPlan({ run, children }: { run: Run; children: ComponentChildren }) {
  return <a href={hrefOf("plan", { run: run.run })}>{children}</a>;
}

interface RunTableProps {
  runs: readonly Run[];
  params: Params;
}

export function RunTable({ runs, params }: RunTableProps) {
  const current = Number(params["run"]);
  const columns: SortableColumn<Run>[] = [
    { id: "run", head: "run", cell: ({ run }) => <a href={hrefOf("accuracy", { ...params, run })}>{run}</a>, sortKey: ({ run }) => run },
    { id: "stored", head: "stored at", cell: ({ createdAt }) => <time class="unbroken">{createdAt}</time>, sortKey: ({ createdAt }) => createdAt },
    {
      id: "profile",
      head: "profile",
      cell: (run) => run.profileVersion > 0
        ? <a href={hrefOf("curves", { profile: run.profileName, version: run.profileVersion })}>{run.profileName} {run.profileVersion}</a>
        : profileOf(run),
      sortKey: (run) => `${run.profileName} ${run.profileVersion}`,
    },
    { id: "workload", head: "workload", cell: ({ workloadName }) => workloadName, sortKey: ({ workloadName }) => workloadName },
    { id: "schedule", head: "schedule", cell: ({ plan }) => (plan === undefined ? "" : describePlan(plan)), sortKey: ({ plan }) => plan?.schedule },
    { id: "predicted", head: "predicted", numeric: true, cell: (run) => <AtPlan run={run}>{text.seconds(run.predictedTimeS)}</AtPlan>, sortKey: ({ predictedTimeS }) => predictedTimeS },
    { id: "measured", head: "measured", numeric: true, cell: (run) => <AtPlan run={run}>{text.seconds(run.measuredTimeS)}</AtPlan>, sortKey: ({ measuredTimeS }) => measuredTimeS },
    { id: "error", head: "error", numeric: true, cell: (run) => <AtPlan run={run}>{text.signedPercent(signedError(run))}</AtPlan>, sortKey: signedError },
    { id: "inside", head: "in the interval", cell: (run) => (hasInterval(run) ? (isInside(run) ? "yes" : "no") : "not known"), sortKey: (run) => (hasInterval(run) ? Number(isInside(run)) : undefined) },
  ];
  return (
    <PagedTable
      caption="Runs, last stored first unless sorted"
      columns={columns}
      rows={runs}
      keyOf={({ run }) => run}
      sort={params["sort"] ?? ""}
      onSort={(sort) => setParams({ sort }, true)}
      isCurrent={({ run }) => run === current}
    />
  );
}
