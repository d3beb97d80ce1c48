import { hrefOf } from "../route";

/** No cluster was measured yet, and what that would change. */
export function NoProfileHint() {
  return (
    <p class="muted">
      No profile is stored yet, so hardware by its name is priced with public figures. <code>moeplan calibrate</code> measures your own cluster; the{" "}
      <a href={hrefOf("clusters")}>Clusters</a> view says how.
    </p>
  );
}
