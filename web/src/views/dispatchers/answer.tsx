import type { CompareDispatchersRequest, CompareDispatchersResponse } from "../../../generated/moeplan/v1/planner_service";
import { LineSeries } from "../../charts/line_series";
import { CopyLink } from "../../components/copy_link";
import * as text from "../../format";
import { PricedFrom } from "../../job/priced_from";
import { DispatcherTable } from "./table";
import { axisName, crossoverWords, dispatcherName, pointWords, valueText } from "./words";

interface Props {
  request: CompareDispatchersRequest;
  answer: CompareDispatchersResponse;
  /** Whether it answers what was asked before. */
  isOld: boolean;
}

export function Answer({ request, answer, isOld }: Props) {
  const crossover = answer.result;
  if (crossover === undefined) return null;
  const { path, points } = crossover;
  const dispatchers = [...new Set(points.flatMap(({ steps }) => steps.map(({ dispatcher }) => dispatcher)))];
  const told = crossoverWords(crossover);
  const series = dispatchers.map((dispatcher, index) => ({
    key: dispatcher,
    name: dispatcherName(dispatcher),
    class: `dispatcher-${index % 4}`,
    values: points.map(({ steps }) => steps.find((one) => one.dispatcher === dispatcher)?.stepTimeS),
  }));
  return (
    <div class={isOld ? "old-answer" : undefined} aria-busy={isOld}>
      <section class="card" aria-labelledby="flips-title">
        <h2 id="flips-title">The answer</h2>
        {told.map((words) => <p key={words} class="flips">{words}</p>)}
        {!isOld && <p class="row onward"><CopyLink profile={answer.profileName} version={answer.profileVersion} /></p>}
      </section>
      <section class="card" aria-labelledby="dispatchers-title">
        <h2 id="dispatchers-title">Step by {axisName(path)}</h2>
        <LineSeries
          name={`Step by ${axisName(path)}`}
          summary={`Step time with each dispatcher over ${axisName(path)}. ${told.join(" ")} The table below has each value.`}
          axis={{ name: axisName(path), values: points.map(({ value }) => valueText(value)) }}
          measure="step"
          format={text.seconds}
          series={series}
          best={points.map(({ best }) => best)}
          tell={(index) => pointWords(points[index]!)}
        />
        <DispatcherTable crossover={crossover} dispatchers={dispatchers} />
      </section>
      <PricedFrom profile={answer.profileName} version={answer.profileVersion} hardware={request.hardware} />
    </div>
  );
}
