// Costs as texts of the planner name them: "ALL_TO_ALL groupSize 16 ranksPerNode 8", and which entry of the profile
// answers. Pure.
interface Parts {
  name: string;
  /** "groupSize 16". */
  pairs: string[];
}

function partsOf(cost: string): Parts {
  const [name = "", ...words] = cost.split(" ");
  const pairs: string[] = [];
  for (let i = 0; i + 1 < words.length; i += 2) pairs.push(`${words[i]} ${words[i + 1]}`);
  return { name, pairs };
}

/**
 * The entry that serves a cost: of those of its name whose every condition it meets, the one with most. Empty: none.
 */
export function entryFor(asked: string, costs: readonly string[]): string {
  if (costs.includes(asked)) return asked;
  const wanted = partsOf(asked);
  let best = "";
  let most = -1;
  for (const cost of costs) {
    const { name, pairs } = partsOf(cost);
    if (name !== wanted.name || pairs.length <= most || !pairs.every((pair) => wanted.pairs.includes(pair))) continue;
    best = cost;
    most = pairs.length;
  }
  return best;
}

export interface Piece {
  text: string;
  /** The entry that the text names; absent: it is just text. */
  cost?: string;
}

const named = /\b[A-Z][A-Z0-9_]{2,}(?: (?:groupSize|ranksPerNode|gatherGroupSize|shards|bytesPerElement|modelDim|hiddenDim|ctas) \d+| (?:algorithm|contention) [A-Z0-9_]+)*/g;

/** A text, cut where it names costs of the profile. */
export function pieces(text: string, costs: readonly string[]): Piece[] {
  const result: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(named)) {
    const cost = entryFor(match[0], costs);
    if (cost === "") continue;
    if (match.index > from) result.push({ text: text.slice(from, match.index) });
    result.push({ text: match[0], cost });
    from = match.index + match[0].length;
  }
  if (from < text.length) result.push({ text: text.slice(from) });
  return result;
}
