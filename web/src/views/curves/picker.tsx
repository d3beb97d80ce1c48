// Which profile, version and cost to show, and what to compare it with. What is chosen goes to the address.
import { useMemo } from "preact/hooks";

import { useVersions } from "../../components/profile_field";
import { setParams, type Params } from "../../route";
import { costGroups } from "./costs";

import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";

const rowsOfList = 14;

interface VersionProps {
  label: string;
  profile: string;
  value: string;
  onChange: (version: string | undefined) => void;
}

function VersionSelect({ label, profile, value, onChange }: VersionProps) {
  // Until the answer for another profile is there, the last one's is.
  const versions = (useVersions(profile).data ?? []).filter(({ name }) => name === profile);
  const known = value === "" || versions.some(({ version }) => String(version) === value);
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">newest</option>
        {!known && <option value={value}>{value}</option>}
        {versions.map(({ version, createdAt }) => (
          <option key={version} value={String(version)}>{version}, {createdAt.slice(0, 10)}</option>
        ))}
      </select>
    </label>
  );
}

function ProfileSelect({ label, none, names, value, onChange }: { label: string; none?: string; names: readonly string[]; value: string; onChange: (name: string) => void }) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {none !== undefined && <option value="">{none}</option>}
        {value !== "" && !names.includes(value) && <option value={value}>{value}</option>}
        {names.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}

function CostList({ costs, cost, filter }: { costs: readonly string[]; cost: string; filter: string }) {
  const groups = useMemo(() => costGroups(costs, filter), [costs, filter]);
  const shown = groups.reduce((count, group) => count + group.costs.length, 0);
  // Nothing else can be told apart by hand: what was pointed at belongs to one cost.
  const choose = (value: string): void => setParams({ cost: value, size: undefined, sample: undefined, page: undefined });
  return (
    <>
      <label>
        Cost names contain
        <input type="search" value={filter} onInput={(event) => setParams({ filter: event.currentTarget.value }, true)} />
      </label>
      <label>
        Cost <span class="muted" role="status">({shown === costs.length ? costs.length : `${shown} of ${costs.length}`})</span>
        <select class="cost-list" size={rowsOfList} value={cost} onChange={(event) => choose(event.currentTarget.value)}>
          {groups.map(({ operation, costs: members }) => (
            <optgroup key={operation} label={operation}>
              {members.map(({ cost: name, shape }) => <option key={name} value={name} title={name} selected={name === cost}>{shape}</option>)}
            </optgroup>
          ))}
        </select>
      </label>
    </>
  );
}

interface Props {
  params: Params;
  names: readonly string[];
  curve: GetCurveResponse;
  cost: string;
}

export function Picker({ params, names, curve, cost }: Props) {
  const profile = params["profile"] ?? curve.profileName;
  const second = params["profile2"] ?? "";
  return (
    <section class="card picker" aria-label="What to show">
      <ProfileSelect
        label="Profile"
        names={names}
        value={profile}
        onChange={(name) => setParams({ profile: name, version: undefined, sample: undefined, page: undefined })}
      />
      <VersionSelect
        label="Version"
        profile={profile}
        value={params["version"] ?? ""}
        onChange={(version) => setParams({ version, page: undefined })}
      />
      <CostList costs={curve.costs} cost={cost} filter={params["filter"] ?? ""} />
      <ProfileSelect
        label="Compare with"
        none="nothing"
        names={names}
        value={second}
        onChange={(name) => setParams({ profile2: name, version2: undefined })}
      />
      {second !== "" && (
        <VersionSelect
          label="Its version"
          profile={second}
          value={params["version2"] ?? ""}
          onChange={(version2) => setParams({ version2 })}
        />
      )}
    </section>
  );
}
