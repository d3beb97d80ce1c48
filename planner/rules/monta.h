// MoNTA's Algorithms 1–3: how to replace one all-to-all under tensor parallelism by drop + all-to-all + all-gather, and
// into how many chunks to cut it.
//
// One dispatch all-to-all of I = B·L·M·bpe bytes, without k·f, as the paper counts it. The printed algorithms have
// slips; design.md §4 and the source say how each is settled.
#pragma once

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"
#include "planner/rules/explained_rule.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// kNotFound when the profile lacks a collective that the rule needs: the keys and the command that would measure them.
// O2 and O3 are absent when one chunk is already below min_chunk_bytes, and, with a remark, when DEVICE_COPY was not
// measured. kCancelled: stopped before it had an answer. Adds to `notes` what had to be extrapolated, and to
// `explained`, which may be null, definitions and times. Requires a workload resolved against profile.cluster.
StatusOr<MontaAnswer> MontaRule(const Workload& workload, const Profile& profile, PriceNotes& notes,
                                ExplainedRule* explained = nullptr, const StopSignals& stop = {});

}  // namespace moeplan::planner
