// What if: the best plan at every point of a grid of changed fields.
import { useMemo, useRef } from "preact/hooks";

import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import "../../charts/shapes.css";
import { saveFile } from "../../charts/svg_file";
import { useArrival } from "../../components/arrival";
import { CopyLink } from "../../components/copy_link";
import { ErrorNote, WarningList } from "../../components/notes";
import { NoProfiles, useProfileNames } from "../../components/profile_field";
import { hrefOf, hrefWith, type Params, type ViewProps } from "../../route";
import { versionOf, versionProblem } from "../../version";
import { unsaid } from "../../warnings";
import { isWorkloadPath, parseWorkload, type Json } from "../../workload";
import { sweepCsv } from "./csv";
import { Form } from "./form";
import { LineChart } from "./line_chart";
import { AxisChoice, Maps } from "./maps";
import { askedOf, questionOf } from "./question";
import { PointDetails } from "./point";
import { PointTable } from "./table";
import { Progress } from "../../sweep/progress";
import { useSweep, type Swept } from "../../sweep/use_sweep";
import "./view.css";
import { workloadAt } from "./workload_text";

export function SweepView({ params }: ViewProps) {
  const names = useProfileNames();
  const asked = askedOf(params);
  const question = useMemo(() => questionOf(params), [asked]);
  const noProfiles = names.data?.length === 0;
  // A profile that is stored meanwhile may answer what could not be answered before.
  const { swept, again, cancel } = useSweep(question === null ? null : `${asked} ${noProfiles}`, question);

  if (noProfiles) return <NoProfiles />;
  return (
    <>
      <Form params={params} names={names.data ?? []} error={swept?.error ?? null} onAgain={again} />
      {names.error !== null && names.data === null && <ErrorNote error={names.error} />}
      {versionOf(params["version"]) === null && <ErrorNote message={versionProblem(params["version"]!)} />}
      {params["workload"] !== undefined && question === null && versionOf(params["version"]) !== null && <ErrorNote message="The address asks for no sweep: its workload is not a JSON object, or no axis is named." />}
      {swept !== null && <Progress swept={swept} cancel={cancel} again={again} />}
      {swept !== null && swept.points.length > 0 && <Shown swept={swept} params={params} />}
    </>
  );
}

/** The address of a point in the Plan view. */
function planHref(swept: Swept, point: SweepPoint): string {
  const { request } = swept.question;
  const parsed = parseWorkload(JSON.stringify(request.workload));
  if ("problem" in parsed) return hrefOf("plan");
  const { workload } = workloadAt(parsed.workload, (point.row?.fields ?? {}) as Record<string, Json>);
  return hrefOf("plan", {
    profile: swept.profileName,
    version: swept.profileVersion,
    workload: JSON.stringify(workload),
    extrapolate: request.extrapolate ? "1" : undefined,
  });
}

/** Whether a field says how many machines there are, which a layout has to fill. */
const isOfMachines = (path: string): boolean => path === "cluster.nodes" || path === "cluster.gpusPerNode";

const inRange = (value: string | undefined, count: number, otherwise: number): number => {
  const index = Number(value ?? otherwise);
  return Number.isInteger(index) && index >= 0 && index < count ? index : otherwise;
};

function Shown({ swept, params }: { swept: Swept; params: Params }) {
  const { question: { axes, request }, points, profileName, profileVersion, notes } = swept;
  const warnings = useMemo(() => [...notes, ...unsaid(points.flatMap((point) => point.warnings))], [notes, points]);
  const paths = axes.map(({ path }) => path);
  const outside = paths.filter((path) => !isWorkloadPath(path));
  const x = inRange(params["x"], axes.length, 0);
  const y = axes.length < 2 ? x : inRange(params["y"], axes.length, x === 0 ? 1 : 0);
  const upward = y === x && axes.length > 1 ? (x + 1) % axes.length : y;
  const at = axes.map(({ values }) => inRange(params["at"], values.length, 0));
  // What changes the profile is in no plan: such a point says what it is priced from.
  const hrefOfPoint = (point: SweepPoint, index: number): string => (outside.length > 0 ? hrefWith({ point: index + 1 }) : planHref(swept, point));
  const open = (point: SweepPoint): void => { location.hash = hrefOfPoint(point, points.indexOf(point)); };
  const heading = useRef<HTMLHeadingElement>(null);
  useArrival(params["point"] ?? null, () => heading.current);
  const number = Number(params["point"]);
  const chosen = points[number - 1];
  return (
    <>
      <p>
        Priced with profile <a href={hrefOf("curves", { profile: profileName, version: profileVersion })}>{profileName} version {profileVersion}</a>.{" "}
        {outside.length === 0 ? "A point opens in the Plan view." : `A point says what it is priced from: no plan holds ${outside.join(" and ")}, which no workload has.`}
      </p>
      <div class="row exports">
        <button type="button" onClick={() => saveFile("what-if.csv", "text/csv;charset=utf-8", sweepCsv(paths, points, request.extrapolate))}>Save as CSV</button>
        <CopyLink profile={profileName} version={profileVersion} />
      </div>
      {points.every(({ row }) => row?.best === undefined) && (
        <p class="note warning">
          No point has a plan. The first: {points[0]?.row?.reason}
          {!request.extrapolate && <>. <a href={hrefWith({ extrapolate: "1" })}>Estimate costs that were not measured</a></>}
        </p>
      )}
      <WarningList warnings={warnings} />
      {axes.length === 1 ? <LineChart axis={axes[0]!} points={points} onPick={open} /> : (
        <>
          <AxisChoice axes={axes} x={x} y={upward} at={at} />
          <Maps axes={axes} points={points} x={x} y={upward} at={at} onPick={open} />
        </>
      )}
      {chosen !== undefined && (
        <PointDetails
          number={number}
          point={chosen}
          paths={paths}
          outside={outside}
          source={{ profile: profileName, version: profileVersion }}
          plan={outside.some(isOfMachines) ? null : planHref(swept, chosen)}
          heading={heading}
        />
      )}
      <details open={params["sort"] !== undefined}>
        <summary>As a table</summary>
        <PointTable paths={paths} points={points} sort={params["sort"] ?? ""} hrefOfPoint={hrefOfPoint} />
      </details>
    </>
  );
}
