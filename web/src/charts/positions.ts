// Where the values of an axis stand on a chart. Pure.

/** Values of an axis as numbers where all are, else as their places; `log2` where they span more than a factor of 8. */
export function positionsOf(values: readonly string[]): { at: number[]; kind: "log2" | "linear"; numeric: boolean } {
  const numbers = values.map((value) => (value === "" ? Number.NaN : Number(value)));
  if (!numbers.every(Number.isFinite)) return { at: values.map((_, index) => index), kind: "linear", numeric: false };
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  return { at: numbers, kind: low > 0 && high / low > 8 ? "log2" : "linear", numeric: true };
}

/** Whether each value is twice the one before: even steps show them best then, however few they are. */
export const doubles = (values: readonly number[]): boolean => values.length > 1 && values.every((value, index) => index === 0 || value === 2 * values[index - 1]!);
