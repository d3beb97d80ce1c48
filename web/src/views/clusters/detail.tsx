// One cluster in full.
import { useEffect, useRef, useState } from "preact/hooks";

import { call, callAll } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { CostLink } from "../../components/cost_link";
import { Command } from "../../components/notes";
import { shellWord } from "../../components/shell_word";
import { useLinks } from "../../components/use_links";
import * as text from "../../format";
import { hrefOf } from "../../route";
import { Agents } from "./agents";
import { Calibrations } from "./calibrations";
import { Drifts } from "./drifts";
import { Links } from "./links";
import { badgesOf, isActive, mergedCalibrations, shapeOf, shapeText, type ClusterEntry } from "./model";
import { Age } from "./parts";
import { Rejected, Versions } from "./stored";
import { TopologyDrawing } from "./topology_drawing";

import type { ListCalibrationsResponse } from "../../../generated/moeplan/v1/agent_service";
import type { Drift, ListDriftsResponse } from "../../../generated/moeplan/v1/planner_service";
import type { ClusterOverview } from "../../../generated/moeplan/v1/profile_service";

const activeEveryMs = 1000;
const idleEveryMs = 5000;
const driftsEveryMs = 15_000;
const mostDrifts = 1000;

function FitError({ overview }: { overview: ClusterOverview }) {
  const { profileName: profile, profileVersion: version, relativeErrorP50, worstCost, worstRelativeErrorP95 } = overview;
  if (relativeErrorP50 === undefined) return <>no cost was fitted</>;
  return (
    <>
      {text.percent(relativeErrorP50)} median, cross-validated
      {worstCost !== "" && worstRelativeErrorP95 !== undefined && (
        <>; worst: <CostLink source={{ profile, version }} cost={worstCost} />, {text.percent(worstRelativeErrorP95)} at the 95th percentile</>
      )}
    </>
  );
}

function Facts({ overview }: { overview: ClusterOverview }) {
  const { profileName: profile, profileVersion: version, cluster } = overview;
  return (
    <dl class="facts">
      <dt>Calibrated</dt>
      <dd><Age time={overview.createdAt} />: <a href={hrefOf("curves", { profile, version })}>version {version}</a></dd>
      <dt>Last sample</dt>
      <dd><Age time={overview.lastSampleAt} /></dd>
      <dt>Costs</dt>
      <dd>
        <a href={hrefOf("curves", { profile, version })}>{text.count(overview.collectives)} of collectives, {text.count(overview.kernels)} of kernels</a>
      </dd>
      <dt>Samples</dt>
      <dd><a href={hrefOf("curves", { profile })}>{text.count(overview.samples)}</a></dd>
      <dt>Rejected</dt>
      <dd><Rejected profile={profile} rejected={overview.rejectedSamples} /></dd>
      <dt>Fit error</dt>
      <dd><FitError overview={overview} /></dd>
      <dt>Versions</dt>
      <dd><Versions profile={profile} versions={overview.versions} /></dd>
      {cluster !== undefined && (
        <>
          <dt>A GPU</dt>
          <dd>
            {cluster.peakFlopsPerS > 0 ? `${text.flopsPerS(cluster.peakFlopsPerS)} peak (as told, else the fastest product measured)` : "peak unknown"},{" "}
            {cluster.deviceMemoryBytes > 0 ? `${text.bytes(cluster.deviceMemoryBytes)} memory` : "memory unknown"}
          </dd>
        </>
      )}
    </dl>
  );
}

function NotCalibrated({ name }: { name: string }) {
  return (
    <>
      <p>Nothing was measured on this cluster yet. Start a calibration below, or type:</p>
      <Command text={`moeplan calibrate --planner HOST:PORT --cluster=${shellWord(name)}`} />
    </>
  );
}

interface Props {
  entry: ClusterEntry;
  /** Told when something came of a calibration that the overview shows. */
  onProfileChanged: () => void;
}

export function ClusterDetail({ entry, onProfileChanged }: Props) {
  const { name, overview, agents } = entry;
  const [everyMs, setEveryMs] = useState(idleEveryMs);
  const own = useLoaded(
    `calibrations of ${name}`,
    (signal) => call<ListCalibrationsResponse>("AgentService/ListCalibrations", { cluster: name, pageSize: 50 }, signal),
    everyMs,
  );
  const calibrations = mergedCalibrations(own.data?.calibrations ?? [], entry.calibrations);
  const active = calibrations.filter(isActive).length;
  const before = useRef(active);
  useEffect(() => {
    setEveryMs(active > 0 ? activeEveryMs : idleEveryMs);
    if (active < before.current) onProfileChanged();
    before.current = active;
  }, [active]);

  // The list's page of drifts is one of all clusters.
  const ownDrifts = useLoaded(
    overview === null ? null : `drifts of ${name}`,
    (signal) => callAll<Drift, ListDriftsResponse>("PlannerService/ListDrifts", { profileName: name }, (answer) => answer.drifts, mostDrifts, signal),
    driftsEveryMs,
  );
  const drifts = ownDrifts.data ?? entry.drifts;

  const links = useLinks(overview);
  const shape = shapeOf(entry);
  return (
    <article class="card cluster" aria-labelledby="cluster-name">
      <h2 id="cluster-name">
        {name}{" "}
        {badgesOf({ ...entry, calibrations, drifts }).map(({ kind, text: words }) => <span key={words} class={`badge ${kind}`}>{words}</span>)}
      </h2>
      <div class="overview">
        {shape !== null && (
          <div>
            <p>{shapeText(shape)}, {text.count(shape.nodes * shape.gpusPerNode)} GPUs</p>
            <TopologyDrawing shape={shape} agents={agents} links={links.data?.links ?? []} />
          </div>
        )}
        {overview === null ? <div><NotCalibrated name={name} /></div> : <Facts overview={overview} />}
      </div>
      {overview !== null && (
        <section aria-labelledby="links-title"><h3 id="links-title">Links</h3><Links overview={overview} links={links} /></section>
      )}
      <section aria-labelledby="drifts-title"><h3 id="drifts-title">Drift</h3><Drifts drifts={drifts} /></section>
      <section aria-labelledby="agents-title"><h3 id="agents-title">Agents</h3><Agents cluster={name} agents={agents} /></section>
      <section aria-labelledby="calibrations-title">
        <h3 id="calibrations-title">Calibrations</h3>
        <Calibrations cluster={name} calibrations={calibrations} onChanged={own.reload} />
      </section>
    </article>
  );
}
