// Where the nodes of a cluster, their GPUs and the links between them stand in a small drawing. Pure; in px of the drawing.

/** What is drawn at most: the rest is told as a number. */
export const mostNodes = 8;
export const mostGpus = 8;

const columns = 4;
const gpuSize = 12;
const gpuGap = 5;
const gpuTop = 20;
const nodeWidth = 84;
const nodeGap = 10;
const stub = 8;
const networkGap = 14;

export interface DrawnNode {
  node: number;
  x: number;
  y: number;
  gpus: { x: number; y: number }[];
  /** The link between its GPUs: a bar with a stub to each; null with a single GPU. */
  bar: { x1: number; x2: number; y: number } | null;
  /** From its edge to the network; null where it is the only one. */
  uplink: { x: number; y1: number; y2: number } | null;
}

export interface Topology {
  width: number;
  height: number;
  nodeWidth: number;
  nodeHeight: number;
  gpuSize: number;
  nodes: DrawnNode[];
  /** The network between the nodes. */
  network: { x1: number; x2: number; y: number } | null;
  moreNodes: number;
  moreGpus: number;
}

export function topologyOf(nodes: number, gpusPerNode: number): Topology {
  const drawnNodes = Math.min(nodes, mostNodes);
  const drawnGpus = Math.min(gpusPerNode, mostGpus);
  const gpuRows = Math.ceil(drawnGpus / columns);
  const nodeHeight = gpuTop + gpuRows * gpuSize + (gpuRows > 1 ? 2 * stub : stub) + 6;
  const perRow = Math.min(drawnNodes, columns);
  const width = perRow * nodeWidth + (perRow - 1) * nodeGap;
  const networkY = nodeHeight + networkGap;
  const nodeRows = Math.ceil(drawnNodes / columns);
  const alone = nodes === 1;

  const at = (node: number): DrawnNode => {
    const upper = node < columns;
    const x = (node % columns) * (nodeWidth + nodeGap);
    const y = upper ? 0 : networkY + networkGap;
    const inRow = Math.min(drawnGpus, columns);
    const left = x + (nodeWidth - inRow * gpuSize - (inRow - 1) * gpuGap) / 2;
    const gpus = Array.from({ length: drawnGpus }, (_, gpu) => ({
      x: left + (gpu % columns) * (gpuSize + gpuGap),
      y: y + gpuTop + (gpu < columns ? 0 : gpuSize + 2 * stub),
    }));
    const middle = gpuSize / 2;
    const first = gpus[0];
    const last = gpus[inRow - 1];
    return {
      node,
      x,
      y,
      gpus,
      bar: first === undefined || last === undefined || drawnGpus < 2
        ? null
        : { x1: first.x + middle, x2: last.x + middle, y: y + gpuTop + gpuSize + stub },
      uplink: alone ? null : { x: x + nodeWidth / 2, y1: upper ? y + nodeHeight : y, y2: networkY },
    };
  };

  return {
    width,
    height: alone ? nodeHeight : nodeRows > 1 ? networkY + networkGap + nodeHeight : networkY + 4,
    nodeWidth,
    nodeHeight,
    gpuSize,
    nodes: Array.from({ length: drawnNodes }, (_, node) => at(node)),
    network: alone ? null : { x1: nodeWidth / 2 - 10, x2: width - nodeWidth / 2 + 10, y: networkY },
    moreNodes: nodes - drawnNodes,
    moreGpus: gpusPerNode - drawnGpus,
  };
}
