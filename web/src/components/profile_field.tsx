// Which stored profile a view asks about, and what to do where there is none.
import type { ProfileSummary } from "../../generated/moeplan/v1/profile";
import type { ListProfilesResponse } from "../../generated/moeplan/v1/profile_service";
import { call } from "../api/client";
import { useLoaded, type Loaded } from "../api/use_call";
import { Command, EmptyNote } from "./notes";

/** Names of stored profiles, last stored first. */
export function useProfileNames(): Loaded<string[]> {
  return useLoaded("profiles", async (signal) => {
    const { profiles } = await call<ListProfilesResponse>("ProfileService/ListProfiles", { pageSize: 1000 }, signal);
    return namesOf(profiles);
  });
}

export const namesOf = (profiles: readonly ProfileSummary[]): string[] => [...new Set(profiles.map(({ name }) => name))];

interface Props {
  names: readonly string[];
  /** Empty: see `none`. */
  value: string;
  /** What the empty choice means. */
  none: string;
  onChange: (name: string) => void;
}

export function ProfileField({ names, value, none, onChange }: Props) {
  const all = value === "" || names.includes(value) ? names : [value, ...names];
  return (
    <label>
      Profile
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{none}</option>
        {all.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}

export function NoProfiles() {
  return (
    <EmptyNote title="No profile is stored yet">
      <p>Plans are priced with what was measured of a cluster. Measure this machine with four processes:</p>
      <Command text="moeplan calibrate --local 4 --db moeplan.db --profile-name here" />
      <p>Or let the simulator play a cluster that is only on paper:</p>
      <Command text="moeplan calibrate --simulated deploy/examples/cluster.json --db moeplan.db --profile-name west" />
      <p>Name the database that this planner was started with, then load this page again.</p>
    </EmptyNote>
  );
}
