// The models, the hardware and the training systems that the planner knows by name.
import type { ListNamedResponse } from "../../generated/moeplan/v1/planner_service";
import { call } from "../api/client";
import { useLoaded, type Loaded } from "../api/use_call";

export function useNamed(): Loaded<ListNamedResponse> {
  return useLoaded("named", (signal) => call<ListNamedResponse>("PlannerService/ListNamed", {}, signal));
}
