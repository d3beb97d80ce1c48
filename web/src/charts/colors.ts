// Which class of styles.css colours what: one place, so that a family has its colour on every view.
export const streamClass: Readonly<Record<string, string>> = {
  COMPUTE: "stream-compute",
  INTRA_NODE: "stream-intra",
  INTER_NODE: "stream-inter",
  COPY: "stream-copy",
};

const families = ["BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "MONTA_O2", "MONTA_O3", "PIPELINE", "ONCE_PER_NODE"];

/** Families of extensions share the last one. */
export function familyClass(family: string): string {
  const index = families.indexOf(family);
  return `family-${index < 0 ? families.length : index}`;
}
