// Time, residual and rate over size, and the control that walks their samples.
import { useMemo } from "preact/hooks";

import { AsTable } from "../../charts/as_table";
import { CurrentItem, useCurrent } from "../../charts/current";
import type { Axis, Scales } from "../../charts/frame";
import { Band, Dots, Line, type Point } from "../../charts/marks";
import { HorizontalRule, VerticalRule } from "../../charts/rule";
import { Arrows, AxisMarks, Crosses } from "../../charts/symbols";
import { Table } from "../../components/table";
import * as text from "../../format";
import { hasInterval } from "../../interval";
import { readCurve } from "./compare";
import { domainsOf, kept } from "./domains";
import { kindsOf, placed, timeMarks, type Mark, type Placed } from "./places";
import { isDrawn, residualsBySize, type Item, type SampleKind } from "./samples";
import { SampleChart } from "./sample_chart";
import { itemText } from "./words";

import type { CurvePoint, GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

/** More repeats than these are drawn as their medians, beside those that the fit rejects. */
const mostRepeats = 6000;

interface Props {
  curve: GetCurveResponse;
  second: GetCurveResponse | null;
  items: readonly Item[];
  /** A size that the address asks about. */
  asked: number | null;
  onChoose: (index: number) => void;
}

function SampleMarks({ placed: { marks, beyond }, scales }: { placed: Placed; scales: Scales }) {
  return (
    <>
      <Crosses scales={scales} points={marks["set aside"]} class="left-out" />
      <Dots scales={scales} points={marks.retired} class="retired" />
      <Dots scales={scales} points={marks.counted} class="" />
      <Crosses scales={scales} points={marks.outlier} class="outlier" />
      <Arrows scales={scales} points={beyond} class="beyond" />
    </>
  );
}

const bandOf = (points: readonly CurvePoint[], floor: number): { x: number; low: number; high: number }[] =>
  points.map(({ size, lowS, highS }) => ({ x: size, low: Math.max(lowS, floor), high: Math.max(highS, floor) }));

const lineOf = (points: readonly CurvePoint[], value: (point: CurvePoint) => number | undefined): Point[] =>
  points.flatMap((point) => {
    const y = value(point);
    return y === undefined || !(y > 0) ? [] : [{ x: point.size, y }];
  });

export const labelOf = ({ profileName, profileVersion }: GetCurveResponse): string => `${profileName}, version ${profileVersion}`;

function Readout({ items, unit, current }: { items: readonly Item[]; unit: string; current: CurrentItem }) {
  const at = useCurrent(current);
  const item = at === null ? undefined : items[at.index];
  return (
    <p class="readout" aria-live={at?.by === "keys" ? "polite" : "off"}>
      {item === undefined
        ? "Point at a sample, or walk them with the control below; Enter or a click shows where one comes from."
        : `Sample ${at!.index + 1} of ${items.length}: ${itemText(item, unit)}`}
    </p>
  );
}

function Walk({ items, current, onChoose }: { items: readonly Item[]; current: CurrentItem; onChoose: (index: number) => void }) {
  const at = useCurrent(current);
  const index = Math.min(at?.index ?? 0, items.length - 1);
  const item = items[index];
  const walk = (event: Event): void => current.set({ index: Number((event.currentTarget as HTMLInputElement).value), by: "keys" });
  return (
    <label class="walk">
      Walk the samples: left and right arrow keys
      <input
        type="range"
        min={0}
        max={items.length - 1}
        value={index}
        aria-valuetext={item === undefined ? "no sample" : `sample ${index + 1} of ${items.length}`}
        onInput={walk}
        onFocus={walk}
        onKeyDown={(event) => {
          if (event.key === "Enter") onChoose(index);
          if (event.key === "Escape") current.set(null);
        }}
      />
    </label>
  );
}

function Legend({ curve, second, asked, present, beyond }: Omit<Props, "onChoose" | "items"> & { present: ReadonlySet<SampleKind>; beyond: boolean }) {
  const { alphaBeta, fit } = (curve.collective ?? curve.kernel) ?? {};
  return (
    <ul class="legend curve-legend">
      <li><i class="key fitted" />fit and 90 % interval</li>
      {alphaBeta !== undefined && <li><i class="key summary" />line α + β·size</li>}
      {second !== null && <li><i class="key second" />{labelOf(second)}</li>}
      {present.has("counted") && <li><i class="key dot" />sample</li>}
      {present.has("outlier") && <li><b class="key outlier">×</b>outlier: the fit rejects it</li>}
      {present.has("retired") && <li><i class="key dot retired" />retired</li>}
      {present.has("set aside") && <li><b class="key left-out">×</b>set aside</li>}
      {beyond && <li><b class="key beyond">▲</b>beyond the axis</li>}
      {(fit?.breakpointsBytes.length ?? 0) > 0 && <li><i class="key break" />breakpoint</li>}
      {asked !== null && <li><i class="key asked" />{text.sizeOf(curve.unit, asked)}</li>}
      {curve.nextSizes.length > 0 && <li><b class="key next">▼</b>measure here next</li>}
    </ul>
  );
}

function AskedSize({ curve: { points, unit }, size }: { curve: GetCurveResponse; size: number }) {
  const read = readCurve(points, size);
  return (
    <p>
      {read === null
        ? <>{text.sizeOf(unit, size)} lies outside of what is drawn.</>
        : <>At {text.sizeOf(unit, size)} the curve says <strong>{text.seconds(read.timeS)}</strong>{hasInterval(read) && `, 90 %: ${text.seconds(read.lowS)} to ${text.seconds(read.highS)}`}.</>}
    </p>
  );
}

export function Charts({ curve, second, items, asked, onChoose }: Props) {
  const current = useMemo(() => new CurrentItem(), [items]);
  const { unit, points, peakPerS } = curve;
  const drawn = useMemo(() => {
    const nextSizes = curve.nextSizes.map(({ size }) => size);
    const all = items.reduce((count, { repeats }) => count + repeats.length, 0) <= mostRepeats;
    const marks = timeMarks(items, all);
    const domains = domainsOf({ points, items, times: marks, second: second?.points ?? [], peakPerS, marked: asked === null ? nextSizes : [...nextSizes, asked] });
    const size = (value: number): string => text.sizeOf(unit, value);
    const x: Axis = { label: `Size in ${unit}`, domain: domains.size, kind: unit === "bytes" ? "log2" : "log", format: size };
    const timeY: Axis = { label: "Time", domain: domains.timeS, kind: "log", format: text.seconds };
    const residualY: Axis = { label: "Residual", domain: domains.residual, kind: "linear", format: text.signedPercent };
    const rateY: Axis = { label: text.rateName(unit), domain: domains.ratePerS, kind: "linear", format: (value) => text.rateOf(unit, value) };
    const inTime = (time: number): number => kept(time, domains.timeS, "log");
    const inSize = (value: number): number => kept(value, domains.size, "log");
    const inResidual = (residual: number): number => kept(residual, domains.residual, "linear");
    const inRate = (rate: number): number => kept(rate, domains.ratePerS, "linear");
    const marksOf = (valueOf: (item: Item) => number | null): Mark[] => items.filter(isDrawn).flatMap((item) => {
      const y = valueOf(item);
      return y === null ? [] : [{ kind: item.kind, x: item.size, y }];
    });
    const times = placed(marks, domains.size, domains.timeS, "log");
    const residuals = placed(marksOf(({ residual }) => residual), domains.size, domains.residual, "linear");
    const rates = placed(marksOf(({ ratePerS }) => ratePerS), domains.size, domains.ratePerS, "linear");
    const breakpoints = (curve.collective ?? curve.kernel)?.fit?.breakpointsBytes ?? [];
    const residualBand = points.filter(({ timeS }) => timeS > 0).map(({ size: at, timeS, lowS, highS }) => ({ x: at, low: lowS / timeS - 1, high: highS / timeS - 1 }));
    const floor = domains.timeS[0];
    return {
      x, timeY, residualY, rateY,
      present: kindsOf([times, residuals, rates]),
      beyond: [times, residuals, rates].some(({ beyond }) => beyond.length > 0),
      timeAt: items.map(({ size: at, timeS }) => ({ x: inSize(at), y: inTime(timeS) })),
      residualAt: items.map(({ size: at, residual }) => ({ x: inSize(at), y: inResidual(residual ?? Number.NaN) })),
      rateAt: items.map(({ size: at, ratePerS }) => ({ x: inSize(at), y: inRate(ratePerS ?? Number.NaN) })),
      timeMarks: (scales: Scales) => (
        <>
          {breakpoints.map((at) => <VerticalRule key={at} scales={scales} at={at} class="break" />)}
          {second !== null && <Band scales={scales} points={bandOf(second.points, floor)} class="second" />}
          <Band scales={scales} points={bandOf(points, floor)} class="" />
          <SampleMarks scales={scales} placed={times} />
          <Line scales={scales} points={lineOf(points, ({ lineS }) => lineS)} class="summary" />
          {second !== null && <Line scales={scales} points={lineOf(second.points, ({ timeS }) => timeS)} class="second" />}
          <Line scales={scales} points={lineOf(points, ({ timeS }) => timeS)} class="" />
          {asked !== null && <VerticalRule scales={scales} at={asked} class="asked" />}
          <AxisMarks scales={scales} sizes={nextSizes} class="next" />
        </>
      ),
      residualMarks: (scales: Scales) => (
        <>
          {breakpoints.map((at) => <VerticalRule key={at} scales={scales} at={at} class="break" />)}
          <Band scales={scales} points={residualBand} class="" />
          <HorizontalRule scales={scales} at={0} />
          <SampleMarks scales={scales} placed={residuals} />
        </>
      ),
      rateMarks: (scales: Scales) => (
        <>
          <HorizontalRule scales={scales} at={peakPerS} class="peak" />
          <SampleMarks scales={scales} placed={rates} />
          {second !== null && <Line scales={scales} points={lineOf(second.points, ({ ratePerS }) => ratePerS)} class="second" />}
          <Line scales={scales} points={lineOf(points, ({ ratePerS }) => ratePerS)} class="" />
        </>
      ),
    };
  }, [curve, second, items, asked]);

  const { x, timeY, residualY, rateY } = drawn;
  const first = points[0];
  const last = points[points.length - 1];
  const best = points.reduce((most, { ratePerS }) => Math.max(most, ratePerS), 0);
  const range = first === undefined || last === undefined
    ? "no point"
    : `${text.seconds(first.timeS)} at ${text.sizeOf(unit, first.size)} to ${text.seconds(last.timeS)} at ${text.sizeOf(unit, last.size)}`;
  const rateName = text.rateName(unit);
  // Where nothing else tells the peak it is the best of the curve itself.
  const share = peakPerS > best ? `, ${text.percent(best / peakPerS)} of the peak of ${text.rateOf(unit, peakPerS)}` : "";
  const words = useMemo(() => (index: number) => {
    const item = items[index]!;
    const rate = item.ratePerS === null ? "" : `; ${text.rateOf(unit, item.ratePerS)}${peakPerS > 0 ? `, ${text.percent(item.ratePerS / peakPerS)} of the peak` : ""}`;
    return `${itemText(item, unit)}${rate}`;
  }, [items, unit, peakPerS]);
  const shared = { x, current, onChoose, words };

  return (
    <>
      <Legend curve={curve} second={second} asked={asked} present={drawn.present} beyond={drawn.beyond} />
      <h3>Time over size</h3>
      {asked !== null && <AskedSize curve={curve} size={asked} />}
      <SampleChart name="time" summary={`Time over size: ${range}; ${items.length} samples`} y={timeY} height={360} points={drawn.timeAt} marks={drawn.timeMarks} {...shared} />
      {items.length > 0 && (
        <>
          <Readout items={items} unit={unit} current={current} />
          <Walk items={items} current={current} onChoose={onChoose} />
        </>
      )}
      <AsTable>{() => <PointTable caption="The fit over size" curve={curve} />}</AsTable>
      <h3>Residuals: measured over predicted, less one</h3>
      <SampleChart name="residual" summary="Residuals of the samples over size, with the 90 % interval" y={residualY} height={200} points={drawn.residualAt} marks={drawn.residualMarks} {...shared} />
      <AsTable>{() => <ResidualTable items={items} unit={unit} />}</AsTable>
      <h3>{rateName} over size</h3>
      <p>The fit reaches {text.rateOf(unit, best)}{share}.{unit === "bytes" && curve.busFactor !== 1 && ` Bus bandwidth is size·φ over time, φ = ${curve.busFactor.toPrecision(3)}.`}</p>
      <SampleChart name="rate" summary={`${rateName} over size: at most ${text.rateOf(unit, best)}${share}`} y={rateY} height={260} points={drawn.rateAt} marks={drawn.rateMarks} {...shared} />
      <AsTable>{() => <RateTable caption={`${rateName} over size`} curve={curve} />}</AsTable>
    </>
  );
}

function PointTable({ caption, curve: { points, unit } }: { caption: string; curve: GetCurveResponse }) {
  return (
    <Table<CurvePoint>
      caption={caption}
      rows={points}
      keyOf={(_, index) => index}
      columns={[
        { head: "Size", numeric: true, cell: ({ size }) => text.sizeOf(unit, size) },
        { head: "Time", numeric: true, cell: ({ timeS }) => text.seconds(timeS) },
        { head: "90 % from", numeric: true, cell: (point) => (hasInterval(point) ? text.seconds(point.lowS) : "not known") },
        { head: "to", numeric: true, cell: (point) => (hasInterval(point) ? text.seconds(point.highS) : "not known") },
        { head: "Line α + β·size", numeric: true, cell: ({ lineS }) => (lineS === undefined ? "–" : text.seconds(lineS)) },
      ]}
    />
  );
}

function ResidualTable({ items, unit }: { items: readonly Item[]; unit: string }) {
  return (
    <Table
      caption="Residuals of the samples that count, by size"
      rows={residualsBySize(items)}
      keyOf={({ size }) => size}
      columns={[
        { head: "Size", numeric: true, cell: ({ size }) => text.sizeOf(unit, size) },
        { head: "Samples", numeric: true, cell: ({ samples }) => text.count(samples) },
        { head: "Lowest", numeric: true, cell: ({ lowest }) => text.signedPercent(lowest) },
        { head: "Median", numeric: true, cell: ({ median }) => text.signedPercent(median) },
        { head: "Highest", numeric: true, cell: ({ highest }) => text.signedPercent(highest) },
      ]}
    />
  );
}

function RateTable({ caption, curve: { points, unit, peakPerS } }: { caption: string; curve: GetCurveResponse }) {
  return (
    <Table<CurvePoint>
      caption={caption}
      rows={points}
      keyOf={(_, index) => index}
      columns={[
        { head: "Size", numeric: true, cell: ({ size }) => text.sizeOf(unit, size) },
        { head: "Rate", numeric: true, cell: ({ ratePerS }) => text.rateOf(unit, ratePerS) },
        { head: "Share of the peak", numeric: true, cell: ({ ratePerS }) => (peakPerS > 0 ? text.percent(ratePerS / peakPerS) : "–") },
      ]}
    />
  );
}
