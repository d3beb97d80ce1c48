// What runs found to take longer, or less long, than predicted.
import { Table } from "../../components/table";
import * as text from "../../format";
import { hrefOf } from "../../route";
import { CostLink } from "../../components/cost_link";
import { Age } from "./parts";

import type { Drift, Drift_State } from "../../../generated/moeplan/v1/planner_service";

function stateBadge(state: Drift_State): { kind: string; words: string } {
  switch (state) {
    case "MEASURING": return { kind: "warn", words: "being measured again" };
    case "RENEWED": return { kind: "good", words: "renewed" };
    case "UNCONFIRMED": return { kind: "warn", words: "measured as predicted" };
    case "FAILED": return { kind: "bad", words: "could not be measured again" };
    case "UNSPECIFIED": return { kind: "warn", words: "not said" };
  }
}

export function Drifts({ drifts }: { drifts: readonly Drift[] }) {
  if (drifts.length === 0) return <p class="muted">No run has shown a drift since the planner started.</p>;
  return (
    <Table<Drift>
      caption="What runs did not find as predicted, newest first"
      rows={drifts}
      keyOf={({ cost, foundAt }, index) => `${cost} ${foundAt} ${index}`}
      columns={[
        { head: "Cost", cell: ({ profileName, profileVersion, cost }) => <CostLink source={{ profile: profileName, version: profileVersion }} cost={cost} /> },
        {
          head: "State",
          cell: ({ state }) => {
            const { kind, words } = stateBadge(state);
            return <span class={`badge ${kind}`}>{words}</span>;
          },
        },
        { head: "Measured over predicted", numeric: true, cell: ({ ratio, runs }) => `${text.factor(ratio)} in ${runs} ${runs === 1 ? "run" : "runs"}` },
        { head: "Found", cell: ({ foundAt }) => <Age time={foundAt} /> },
        { head: "Calibration", cell: ({ calibration }) => (calibration === 0 ? "–" : `number ${calibration}`) },
        {
          head: "New version",
          cell: ({ profileName, profileVersion, renewedVersion, cost }) =>
            renewedVersion === 0
              ? "–"
              : <a href={hrefOf("curves", { profile: profileName, version: renewedVersion, cost, profile2: profileName, version2: profileVersion })}>
                  version {renewedVersion}, beside {profileVersion}
                </a>,
        },
        { head: "What was found", cell: ({ detail }) => detail },
      ]}
    />
  );
}
