// A plan's timeline under the faster baseline's and over a measured rank's.
import { useMemo, useState } from "preact/hooks";

import type { TaskTiming } from "../../../generated/moeplan/v1/timeline";
import type { ExplainedTask, GetRunResponse } from "../../../generated/moeplan/v1/planner_service";
import { Timeline, TimelineLegend } from "../../charts/timeline";
import { communicates, exposedCommunication, lengthOf } from "../../charts/timeline_facts";
import type { Section } from "../../charts/timeline_layout";
import { WarningList } from "../../components/notes";
import { Table } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { unsaid } from "../../warnings";
import { CostLink } from "../../components/cost_link";
import type { Source } from "./cost_links";
import { criticalPath, pathOnRankWords, pathWords, taskWords, type Explained } from "./explained";
import { slowestFirst } from "./measured";
import { unitOf } from "./plan_facts";
import type { ExplainedPlan } from "./use_explained";

interface Props {
  /** What the plan is here: "Shown". */
  name: string;
  shown: ExplainedPlan;
  /** What the baseline is. */
  baselineName: string;
  baseline: ExplainedPlan | undefined;
  run: GetRunResponse | null;
  source: Source;
  /** Warnings that stand elsewhere. */
  said: readonly string[];
}

interface ExplainedSection extends Section {
  /** Of a plan's; null: a rank's, or not known. */
  explained: Explained | null;
  /** What its tasks cost by the plan; a rank's likewise. */
  planned: Explained | null;
}

function sectionOf(name: string, { plan, tasks }: ExplainedPlan): ExplainedSection {
  const title = `${name}, ${text.seconds(plan.predictedTimeS)}: ${describePlan(plan)}`;
  return { title, tasks: plan.timeline, critical: criticalPath(plan.timeline, tasks), explained: tasks, planned: tasks };
}

/** The entry of the profile behind a task. */
function Cost({ task, source }: { task: ExplainedTask; source: Source }) {
  const size = task.cost === "" ? text.bytes(task.size) : text.sizeOf(unitOf(task.cost), task.size);
  if (task.cost !== "") return <>{task.foretold && "not measured, priced as "}<CostLink source={source} cost={task.cost} size={task.size} /> at {size}</>;
  if (task.foretold) return <>predicted from links at {size}, no curve</>;
  return <>{task.size > 0 ? "none in the profile, counted as free" : "free"}</>;
}

interface TableRow {
  section: string;
  timing: TaskTiming;
  task: ExplainedTask | undefined;
  /** Whose cost it has. */
  planned: ExplainedTask | undefined;
  critical: boolean;
  exposedS: number;
}

const mostRows = 2000;

function tableRows(sections: readonly ExplainedSection[]): TableRow[] {
  return sections.flatMap(({ title, tasks, critical, explained, planned }) => {
    const isCritical = new Set(critical);
    const exposed = exposedCommunication(tasks);
    return tasks.map((timing, index) => ({
      section: title, timing, task: explained?.get(timing.task), planned: planned?.get(timing.task), critical: isCritical.has(index), exposedS: lengthOf(exposed[index]!),
    }));
  });
}

/** Only those that are opened are filled. */
function AsTable({ sections, source }: { sections: readonly ExplainedSection[]; source: Source }) {
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
            { head: "Task", cell: ({ timing }) => timing.task },
            { head: "Timeline", cell: ({ section }) => section },
            { head: "Kind", cell: ({ timing }) => text.plainName(timing.kind) },
            { head: "Stream", cell: ({ timing }) => text.plainName(timing.stream) },
            { head: "Chunk", numeric: true, cell: ({ timing }) => timing.chunk },
            { head: "Start", numeric: true, cell: ({ timing }) => text.seconds(timing.startS) },
            { head: "End", numeric: true, cell: ({ timing }) => text.seconds(timing.endS) },
            { head: "Duration", numeric: true, cell: ({ timing }) => text.seconds(timing.endS - timing.startS) },
            { head: "Alone", numeric: true, cell: ({ task }) => (task === undefined ? "" : text.seconds(task.aloneS)) },
            { head: "Exposed", numeric: true, cell: ({ timing, exposedS }) => (communicates(timing) ? text.seconds(exposedS) : "") },
            { head: "Released by", cell: ({ task }) => task?.releasedBy ?? "" },
            { head: "Critical path", cell: ({ critical }) => (critical ? "yes" : "") },
            { head: "Cost", cell: ({ planned }) => planned !== undefined && <Cost task={planned} source={source} /> },
          ]}
        />
      )}
    </details>
  );
}

