// The fit in numbers: its form, its error, the line for reading; and where measuring would tell most.
import { Command } from "../../components/notes";
import * as text from "../../format";
import { shellWord } from "../../components/shell_word";
import { formName } from "./words";

import type { AlphaBeta, Fit } from "../../../generated/moeplan/v1/profile";
import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

const superscripts: Readonly<Record<string, string>> = { "-": "⁻", "+": "", "0": "⁰", "1": "¹", "2": "²", "3": "³", "4": "⁴", "5": "⁵", "6": "⁶", "7": "⁷", "8": "⁸", "9": "⁹" };

/** "2.80·10⁻¹⁰". */
function scientific(value: number): string {
  const [digits = "", power = ""] = value.toExponential(2).split("e");
  return value === 0 ? "0" : `${digits}·10${[...power].map((sign) => superscripts[sign] ?? sign).join("")}`;
}

/** β as it is, and as the rate that it is the reciprocal of. */
function betaText(value: number, unit: string): string {
  const rate = value > 0 ? `, ${text.rateOf(unit, 1 / value)}` : "";
  return `${scientific(value)} s per ${text.oneOf(unit)}${rate}`;
}

function Line({ line, fit, unit }: { line: AlphaBeta; fit: Fit | undefined; unit: string }) {
  const beta = line.betaSPerByte ?? line.betaSPerFlop ?? 0;
  const low = fit?.betaLowSPerByte ?? fit?.betaLowSPerFlop;
  const high = fit?.betaHighSPerByte ?? fit?.betaHighSPerFlop;
  return (
    <>
      <dt>α of the line</dt>
      <dd>
        {text.seconds(line.alphaS)}
        {fit !== undefined && <span class="muted">, 90 %: {text.seconds(fit.alphaLowS)} to {text.seconds(fit.alphaHighS)}</span>}
      </dd>
      <dt>β of the line</dt>
      <dd>
        {betaText(beta, unit)}
        {low !== undefined && high !== undefined && <span class="muted">, 90 %: {betaText(low, unit)} to {betaText(high, unit)}</span>}
      </dd>
    </>
  );
}

function FitFacts({ fit, unit }: { fit: Fit; unit: string }) {
  return (
    <>
      <dt>Error</dt>
      <dd>
        {text.percent(fit.relativeErrorP50)} median, {text.percent(fit.relativeErrorP95)} at the 95th percentile, cross-validated
      </dd>
      {fit.intervalLowRatio !== undefined && fit.intervalHighRatio !== undefined && (
        <>
          <dt>90 % interval</dt>
          <dd>{text.factor(fit.intervalLowRatio)} to {text.factor(fit.intervalHighRatio)} of the predicted time</dd>
        </>
      )}
      <dt>Fitted to</dt>
      <dd>{text.count(fit.points)} sizes; {fit.outliers === 0 ? "no repeat rejected" : `${text.count(fit.outliers)} ${fit.outliers === 1 ? "repeat" : "repeats"} rejected as ${fit.outliers === 1 ? "an outlier" : "outliers"}`}</dd>
      <dt>Breakpoints</dt>
      <dd>{fit.breakpointsBytes.length === 0 ? "none" : fit.breakpointsBytes.map((size) => text.sizeOf(unit, size)).join(", ")}</dd>
    </>
  );
}

export function FitPanel({ curve }: { curve: GetCurveResponse }) {
  const entry = curve.collective ?? curve.kernel;
  const { fit, alphaBeta } = entry ?? {};
  return (
    <section class="card" aria-labelledby="fit-title">
      <h2 id="fit-title">Fit</h2>
      <dl class="facts">
        <dt>Form</dt>
        <dd>{fit === undefined ? "written by hand, not fitted" : formName(fit.chosen)}</dd>
        <dt>Formula</dt>
        <dd>{curve.formula}</dd>
        {fit !== undefined && <FitFacts fit={fit} unit={curve.unit} />}
        {alphaBeta !== undefined && <Line line={alphaBeta} fit={fit} unit={curve.unit} />}
      </dl>
    </section>
  );
}

/** The agents' cluster that took the last of the samples that agents took; empty: agents took none. */
const fleetOf = ({ samples, origins }: GetCurveResponse): string =>
  samples.reduce((last, { origin }) => (origins[origin]?.provenance ?? {})["fleet"] ?? last, "");

export function NextSizes({ curve }: { curve: GetCurveResponse }) {
  if (curve.nextSizes.length === 0) return null;
  const profile = shellWord(curve.profileName);
  const fleet = fleetOf(curve);
  return (
    <section class="card" aria-labelledby="next-title">
      <h2 id="next-title">Measure here next</h2>
      <ol class="next-sizes">
        {curve.nextSizes.map(({ size, why }) => <li key={size}><strong>{text.sizeOf(curve.unit, size)}</strong>: {why}</li>)}
      </ol>
      {fleet !== "" ? (
        <>
          <p>A calibration by the cluster's agents measures where it tells most:</p>
          <Command text={`moeplan calibrate --planner HOST:PORT --cluster=${shellWord(fleet)} --profile-name=${profile}`} />
        </>
      ) : (
        <>
          <p>A calibration measures where it tells most. CLUSTER: whichever of --local, --hostfile, --launched or --simulated this profile was measured with.</p>
          <Command text={`moeplan calibrate CLUSTER --db moeplan.db --profile-name=${profile}`} />
        </>
      )}
    </section>
  );
}
