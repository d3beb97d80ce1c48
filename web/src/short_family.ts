// What families of schedules are called where there is room for a few letters. Pure.

const shortNames: Readonly<Record<string, string>> = {
  BASELINE: "B",
  BASELINE_TP: "BT",
  PARM_S1: "S1",
  PARM_S2: "S2",
  MONTA_O1: "O1",
  MONTA_O2: "O2",
  MONTA_O3: "O3",
  PIPELINE: "P",
  ONCE_PER_NODE: "1N",
};

/** Schedules of extensions by their first letters. */
export const shortFamily = (family: string): string => shortNames[family] ?? family.slice(0, 3);
