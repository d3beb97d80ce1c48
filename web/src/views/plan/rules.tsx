// Each paper's rule: its formulas with their numbers filled in, and what it would have done beside what the search does.
import type { PlanResponse } from "../../../generated/moeplan/v1/plan";
import type { ExplainedRule, ExplainRulesResponse, RuleTerm, RuleTime } from "../../../generated/moeplan/v1/planner_service";
import type { Loaded } from "../../api/use_call";
import { ErrorNote } from "../../components/notes";
import { Table } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { CostLink } from "../../components/cost_link";
import { TextWithCosts, type Source } from "./cost_links";
import { choicesOf, unitOf } from "./plan_facts";

const papers: Readonly<Record<string, string>> = { parm: "Parm", monta: "MoNTA", schemoe: "ScheMoE", lancet: "Lancet" };
export const ruleName = (rule: string): string => papers[rule] ?? rule;

function Term({ term, source }: { term: RuleTerm; source: Source }) {
  if (term.cost === "") return <span class="muted">nothing is asked: a group of one rank</span>;
  if (term.standIn !== "") return <>{term.cost}, not measured, priced as <CostLink source={source} cost={term.standIn} size={term.size} /></>;
  if (term.foretold) return <>{term.cost} <span class="muted">(not measured: estimated from the links)</span></>;
  return <CostLink source={source} cost={term.cost} size={term.size} />;
}

function Time({ time, source }: { time: RuleTime; source: Source }) {
  return (
    <li>
      <p class="formula">
        <code>{time.name} = {time.formula}</code> = <strong>{text.seconds(time.timeS)}</strong>
        {time.chosen && <> <span class="badge good">chosen by the rule</span></>}
      </p>
      {time.terms.length > 0 && (
        <Table
          caption={`Terms of ${time.name}`}
          rows={time.terms}
          keyOf={(_, index) => index}
          columns={[
            { head: "Term", cell: (term) => <code>{term.symbol}</code> },
            { head: "Times", numeric: true, cell: (term) => Number(term.count.toPrecision(4)) },
            { head: "Size", numeric: true, cell: (term) => text.sizeOf(unitOf(term.cost), term.size) },
            { head: "Time of one", numeric: true, cell: (term) => text.seconds(term.timeS) },
            { head: "Cost", cell: (term) => <Term term={term} source={source} /> },
          ]}
        />
      )}
    </li>
  );
}

interface RuleProps {
  rule: ExplainedRule;
  source: Source;
}

function Rule({ rule, source }: RuleProps) {
  return (
    <details class="rule" open={rule.skipped === ""}>
      <summary><h3>{ruleName(rule.rule)}</h3> <span class="muted">{rule.source}</span></summary>
      {rule.skipped !== "" ? (
        <p>Did not answer: <TextWithCosts source={source} text={rule.skipped} /></p>
      ) : (
        <>
          {rule.definitions.length > 0 && <ul class="definitions">{rule.definitions.map((definition) => <li key={definition}><code>{definition}</code></li>)}</ul>}
          <ul class="rule-times">{rule.times.map((time, index) => <Time key={index} time={time} source={source} />)}</ul>
        </>
      )}
    </details>
  );
}

interface Props {
  answer: PlanResponse;
  explained: Loaded<ExplainRulesResponse>;
  source: Source;
}

export function RulesSection({ answer, explained, source }: Props) {
  const choices = choicesOf(answer.rules);
  const rows = [
    ...choices.map(({ rule, choice, timeS }) => ({ who: `${ruleName(rule)}'s rule`, choice, told: `${text.seconds(timeS)} by its own formula` })),
    ...(answer.best === undefined ? [] : [{ who: "Joint search", choice: describePlan(answer.best), told: `${text.seconds(answer.best.predictedTimeS)} for the whole layer` }]),
  ];
  return (
    <section class="card" aria-labelledby="plan-rules">
      <h2 id="plan-rules">What each paper's rule says</h2>
      <Table
        caption="The rules' choices beside the search's. A formula counts only what its paper counts, so times of different rules do not compare."
        rows={rows}
        keyOf={({ who }) => who}
        columns={[
          { head: "Who", cell: ({ who }) => who },
          { head: "Choice", cell: ({ choice }) => <code>{choice}</code> },
          { head: "Time", cell: ({ told }) => told },
        ]}
      />
      {explained.error !== null && <ErrorNote error={explained.error} />}
      {explained.data === null && explained.loading && <p class="muted" role="status">Filling in the formulas …</p>}
      {explained.data?.rules.map((rule) => <Rule key={rule.rule} rule={rule} source={source} />)}
    </section>
  );
}
