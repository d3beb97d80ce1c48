#include "planner/service/samples/sample_session.h"

#include "models/text.h"

namespace moeplan::service {

StatusOr<std::vector<Sample>> SampleSession::Resume() {
  std::vector<Sample> taken;
  StatusOr<std::vector<Calibration>> found = store_->SamplesOf({.calibration = session_});
  if (found.ok()) {
    taken = std::move(found->front().samples.samples);
  } else if (found.status().code() != StatusCode::kNotFound) {
    return found.status();
  }
  DropImpossible(taken);
  place_ = kept_ = static_cast<int>(taken.size());
  return taken;
}

// Those set aside are not among the samples taken, and some may have been pruned, so that a place is looked for.
StatusOr<std::string> SampleSession::NextRequestId() {
  for (;; ++place_) {
    std::string id = StrCat(session_, " sample ", place_);
    ASSIGN_OR_RETURN(const bool used, store_->HasBatch(id));
    if (!used) return id;
  }
}

Status SampleSession::Keep(const Cluster& cluster, const Sample& sample) {
  ASSIGN_OR_RETURN(const std::string request_id, NextRequestId());
  SampleBatch batch = {.request_id = request_id,
                       .calibration = session_,
                       .samples = {.name = profile_name_, .cluster = cluster, .samples = {sample}}};
  batch.rejected = Screen(batch.samples, may_name_agent_);
  RETURN_IF_ERROR(store_->AppendSamples({&batch, 1}).status());
  ++(batch.rejected.empty() ? kept_ : set_aside_);
  return OkStatus();
}

}  // namespace moeplan::service
