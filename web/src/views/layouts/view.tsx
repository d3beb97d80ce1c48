// Which layout of a whole model over GPUs trains fastest, and what of their memory it takes.
import type { ImportModelResponse, RankLayoutsRequest, RankLayoutsResponse } from "../../../generated/moeplan/v1/planner_service";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { ErrorNote } from "../../components/notes";
import { useProfileNames } from "../../components/profile_field";
import { useLinks } from "../../components/use_links";
import { AddressNote } from "../../job/address_note";
import { NoProfileHint } from "../../job/no_profile_hint";
import { useNamed } from "../../job/named";
import { namesModel } from "../../job/question";
import type { ViewProps } from "../../route";
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
  const profiles = useProfileNames();
  const named = useNamed();
  const request = requestOf(params);
  // A profile that is stored meanwhile may answer what could not be answered before.
  const needsProfile = request !== null && request.hardware === "" && profiles.data?.length === 0;
  const asked = useLoaded<Asked>(request === null ? null : `${JSON.stringify(request)} ${needsProfile}`, async (signal) => ({
    request: request!,
    answer: await call<RankLayoutsResponse>("PlannerService/RankLayouts", request, signal),
  }));
  // What is asked of a model by its name says nothing of its layers.
  const pasted = asked.data?.request.model;
  const model = pasted === undefined ? null : JSON.stringify(pasted);
  const imported = useLoaded(model, (signal) => call<ImportModelResponse>("PlannerService/ImportModel", { model: asked.data!.request.model }, signal));
  // Version 0 is of no stored profile.
  const cluster = useLinks((asked.data?.answer.profileVersion ?? 0) > 0 ? asked.data!.answer : null).data?.cluster;

  const { data, error, loading, cancelled } = asked;
  return (
    <>
      <Form params={params} named={named.data} profiles={profiles.data ?? []} error={error} loading={loading} onAgain={asked.reload} />
      {!namesModel(params) && <p class="muted">The form holds an example, which Rank layouts answers.</p>}
      {profiles.data?.length === 0 && <NoProfileHint />}
      {profiles.error !== null && profiles.data === null && <ErrorNote error={profiles.error} />}
      {named.error !== null && named.data === null && <ErrorNote error={named.error} />}
      <AddressNote params={params} asks={request !== null} problem="its model or its network is not a JSON object" />
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
