// What is stored under a profile's name: its versions, and the samples that were set aside. Asked for once opened.
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { AsTable } from "../../charts/as_table";
import { ErrorNote } from "../../components/notes";
import { mostVersions, useVersions } from "../../components/profile_field";
import { Table } from "../../components/table";
import * as text from "../../format";
import { hrefOf } from "../../route";
import { Age } from "./parts";

import type { ListRejectedSamplesResponse } from "../../../generated/moeplan/v1/profile_service";
import type { ProfileSummary } from "../../../generated/moeplan/v1/profile";
import type { RejectedSample } from "../../../generated/moeplan/v1/samples";

function VersionTable({ profile }: { profile: string }) {
  const { data, error } = useVersions(profile);
  if (error !== null) return <ErrorNote error={error} />;
  if (data === null) return <p class="muted">Loading …</p>;
  return (
    <Table<ProfileSummary>
      caption={data.length < mostVersions ? "All versions, newest first" : `The newest ${text.count(mostVersions)} versions`}
      rows={data}
      keyOf={({ version }) => version}
      columns={[
        { head: "Version", cell: ({ version }) => <a href={hrefOf("curves", { profile, version })}>version {version}</a> },
        { head: "Stored", cell: ({ createdAt }) => <Age time={createdAt} /> },
        {
          head: "Compare",
          cell: ({ version }) =>
            version > 1 ? <a href={hrefOf("curves", { profile, version, profile2: profile, version2: version - 1 })}>{version} beside {version - 1}</a> : "–",
        },
      ]}
    />
  );
}

function operation({ sample }: RejectedSample): string {
  if (sample === undefined) return "–";
  const shape = sample.groupSize === undefined ? "" : ` groupSize ${sample.groupSize} ranksPerNode ${sample.ranksPerNode ?? "–"}`;
  return `${sample.collective ?? sample.kernel ?? "–"}${shape}`;
}

function sizeText({ sample }: RejectedSample): string {
  if (typeof sample?.flops === "number") return text.flops(sample.flops);
  return typeof sample?.bytes === "number" ? text.bytes(sample.bytes) : "–";
}

/** Curves list more of their costs, `moeplan profile rejected` all. */
const mostRejected = 25;

function RejectedTable({ profile, rejected }: { profile: string; rejected: number }) {
  const { data, error } = useLoaded(`rejected ${rejected} ${profile}`, (signal) =>
    call<ListRejectedSamplesResponse>("ProfileService/ListRejectedSamples", { profileName: profile, pageSize: mostRejected }, signal));
  if (error !== null) return <ErrorNote error={error} />;
  if (data === null) return <p class="muted">Loading …</p>;
  return (
    <Table<RejectedSample>
      caption={data.nextPageToken === ""
        ? "Samples set aside, last received first"
        : `${text.count(data.rejectedSamples.length)} of ${text.count(rejected)} samples that were set aside, the last received`}
      rows={data.rejectedSamples}
      keyOf={(_, index) => index}
      columns={[
        { head: "Operation", cell: operation },
        { head: "Size", numeric: true, cell: sizeText },
        { head: "Why", cell: ({ reason }) => reason },
        { head: "Agent", cell: ({ sample }) => (sample?.provenance ?? {})["agent"] ?? "–" },
        { head: "Received", cell: ({ receivedAt }) => <Age time={receivedAt} /> },
        { head: "Request", cell: ({ requestId }) => <code>{requestId}</code> },
      ]}
    />
  );
}

export function Versions({ profile, versions }: { profile: string; versions: number }) {
  return <AsTable summary={`${text.count(versions)} ${versions === 1 ? "version" : "versions"}`}>{() => <VersionTable profile={profile} />}</AsTable>;
}

export function Rejected({ profile, rejected }: { profile: string; rejected: number }) {
  if (rejected === 0) return <>none</>;
  return <AsTable summary={`${text.count(rejected)} set aside`}>{() => <RejectedTable profile={profile} rejected={rejected} />}</AsTable>;
}
