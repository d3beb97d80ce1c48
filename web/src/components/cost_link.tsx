// Links from costs to their curves: fit, version, samples, and who took them.
import { hrefOf } from "../route";

/** Which version of which profile an answer rests on. */
export interface PricedWith {
  profile: string;
  /** 0: from a file. */
  version: number;
}

/** `size`: where on the curve. */
export function CostLink({ source, cost, size, children }: { source: PricedWith; cost: string; size?: number; children?: string }) {
  const href = hrefOf("curves", { profile: source.profile, version: source.version > 0 ? source.version : undefined, cost, size });
  return <a href={href}>{children ?? cost}</a>;
}

/** As an answer names them, in its order. `source`: null of hardware that was only named, which has no curves. */
export function CostList({ source, costs }: { source: PricedWith | null; costs: readonly string[] }) {
  return <ul class="priced-from">{costs.map((cost) => <li key={cost}>{source === null ? cost : <CostLink source={source} cost={cost} />}</li>)}</ul>;
}
