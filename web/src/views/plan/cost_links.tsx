// Texts of an answer, with the costs that they name as links.
import { CostLink, type PricedWith } from "../../components/cost_link";
import { pieces } from "./costs";

export interface Source extends PricedWith {
  /** Those of its costs that texts of the answer may name. */
  costs: readonly string[];
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
