// The joint search: every schedule of a layer that this version can build, priced on its task graph and compared.
//
// The searched space is every allowed family with every variant, codec and chunk count of
// models/measurement/candidates.h (with codecs, chunk counts in powers of two). It is small, so it is enumerated whole,
// and the best is the best of it.
#pragma once

#include <stop_token>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan {

class LinkModel;

struct PlanOptions {
  int top = 0;                // How many candidates to return; 0: all that are listed.
  bool rules = true;          // Whether the papers' rules are asked, too.
  std::stop_token cancelled;  // Asked before each graph.
  // Foretells the layer's collectives (LayerCollectives) that the profile lacks, each then named in the warnings with
  // its interval; it was fitted to that profile. Null: they are missing. Borrowed.
  const LinkModel* links = nullptr;
};

// Resolves the workload, asks the rules, prices the candidates.
//
// Listed are, of each family and variant, the chunk counts in powers of two and the fastest one, best first; times
// within a billionth of the best's are ties, and ties go to the simpler family, then to the
// DIRECT all-to-all, then to fewer chunks, then to the gather that is not overlapped. On measured profiles (with
// intervals) the best is the simplest candidate within 3 % of the fastest, or within its interval if that is narrower
// (docs/decisions/0005): a gain that measurements cannot tell is none. What cannot be priced or does not fit
// cluster.device_memory_bytes is named in skipped_candidates; memory is asked first. search.time_floor_s is the
// smallest predicted time of all graphs priced, which is a bound because the space was enumerated whole; when cancelled
// it is 0, and what was priced until then is answered.
//
// kInvalidInput: the workload is wrong, or neither a rule nor a candidate could be answered (the message names what the
// first rule lacks). kCancelled: cancelled before anything was answered.
// Requires a validated profile. Pure: the same arguments give the same answer, unless cancelled.
StatusOr<PlanAnswer> PlanLayer(const Workload& workload, const Profile& profile, const PlanOptions& options = {});

}  // namespace moeplan
