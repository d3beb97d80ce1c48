// Which stored profile a view asks about, and what to do where there is none.
import { useEffect, useState } from "preact/hooks";

import type { ProfileSummary } from "../../generated/moeplan/v1/profile";
import type { ListProfilesResponse } from "../../generated/moeplan/v1/profile_service";
import { callAll } from "../api/client";
import { useLoaded, type Loaded } from "../api/use_call";
import { Command, EmptyNote } from "./notes";

const mostNames = 10_000;
const everyMsWhileEmpty = 5000;
/** Of one profile. */
export const mostVersions = 1000;

/** Names of stored profiles, last stored first; asked for now and then until there is one. */
export function useProfileNames(): Loaded<string[]> {
  const [everyMs, setEveryMs] = useState(0);
  const names = useLoaded("profiles", async (signal) => {
    const newest = await callAll<ProfileSummary, ListProfilesResponse>("ProfileService/ListProfiles", { newest: true }, ({ profiles }) => profiles, mostNames, signal);
    return newest.map(({ name }) => name);
  }, everyMs);
  const empty = names.data?.length === 0;
  useEffect(() => setEveryMs(empty ? everyMsWhileEmpty : 0), [empty]);
  return names;
}

/** Versions of one profile, newest first. Empty: of none. */
export function useVersions(profile: string): Loaded<ProfileSummary[]> {
  return useLoaded(profile === "" ? null : `versions ${profile}`, (signal) =>
    callAll<ProfileSummary, ListProfilesResponse>(
      "ProfileService/ListProfiles", { profileName: profile }, ({ profiles }) => profiles, mostVersions, signal,
    ));
}

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
      <p class="muted"><code>--db</code> is the database that this planner serves. This page fills by itself.</p>
    </EmptyNote>
  );
}
