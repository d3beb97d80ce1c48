// One cost of a profile: its samples, the fit, how far the two are apart, and what another profile says of it.
import { useCallback, useMemo } from "preact/hooks";

import { call, type CallError } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { Command, EmptyNote, ErrorNote } from "../../components/notes";
import { useProfileNames } from "../../components/profile_field";
import * as text from "../../format";
import { VersionNote } from "../../components/version_note";
import { hrefOf, setParams, type Params, type ViewProps } from "../../route";
import { versionOf } from "../../version";
import { Charts } from "./charts";
import { Comparison } from "./comparison";
import { numberOf } from "./costs";
import { FitPanel, NextSizes } from "./fit_panel";
import { Picker } from "./picker";
import { identityOf, itemsOf } from "./samples";
import { SamplesTable } from "./samples_table";
import "./view.css";

import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

/** At first: of each size as many as its column of the chart shows apart, and outliers; the table offers more. */
const usualSamples = 500;

function useCurve(profileName: string | undefined, version: string | undefined, cost: string | undefined, samples: string | undefined, wanted: boolean) {
  const profileVersion = versionOf(version);
  const request = { profileName: profileName ?? "", profileVersion, cost: cost ?? "", maxSamples: numberOf(samples) ?? usualSamples };
  return useLoaded(wanted && profileVersion !== null ? JSON.stringify(request) : null, (signal) => call<GetCurveResponse>("ProfileService/GetCurve", request, signal));
}

function NoProfile() {
  return (
    <EmptyNote title="No profile is stored yet">
      <p>A curve needs a calibrated cluster. Measure this machine, or a simulated cluster, into the planner's database:</p>
      <Command text="moeplan calibrate --local 4 --db moeplan.db" />
      <Command text="moeplan calibrate --simulated deploy/examples/cluster.json --db moeplan.db" />
      <p><a href={hrefOf("clusters")}>Clusters</a> shows the other ways. <span class="muted">This page fills by itself.</span></p>
    </EmptyNote>
  );
}

const largestSize = 1e30;

/** Of the address; null: none, or no size. */
const askedSize = (param: string | undefined): number | null => (Number(param) > 0 && Number(param) <= largestSize ? Number(param) : null);

/** `asked`: a size to mark; null: none. */
function Shown({ curve, second, asked, params }: { curve: GetCurveResponse; second: GetCurveResponse | null; asked: number | null; params: Params }) {
  const items = useMemo(() => itemsOf(curve), [curve]);
  const choose = useCallback((index: number) => setParams({ sample: identityOf(items, index), page: undefined, kind: undefined }), [items]);
  // Of much that is drawn, what an address or an answer leaves as it is stays as it is.
  const charts = useMemo(() => <Charts curve={curve} second={second} items={items} asked={asked} onChoose={choose} />, [curve, second, items, asked, choose]);
  const panels = useMemo(
    () => (
      <>
        {second !== null && <Comparison first={curve} second={second} />}
        <FitPanel curve={curve} />
        <NextSizes curve={curve} />
      </>
    ),
    [curve, second],
  );
  const { sample, kind, sort, page } = params;
  const table = useMemo(() => <SamplesTable curve={curve} items={items} shown={{ sample, kind, sort, page }} />, [curve, items, sample, kind, sort, page]);
  return (
    <>
      <section class="card" aria-labelledby="curve-title">
        <h2 id="curve-title">{curve.cost}</h2>
        <p>
          <a href={hrefOf("clusters", { profile: curve.profileName })}>{curve.profileName}</a>, version {curve.profileVersion}, stored{" "}
          <time dateTime={curve.createdAt} title={curve.createdAt}>{text.age(curve.createdAt, Date.now())}</time>
        </p>
        {charts}
      </section>
      {panels}
      {table}
    </>
  );
}

/** The shell says so for all views. */
const isAway = ({ code }: CallError): boolean => code === "UNREACHABLE" || code === "UNAVAILABLE";

export function CurvesView({ params }: ViewProps) {
  const names = useProfileNames();
  const none = names.data?.length === 0;
  const curve = useCurve(params["profile"], params["version"], params["cost"], params["samples"], !none);
  // A profile that was chosen with another one's cost: its own first one stands in.
  const absent = curve.error?.code === "NOT_FOUND" && params["cost"] !== undefined;
  const first = useCurve(params["profile"], params["version"], undefined, params["samples"], absent);
  const shown = absent ? first.data : curve.data;
  const comparing = params["profile2"] !== undefined;
  const cost = absent ? shown?.cost : (params["cost"] ?? shown?.cost);
  const second = useCurve(params["profile2"], params["version2"], cost, "1", comparing && cost !== undefined);

  if (versionOf(params["version"]) === null) {
    return (
      <>
        <VersionNote field="version" param={params["version"]} />
        <p><a href={hrefOf("curves", { ...params, version: undefined })}>Show the newest version</a></p>
      </>
    );
  }
  if (none) return <NoProfile />;
  const other = comparing && second.data?.cost === shown?.cost ? second.data : null;
  const known = params["profile"] !== undefined && names.data?.includes(params["profile"]);
  return (
    <>
      {curve.error !== null && (shown === null || !isAway(curve.error)) && <ErrorNote error={curve.error} />}
      {names.error !== null && names.data === null && !isAway(names.error) && <ErrorNote error={names.error} />}
      {shown === null
        ? curve.error === null || first.loading
          ? <p class="muted" role="status">Loading the curve …</p>
          : <p><a href={hrefOf("curves", { profile: known ? params["profile"] : undefined })}>{known ? "Show the newest version" : "Show the newest profile"}</a></p>
        : (
          <div class="columns curves" aria-busy={curve.loading ? "true" : undefined}>
            <Picker params={params} names={names.data ?? []} curve={shown} cost={cost ?? shown.cost} />
            <div class="curve">
              {absent && <p role="status">Shown instead: the first cost of this profile.</p>}
              {comparing && <VersionNote field="version2" param={params["version2"]} />}
              {comparing && second.error !== null && other === null && (
                <ErrorNote message={`Nothing to compare with: ${second.error.message}`} />
              )}
              <Shown curve={shown} second={other} asked={absent ? null : askedSize(params["size"])} params={params} />
            </div>
          </div>
        )}
    </>
  );
}
