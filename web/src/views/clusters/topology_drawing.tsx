import { LinkName, linkText } from "./links";
import { nodeState, shapeText, type Shape } from "./model";
import { topologyOf, type DrawnNode, type Topology } from "./topology";

import type { AgentStatus } from "../../../generated/moeplan/v1/agent_service";
import type { FittedLink } from "../../../generated/moeplan/v1/profile_service";

function Node({ drawn, topology, state }: { drawn: DrawnNode; topology: Topology; state: string }) {
  const { bar, uplink } = drawn;
  const middle = topology.gpuSize / 2;
  return (
    <g class={`node ${state}`}>
      {uplink !== null && <line class="inter" x1={uplink.x} x2={uplink.x} y1={uplink.y1} y2={uplink.y2} />}
      <rect class="box" x={drawn.x + 0.5} y={drawn.y + 0.5} width={topology.nodeWidth - 1} height={topology.nodeHeight - 1} rx={5} />
      <text x={drawn.x + topology.nodeWidth / 2} y={drawn.y + 14} text-anchor="middle">
        {state === "lost" ? `node ${drawn.node} lost` : `node ${drawn.node}`}
      </text>
      {bar !== null && <line class="intra" x1={bar.x1} x2={bar.x2} y1={bar.y} y2={bar.y} />}
      {drawn.gpus.map((gpu) => (
        <g key={`${gpu.x} ${gpu.y}`}>
          {bar !== null && (
            <line class="intra" x1={gpu.x + middle} x2={gpu.x + middle} y1={gpu.y + (gpu.y < bar.y ? topology.gpuSize : 0)} y2={bar.y} />
          )}
          <rect class="gpu" x={gpu.x} y={gpu.y} width={topology.gpuSize} height={topology.gpuSize} rx={2} />
        </g>
      ))}
    </g>
  );
}

interface Props {
  shape: Shape;
  agents: readonly AgentStatus[];
  /** Empty: not known. */
  links: readonly FittedLink[];
}

function LinkKey({ stream, links }: { stream: string; links: readonly FittedLink[] }) {
  const link = links.find((one) => one.stream === stream);
  return <span class="key"><LinkName stream={stream} />{link !== undefined && `: ${linkText(link)}`}</span>;
}

/** The cluster as a drawing; what it tells is in its name, and in the tables beside it. */
export function TopologyDrawing({ shape, agents, links }: Props) {
  const topology = topologyOf(shape.nodes, shape.gpusPerNode);
  const { network } = topology;
  const more = [
    ...(topology.moreNodes > 0 ? [`${topology.moreNodes} more nodes`] : []),
    ...(topology.moreGpus > 0 ? [`${topology.moreGpus} more GPUs in each node`] : []),
  ];
  return (
    <figure class="topology">
      <svg viewBox={`0 0 ${topology.width} ${topology.height}`} width={topology.width} role="img" aria-label={`${shapeText(shape)}, joined by links`}>
        {network !== null && <line class="inter network" x1={network.x1} x2={network.x2} y1={network.y} y2={network.y} />}
        {topology.nodes.map((drawn) => (
          <Node key={drawn.node} drawn={drawn} topology={topology} state={nodeState(agents, drawn.node)} />
        ))}
      </svg>
      <figcaption class="muted">
        <LinkKey stream="INTRA_NODE" links={links} />{" "}
        {shape.nodes > 1 && <LinkKey stream="INTER_NODE" links={links} />}
        {more.length > 0 && <span> Not drawn: {more.join(" and ")}.</span>}
      </figcaption>
    </figure>
  );
}
