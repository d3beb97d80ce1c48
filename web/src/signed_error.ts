// How far a run is from what was predicted of it. Pure.
import type { Run } from "../generated/moeplan/v1/planner_service";

/** (predicted − measured) / measured, as `moeplan validate` has it: above 0 where too much was predicted. */
export const signedError = (run: Run): number => (run.predictedTimeS - run.measuredTimeS) / run.measuredTimeS;
