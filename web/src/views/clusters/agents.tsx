import { Command } from "../../components/notes";
import { shellWord } from "../../components/shell_word";
import { Table } from "../../components/table";
import * as text from "../../format";
import { nodesText } from "./model";

import type { AgentStatus } from "../../../generated/moeplan/v1/agent_service";

function Hardware({ facts }: { facts: { [key: string]: string } }) {
  const entries = Object.entries(facts);
  if (entries.length === 0) return <>–</>;
  return (
    <details>
      <summary>{facts["device"] ?? `${entries.length} facts`}</summary>
      <dl class="facts">{entries.map(([key, value]) => [<dt key={`${key} name`}>{key}</dt>, <dd key={key}>{value}</dd>])}</dl>
    </details>
  );
}

function State({ agent }: { agent: AgentStatus }) {
  if (agent.state === "LIVE") return <span class="badge good">live</span>;
  return <><span class="badge bad">lost</span> {agent.lostBecause}</>;
}

const jumps = ({ clockJumps, lastClockJumpS }: AgentStatus): string =>
  clockJumps === 0 ? "none" : `${text.count(clockJumps)}, last ${lastClockJumpS < 0 ? "−" : "+"}${text.seconds(Math.abs(lastClockJumpS))}`;

export function Agents({ cluster, agents }: { cluster: string; agents: readonly AgentStatus[] }) {
  if (agents.length === 0) {
    return (
      <>
        <p class="muted">No agent of this cluster is connected. On each of its nodes:</p>
        <Command text={`moeplan agent --planner HOST:PORT --cluster=${shellWord(cluster)} --nodes N --node-rank K`} />
      </>
    );
  }
  const live = agents.filter(({ state }) => state === "LIVE").length;
  return (
    <Table<AgentStatus>
      caption={`${live} of ${agents.length} ${agents.length === 1 ? "agent" : "agents"} live`}
      rows={agents}
      keyOf={({ registration }, index) => registration?.node ?? index}
      columns={[
        { head: "Agent", cell: ({ registration }) => registration?.name ?? "–" },
        { head: "Holds", cell: (agent) => `${nodesText(agent)}, ${agent.registration?.ranksPerNode ?? 0} ranks each` },
        { head: "State", cell: (agent) => <State agent={agent} /> },
        { head: "Backend", cell: ({ registration }) => registration?.backend ?? "–" },
        { head: "Version", cell: ({ registration }) => registration?.version ?? "–" },
        { head: "Hardware", cell: ({ registration }) => <Hardware facts={registration?.hardware ?? {}} /> },
        { head: "Silent for", numeric: true, cell: ({ silentS }) => text.seconds(silentS) },
        { head: "Clock jumps", numeric: true, cell: jumps },
      ]}
    />
  );
}
