// The order of a table's rows. Pure.

/** undefined: has none, and comes last whichever way is sorted. */
export type SortKey = number | string | undefined;

// One for all: String.localeCompare looks for its own at each pair, which ten thousand rows feel.
const { compare: compareTexts } = new Intl.Collator("en", { numeric: true });

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return compareTexts(String(a), String(b));
}

/** Rows that compare equal keep their order. */
export function sorted<Row>(rows: readonly Row[], keyOf: (row: Row) => SortKey, down: boolean): Row[] {
  const absent = (key: SortKey): key is undefined => key === undefined || Number.isNaN(key);
  const keyed = rows.map((row) => ({ row, key: keyOf(row) }));
  keyed.sort(({ key: a }, { key: b }) => {
    if (absent(a) || absent(b)) return Number(absent(a)) - Number(absent(b));
    return down ? compare(b, a) : compare(a, b);
  });
  return keyed.map(({ row }) => row);
}
