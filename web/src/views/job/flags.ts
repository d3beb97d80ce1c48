// The settings of a training system as text to copy. Pure.
import type { ExportedLayout } from "../../../generated/moeplan/v1/target";
import { shellWord } from "../../components/shell_word";

/** A token as a shell takes it; what stands on each side of "=" needs quotes for itself. */
const quoted = (token: string): string => token.split("=").map((part) => (part === "" ? "" : shellWord(part))).join("=");

const isFlag = (token: string): boolean => /^--?[A-Za-z]/.test(token);

/** A line for each flag, with its values behind it; a token that belongs to no flag has a line of its own. */
export function flagLines(tokens: readonly string[]): string[] {
  const lines: string[] = [];
  let isOfFlag = false;
  for (const token of tokens) {
    if (isFlag(token) || !isOfFlag) lines.push(quoted(token));
    else lines[lines.length - 1] += ` ${quoted(token)}`;
    isOfFlag ||= isFlag(token);
  }
  return lines;
}

/** Lines that go on behind one another, as part of a command. */
export const flagsText = (tokens: readonly string[]): string => flagLines(tokens).join(" \\\n");

/** "export NAME=VALUE", a line for each variable; empty: there is none. */
export function environmentText(environment: ExportedLayout["environment"]): string {
  return Object.entries(environment ?? {}).map(([name, value]) => `export ${name}=${shellWord(String(value))}`).join("\n");
}
