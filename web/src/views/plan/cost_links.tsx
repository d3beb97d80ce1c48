// Links from costs to their curves: fit, version, samples.
import { hrefOf } from "../../route";
import { pieces } from "./costs";

/** Which version of which profile an answer rests on. */
export interface Source {
  profile: string;
  /** 0: from a file. */
  version: number;
  /** Those of its costs that texts of the answer may name. */
  costs: readonly string[];
}

/** `size`: where on the curve. */
export function CostLink({ source, cost, size, children }: { source: Source; cost: string; size?: number; children?: string }) {
  const href = hrefOf("curves", { profile: source.profile, version: source.version > 0 ? source.version : undefined, cost, size });
  return <a href={href}>{children ?? cost}</a>;
}

/** A text of the planner with the costs that it names as links. */
export function TextWithCosts({ source, text }: { source: Source; text: string }) {
  return (
    <>
      {pieces(text, source.costs).map((piece, index) => (
        piece.cost === undefined ? piece.text : <CostLink key={index} source={source} cost={piece.cost}>{piece.text}</CostLink>
      ))}
    </>
  );
}
