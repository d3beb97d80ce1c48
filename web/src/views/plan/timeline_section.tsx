// The shown candidate's timeline under the faster baseline's and over a measured rank's.
import { useMemo, useState } from "preact/hooks";

import type { Plan, TaskTiming } from "../../../generated/moeplan/v1/plan";
import type { GetRunResponse } from "../../../generated/moeplan/v1/planner_service";
import { Timeline, TimelineLegend } from "../../charts/timeline";
import { communicates, criticalPath, exposedCommunication } from "../../charts/timeline_facts";
import type { Section } from "../../charts/timeline_layout";
import { Table } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { CostLink, type Source } from "./cost_links";
import { costsOf } from "./costs";
import { slowestFirst } from "./measured";

interface Props {
  plan: Plan;
  baseline: Plan | undefined;
  run: GetRunResponse | null;
  source: Source;
  /** Costs that the answer and its rules speak of. */
  mentioned: readonly string[];
}

interface TableRow {
  section: string;
  task: TaskTiming;
  critical: boolean;
  exposedS: number;
}

const mostRows = 2000;

function tableRows(sections: readonly Section[]): TableRow[] {
  return sections.flatMap(({ title, tasks }) => {
    const critical = new Set(criticalPath(tasks).tasks);
    const { parts } = exposedCommunication(tasks);
    return tasks.map((task, index) => ({
      section: title,
      task,
      critical: critical.has(index),
      exposedS: parts[index]!.reduce((sum, { startS, endS }) => sum + endS - startS, 0),
    }));
  });
}

/** Only those that are opened are filled. */
function AsTable({ sections }: { sections: readonly Section[] }) {
  const [open, setOpen] = useState(false);
  const rows = useMemo(() => (open ? tableRows(sections) : []), [open, sections]);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {open && (
        <Table
          caption={rows.length > mostRows ? `Tasks by timeline, the first ${text.count(mostRows)} of ${text.count(rows.length)}` : "Tasks by timeline"}
          rows={rows.slice(0, mostRows)}
          keyOf={(_, index) => index}
          columns={[
            { head: "Task", cell: ({ task }) => task.task },
            { head: "Timeline", cell: ({ section }) => section },
            { head: "Kind", cell: ({ task }) => text.plainName(task.kind) },
            { head: "Stream", cell: ({ task }) => text.plainName(task.stream) },
            { head: "Chunk", numeric: true, cell: ({ task }) => task.chunk },
            { head: "Start", numeric: true, cell: ({ task }) => text.seconds(task.startS) },
            { head: "End", numeric: true, cell: ({ task }) => text.seconds(task.endS) },
            { head: "Duration", numeric: true, cell: ({ task }) => text.seconds(task.endS - task.startS) },
            { head: "Exposed", numeric: true, cell: ({ task, exposedS }) => (communicates(task) ? text.seconds(exposedS) : "") },
            { head: "Critical path", cell: ({ critical }) => (critical ? "yes" : "") },
          ]}
        />
      )}
    </details>
  );
}

function pathWords(section: Section): string {
  const { tasks, gaps, lengthS } = criticalPath(section.tasks);
  const waitedS = gaps.reduce((sum, { startS, endS }) => sum + endS - startS, 0);
  const steps = `${text.count(tasks.length)} tasks, ${text.seconds(lengthS)}`;
  if (gaps.length === 0) return steps;
  return `${steps}, and ${text.seconds(waitedS)} in ${gaps.length} ${gaps.length === 1 ? "gap" : "gaps"} that no task explains`;
}

function CostList({ costs, source }: { costs: readonly string[]; source: Source }) {
  return (
    <>
      {costs.length === 1 ? "Cost: " : "Costs of its operation: "}
      {costs.map((cost, index) => <span key={cost}>{index > 0 ? ", " : ""}<CostLink source={source} cost={cost} /></span>)}.
    </>
  );
}