/** Why costs and critical path are not there. */
function Unexplained({ plans }: { plans: readonly ExplainedPlan[] }) {
  const error = plans.find((one) => one.error !== null)?.error;
  if (error) return <p class="note warning">Without costs and critical path: {error.message}</p>;
  return plans.some(({ loading }) => loading) ? <p class="muted" role="status">Asking what is behind the tasks …</p> : null;
}

export function TimelineSection({ name, shown, baselineName, baseline, run, source, said }: Props) {
  const [wantedRank, setRank] = useState<number | null>(null);
  const measured = useMemo(() => slowestFirst(run?.ranks ?? []), [run]);
  const rank = measured.find((one) => one.rank === wantedRank) ?? measured[0];
  const sections = useMemo(() => {
    const ranked = run?.ranks.find((one) => one.rank === rank?.rank)?.timeline;
    return {
      baseline: baseline && sectionOf(baselineName, baseline),
      shown: sectionOf(name, shown),
      rank: ranked && rank && { title: `Measured, ${text.seconds(rank.endS)}: rank ${rank.rank} of run ${run?.run?.run ?? 0}`, tasks: ranked, critical: [], explained: null, planned: shown.tasks },
    };
  }, [name, shown, baselineName, baseline, run, rank?.rank]);
  // A plan that was kept without its timeline has nothing to draw.
  const drawn = useMemo(() => [sections.baseline, sections.shown, sections.rank].filter((section) => section !== undefined && section.tasks.length > 0) as ExplainedSection[], [sections]);
  const { plan, tasks: explained } = shown;
  const path = explained === null ? "not known" : pathWords(plan.timeline, explained);

  const more = (timing: TaskTiming, index: number) => {
    const section = drawn[index]!;
    const task = section.explained?.get(timing.task);
    const planned = section.planned?.get(timing.task);
    const twin = section === sections.shown ? sections.rank : section === sections.rank ? sections.shown : undefined;
    const other = twin?.tasks.find((one) => one.task === timing.task);
    return (
      <>
        {other !== undefined && `${section === sections.shown ? "Measured" : "Predicted"}: ${text.seconds(other.endS - other.startS)}. `}
        {task !== undefined && <>{taskWords(timing, task)}. </>}
        {planned !== undefined && <>Cost: <Cost task={planned} source={source} />.</>}
      </>
    );
  };
  return (
    <section class="card" aria-labelledby="plan-timeline">
      <h2 id="plan-timeline">Timeline</h2>
      <dl class="facts">
        <dt>Critical path</dt>
        <dd data-fact="critical">{path}</dd>
        {explained !== null && sections.rank && <><dt>Its tasks on rank {rank!.rank}</dt><dd data-fact="measured">{pathOnRankWords(sections.rank.tasks, explained)}</dd></>}
        {plan.communicationTimeS > 0 && (
          <>
            <dt>Exposed communication</dt>
            <dd data-fact="exposed">{text.seconds(plan.exposedCommunicationS)} of {text.seconds(plan.communicationTimeS)} ({text.percent(plan.exposedCommunicationS / plan.predictedTimeS)} of the predicted time)</dd>
          </>
        )}
        {plan.gradients !== undefined && plan.gradients !== null && plan.gradients.slices.length > 0 && (
          <>
            <dt>Dense gradients</dt>
            <dd>{plan.gradients.slices.length} slices: {text.seconds(plan.gradients.hiddenS)} beside the layer, {text.seconds(plan.gradients.exposedS)} after it</dd>
          </>
        )}
      </dl>
      <WarningList warnings={unsaid([shown, ...(baseline === undefined ? [] : [baseline])].flatMap(({ warnings }) => warnings), said)} />
      <Unexplained plans={baseline === undefined ? [shown] : [shown, baseline]} />
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
        summary={`Tasks by stream of ${drawn.map(({ title }) => title).join("; ")}. Critical path of the plan: ${path}.`}
        sections={drawn}
        more={more}
      />
      <AsTable sections={drawn} source={source} />
    </section>
  );
}
