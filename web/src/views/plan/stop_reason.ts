// Why a search stopped, in words.
import type { Search } from "../../../generated/moeplan/v1/plan";
import { count } from "../../format";

export function stopWords(search: Search): string {
  const many = `${count(search.evaluated)} candidate${search.evaluated === 1 ? "" : "s"}`;
  switch (search.stopReason) {
    case "PROVED_BEST": return `proved best of ${many} priced`;
    case "OUT_OF_BUDGET": return `best of ${many} priced within the search budget; not proved`;
    case "OUT_OF_TIME": return `best of ${many} priced in time; not proved`;
    case "CANCELLED": return `cancelled after ${many}`;
    case "UNSPECIFIED": return `${many} priced`;
  }
}