export function TimelineSection({ plan, baseline, run, source, mentioned }: Props) {
  const [wantedRank, setRank] = useState<number | null>(null);
  const measured = useMemo(() => slowestFirst(run?.ranks ?? []), [run]);
  const rank = measured.find((one) => one.rank === wantedRank) ?? measured[0];
  const rankTasks = run?.ranks.find((one) => one.rank === rank?.rank)?.timeline;
  const sections = useMemo<Section[]>(() => {
    const list: Section[] = [];
    if (baseline !== undefined && baseline !== plan) list.push({ title: `Faster baseline, ${text.seconds(baseline.predictedTimeS)}: ${describePlan(baseline)}`, tasks: baseline.timeline });
    list.push({ title: `Shown${baseline === plan ? ", the faster baseline" : ""}, ${text.seconds(plan.predictedTimeS)}: ${describePlan(plan)}`, tasks: plan.timeline });
    if (rankTasks !== undefined && rank !== undefined) list.push({ title: `Measured, ${text.seconds(rank.endS)}: rank ${rank.rank} of run ${run?.run?.run ?? 0}`, tasks: rankTasks });
    return list;
  }, [plan, baseline, rankTasks, rank?.rank, run]);
  const shownAt = baseline !== undefined && baseline !== plan ? 1 : 0;
  const shown = sections[shownAt]!;
  const measuredSection = sections[shownAt + 1];
  const exposed = useMemo(() => exposedCommunication(shown.tasks).totalS, [shown]);
  const path = useMemo(() => pathWords(shown), [shown]);
  const measuredPath = useMemo(() => (measuredSection === undefined ? "" : pathWords(measuredSection)), [measuredSection]);

  const more = (task: TaskTiming, section: number) => {
    const costs = costsOf(task, source.costs, mentioned).slice(0, 4);
    const twin = section === shownAt ? measuredSection : section === shownAt + 1 ? shown : undefined;
    const other = twin?.tasks.find((one) => one.task === task.task);
    return (
      <>
        {other !== undefined && `${section === shownAt ? "Measured" : "Predicted"}: ${text.seconds(other.endS - other.startS)}. `}
        {costs.length > 0 && <CostList costs={costs} source={source} />}
      </>
    );
  };
  return (
    <section class="card" aria-labelledby="plan-timeline">
      <h2 id="plan-timeline">Timeline</h2>
      <dl class="facts">
        <dt>Critical path</dt>
        <dd data-fact="critical">{path}</dd>
        {measuredPath !== "" && <><dt>Of the measured rank</dt><dd>{measuredPath}</dd></>}
        <dt>Exposed communication</dt>
        <dd data-fact="exposed">{text.seconds(exposed)} of {text.seconds(plan.communicationTimeS)} ({text.percent(plan.predictedTimeS > 0 ? exposed / plan.predictedTimeS : 0)} of the predicted time)</dd>
        {plan.gradients !== undefined && plan.gradients !== null && plan.gradients.slices.length > 0 && (
          <>
            <dt>Dense gradients</dt>
            <dd>{plan.gradients.slices.length} slices: {text.seconds(plan.gradients.hiddenS)} beside the layer, {text.seconds(plan.gradients.exposedS)} after it</dd>
          </>
        )}
      </dl>
      {measured.length > 0 && (
        <label class="rank-field">
          Measured rank
          <select value={String(rank?.rank ?? "")} onChange={(event) => setRank(Number(event.currentTarget.value))}>
            {measured.map((one, index) => <option key={one.rank} value={String(one.rank)}>rank {one.rank}, {text.seconds(one.endS)}{index === 0 ? " (slowest)" : ""}</option>)}
          </select>
        </label>
      )}
      <TimelineLegend />
      <Timeline
        summary={`Tasks by stream of ${sections.map(({ title }) => title).join("; ")}. Critical path of the shown one: ${path}.`}
        sections={sections}
        more={more}
      />
      <AsTable sections={sections} />
    </section>
  );
}
