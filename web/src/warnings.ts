// The planner's warnings as lists. Pure.

/** Of one cost the planner warns at other sizes from question to question: "GATE: asked at 3e+07 bytes, ...". */
const subjectOf = (warning: string): string => warning.split(": asked at")[0]!;

/** The first of each cost, as `moeplan what-if` has it, without those on what `said` warns of. */
export function unsaid(warnings: readonly string[], said: readonly string[] = []): string[] {
  const first = new Map<string, string>();
  for (const warning of warnings) if (!first.has(subjectOf(warning))) first.set(subjectOf(warning), warning);
  for (const warning of said) first.delete(subjectOf(warning));
  return [...first.values()];
}
