// The answer in sentences. Pure.
import type { Advice, ComparedLayout } from "../../../generated/moeplan/v1/advice";
import type { StepResult } from "../../../generated/moeplan/v1/step";
import * as text from "../../format";
import { hasInterval } from "../../interval";

/** Of steps that lie so close the planner takes the plainest. */
const indistinctShare = 0.01;

type Ratio = Pick<ComparedLayout, "gain" | "gainLow" | "gainHigh">;

/** "1.26 times as long (90 %: 1.10 to 1.44)". */
export function ratioWords({ gain, gainLow, gainHigh }: Ratio): string {
  const interval = gainHigh > gainLow ? ` (90 %: ${gainLow.toFixed(2)} to ${gainHigh.toFixed(2)})` : "";
  return `${gain.toFixed(2)} times as long${interval}`;
}

/** "2.31 s (90 %: 2.03 s to 2.68 s), 14,180 tokens/s for each GPU, MFU 40 %". */
export function stepWords(step: StepResult): string {
  const { stepTimeS, lowS, highS, tokensPerSPerGpu, mfu } = step;
  const parts = [
    `${text.seconds(stepTimeS)}${hasInterval(step) ? ` (90 %: ${text.seconds(lowS)} to ${text.seconds(highS)})` : ""}`,
    `${text.count(tokensPerSPerGpu)} tokens/s for each GPU`,
    ...(mfu > 0 ? [`MFU ${text.percent(mfu)}`] : []),
  ];
  return parts.join(", ");
}

/** What to expect where a step was measured; empty: none was. */
export function expectedWords({ softwareFactor, expectedStepTimeS }: Pick<Advice, "softwareFactor" | "expectedStepTimeS">): string {
  if (softwareFactor === undefined) return "";
  return `Your measured step takes ${softwareFactor.toFixed(2)} times what is predicted of it; that is your software, so expect ${text.seconds(expectedStepTimeS)}.`;
}

/** "takes 1.26 times as long (…)", or that it is as fast and why it is not taken. */
function comparedWords(ratio: Ratio): string {
  if (ratio.gain < 1 && ratio.gain >= 1 - indistinctShare) return `is as fast within 1 %, but less plain: it takes ${ratioWords(ratio)}`;
  return `takes ${ratioWords(ratio)}`;
}

/** What the answer is compared with, as a subject. */
export const mineName = ({ mineIsUsual }: Pick<Advice, "mineIsUsual">): string => (mineIsUsual ? "the usual default" : "yours");

/** Capitalizes the first letter. */
const asStart = (words: string): string => words.slice(0, 1).toUpperCase() + words.slice(1);

/** What the answer gains over what runs now, or over what is usual; empty: it is compared with nothing. */
export function gainWords(advice: Pick<Advice, "mine" | "mineIsUsual" | "mineIsSame" | "gain" | "gainLow" | "gainHigh">): string {
  const { mine, mineIsSame, mineIsUsual } = advice;
  if (mine === undefined) return "";
  if (mineIsSame) return mineIsUsual ? "The usual default is the answer." : "Yours is the answer: nothing that was looked at is surely faster.";
  const lacks = mine.step?.missingBytes ?? 0;
  const fits = lacks > 0 ? ` It does not fit: a GPU lacks ${text.bytes(lacks)}.` : "";
  const open = advice.gain >= 1 && advice.gainLow <= 1 && advice.gainHigh > advice.gainLow ? " The interval does not tell them apart." : "";
  return `${asStart(mineName(advice))} ${comparedWords(advice)}: ${mine.text}.${fits}${open}`;
}

/** What comes next; empty: nothing does. */
export function runnerUpWords({ runnerUp }: Pick<Advice, "runnerUp">): string {
  return runnerUp === undefined ? "" : `The next best that decides something otherwise ${comparedWords(runnerUp)}: ${runnerUp.text}.`;
}
