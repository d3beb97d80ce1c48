// Which layout of a whole model over GPUs trains fastest, and what of their memory it takes.
import type { ImportModelResponse, RankLayoutsRequest, RankLayoutsResponse } from "../../../generated/moeplan/v1/planner_service";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { ErrorNote } from "../../components/notes";
import { NoProfiles, useProfileNames } from "../../components/profile_field";
import { useLinks } from "../../components/use_links";
import type { ViewProps } from "../../route";
import { versionOf, versionProblem } from "../../version";
import { Answer } from "./answer";
import { Form } from "./form";
import { requestOf } from "./request";
import "../../charts/shapes.css";
import "./view.css";

/** What is asked, and its answer: together, since the answer stays while the next one is awaited. */
interface Asked {
  request: RankLayoutsRequest;
  answer: RankLayoutsResponse;
}

export function LayoutsView({ params }: ViewProps) {
  const names = useProfileNames();
  const request = requestOf(params);
  const noProfiles = names.data?.length === 0;
  // A profile that is stored meanwhile may answer what could not be answered before.
  const asked = useLoaded<Asked>(request === null ? null : `${JSON.stringify(request)} ${noProfiles}`, async (signal) => ({
    request: request!,
    answer: await call<RankLayoutsResponse>("PlannerService/RankLayouts", request, signal),
  }));
  // What is asked of a model by its name says nothing of its layers.
  const pasted = asked.data?.request.model;
  const model = pasted === undefined ? null : JSON.stringify(pasted);
  const imported = useLoaded(model, (signal) => call<ImportModelResponse>("PlannerService/ImportModel", { model: asked.data!.request.model }, signal));
  const cluster = useLinks(asked.data?.answer).data?.cluster;

  if (noProfiles) return <NoProfiles />;
  const { data, error, loading, cancelled } = asked;
  return (
    <>
      <Form params={params} names={names.data ?? []} error={error} loading={loading} onAgain={asked.reload} />
      {versionOf(params["version"]) === null && <ErrorNote message={versionProblem(params["version"]!)} />}
      {names.error !== null && names.data === null && <ErrorNote error={names.error} />}
      {error !== null && (data === null || error.code !== "UNREACHABLE") && <ErrorNote error={error} />}
      <div class="row ranking">
        <p class="muted" role="status">
          {loading && "Ranking layouts …"}
          {cancelled && `Cancelled.${data === null ? "" : " What stands below was ranked before."}`}
        </p>
        {loading && <button type="button" onClick={asked.cancel}>Cancel</button>}
      </div>
      {data !== null && <Answer request={data.request} answer={data.answer} imported={imported.isOld ? null : imported.data} cluster={cluster} sort={params["sort"] ?? ""} chosen={params["layout"]} isOld={asked.isOld} />}
    </>
  );
}
