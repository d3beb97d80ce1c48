// The version of a profile as addresses name it. Pure.

/** null: what stands there is no version; undefined: none is named, and the newest is meant. */
export function versionOf(text: string | undefined): number | null | undefined {
  if (text === undefined || text === "") return undefined;
  return /^[1-9]\d*$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : null;
}

export const versionProblem = (text: string): string =>
  `The address names version ${JSON.stringify(text)}, which is none: versions are whole numbers of at least 1. Nothing is asked; take it from the address for the newest.`;
