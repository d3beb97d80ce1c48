// The links of a cluster: what the common fit to all of its collectives says of each class.
import type { Loaded } from "../../api/use_call";
import { streamClass } from "../../charts/colors";
import { CostLink, type PricedWith } from "../../components/cost_link";
import { ErrorNote } from "../../components/notes";
import { Table } from "../../components/table";
import * as text from "../../format";

import type { ClusterOverview, FittedLink, GetLinksResponse } from "../../../generated/moeplan/v1/profile_service";

const linkName = (stream: string): string =>
  stream === "INTRA_NODE" ? "inside a node" : stream === "INTER_NODE" ? "between nodes" : text.plainName(stream);

export const LinkName = ({ stream }: { stream: string }) => <><span class={`swatch ${streamClass[stream] ?? ""}`} />{linkName(stream)}</>;

function Costs({ source, costs }: { source: PricedWith; costs: readonly string[] }) {
  const [first] = costs;
  if (first === undefined) return <>–</>;
  if (costs.length === 1) return <CostLink source={source} cost={first} />;
  return (
    <details>
      <summary>{costs.length} costs</summary>
      <ul class="plain">{costs.map((cost) => <li key={cost}><CostLink source={source} cost={cost} /></li>)}</ul>
    </details>
  );
}

/** "227 GB/s, α 2.35 µs", what is known of it. */
export function linkText({ alphaS, bytesPerS }: FittedLink): string {
  const known = [...(bytesPerS === undefined ? [] : [text.bytesPerS(bytesPerS)]), ...(alphaS > 0 ? [`α ${text.seconds(alphaS)}`] : [])];
  return known.length === 0 ? "not told by what was measured" : known.join(", ");
}

export function Links({ overview: { profileName, profileVersion }, links: { data, error } }: { overview: ClusterOverview; links: Loaded<GetLinksResponse> }) {
  if (error !== null && data === null) return <ErrorNote error={error} />;
  if (data === null) return <p class="muted">Loading the links …</p>;
  if (data.links.length === 0) return <p class="muted">No collective was measured over a link yet.</p>;
  const missed = data.relativeErrorP50 === undefined ? "" : `; the common fit misses what was measured by ${text.percent(data.relativeErrorP50)} (median)`;
  return (
    <Table<FittedLink>
      caption={`Links, fitted to all collectives at once${missed}`}
      rows={data.links}
      keyOf={({ stream }) => stream}
      columns={[
        {
          head: "Link",
          cell: ({ stream }) => <LinkName stream={stream} />,
        },
        { head: "α, before the first byte", numeric: true, cell: ({ alphaS }) => (alphaS > 0 ? text.seconds(alphaS) : "not told by these sizes") },
        {
          head: "Bandwidth of a rank, each way",
          numeric: true,
          cell: ({ bytesPerS }) => (bytesPerS === undefined ? "not told by these sizes" : text.bytesPerS(bytesPerS)),
        },
        { head: "Measured by", cell: ({ costs }) => <Costs source={{ profile: profileName, version: profileVersion }} costs={costs} /> },
      ]}
    />
  );
}
