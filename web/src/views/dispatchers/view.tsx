// Which dispatcher is the fastest for a layout, and from where on another one is.
import type { CompareDispatchersRequest, CompareDispatchersResponse } from "../../../generated/moeplan/v1/planner_service";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { ErrorNote } from "../../components/notes";
import { useProfileNames } from "../../components/profile_field";
import { AddressNote } from "../../job/address_note";
import { NoProfileHint } from "../../job/no_profile_hint";
import { useNamed } from "../../job/named";
import { namesModel } from "../../job/question";
import { Waiting } from "../../job/waiting";
import type { ViewProps } from "../../route";
import { Answer } from "./answer";
import { Form } from "./form";
import { requestOf } from "./question";
import "./view.css";

/** What is asked, and its answer: together, since the answer stays while the next one is awaited. */
interface Asked {
  request: CompareDispatchersRequest;
  answer: CompareDispatchersResponse;
}

export function DispatchersView({ params }: ViewProps) {
  const profiles = useProfileNames();
  const named = useNamed();
  const request = requestOf(params);
  // A profile that is stored meanwhile may answer what could not be answered before.
  const needsProfile = request !== null && request.hardware === "" && profiles.data?.length === 0;
  const asked = useLoaded<Asked>(request === null ? null : `${JSON.stringify(request)} ${needsProfile}`, async (signal) => ({
    request: request!,
    answer: await call<CompareDispatchersResponse>("PlannerService/CompareDispatchers", request, signal),
  }));
  const { data, error, loading } = asked;
  return (
    <>
      <p>Which dispatcher brings tokens to their experts the fastest, and when does that flip? One layout, with each dispatcher, along one axis.</p>
      <Form params={params} named={named.data} profiles={profiles.data ?? []} error={error} loading={loading} onAgain={asked.reload} />
      {!namesModel(params) && <p class="muted">The form holds an example. Compare answers it at once.</p>}
      {profiles.data?.length === 0 && <NoProfileHint />}
      {named.error !== null && named.data === null && <ErrorNote error={named.error} />}
      <AddressNote params={params} asks={request !== null} problem="its model, its layout or its network is not a JSON object, or no axis is named" />
      {error !== null && (data === null || error.code !== "UNREACHABLE") && <ErrorNote error={error} />}
      <Waiting asked={asked} doing="Comparing dispatchers …" />
      {data !== null && <Answer request={data.request} answer={data.answer} isOld={asked.isOld} />}
    </>
  );
}
