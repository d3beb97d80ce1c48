#include "planner/service/handlers/rank_layouts.h"

#include <utility>

#include "models/text.h"
#include "planner/layout/lancet_rows.h"
#include "planner/layout/rank_layouts.h"
#include "planner/service/handlers/job_question.h"
#include "proto/convert/enums.h"
#include "proto/convert/layouts.h"
#include "proto/convert/step.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr int kUsualLayouts = 20, kMostLayouts = 1000;
constexpr int kMostUnderLancet = 100;  // A plan of a row's stages takes up to some tenths of a second.

StatusOr<LayoutRequest> RequestOf(const v1::RankLayoutsRequest& request) {
  const int most = request.lancet() ? kMostUnderLancet : kMostLayouts;
  if (request.top() < 0 || request.top() > most) {
    return moeplan::error::Mismatch("top", StrCat(request.top()),
                                    StrCat("1 to ", most, request.lancet() ? " with lancet" : ""));
  }
  LayoutRequest asked = {.gpus = GpusOf(request),
                         .global_batch = request.global_batch(),
                         .sequence_length = request.sequence_length(),
                         .zero_stage = request.has_zero_stage() ? request.zero_stage() : kUsualZeroStage,
                         .top = request.top() == 0 ? kUsualLayouts : request.top()};
  ASSIGN_OR_RETURN(asked.model, ModelOf(request));
  if (request.has_settings()) {
    if (request.has_zero_stage() || request.recompute() != v1::Recompute::NONE ||
        request.attention() != v1::AttentionKernel::FLASH) {
      return moeplan::error::Mismatch("settings", "zeroStage, recompute or attention beside it", "these in it alone");
    }
    RETURN_IF_ERROR(ReadSettings(request.settings(), "settings", asked));
    return asked;
  }
  ASSIGN_OR_RETURN(asked.recompute, EnumFromProto<Recompute>(request.recompute(), "recompute"));
  ASSIGN_OR_RETURN(asked.attention, EnumFromProto<AttentionKernel>(request.attention(), "attention"));
  return asked;
}

}  // namespace

StatusOr<v1::RankLayoutsResponse> RankLayouts(const Environment& environment, const v1::RankLayoutsRequest& request,
                                              std::stop_token cancelled) {
  ASSIGN_OR_RETURN(LayoutRequest asked, RequestOf(request));
  ASSIGN_OR_RETURN(const Profile profile, ProfileFor(environment.store, request, asked.model, asked.gpus));
  if (asked.gpus == 0) asked.gpus = Ranks(profile.cluster);
  ASSIGN_OR_RETURN(LayoutAnswer answer, planner::RankLayouts(asked, profile, {.cancelled = cancelled}));
  if (request.lancet()) {
    RETURN_IF_ERROR(planner::TryLancet(asked, profile, /*threads=*/1, answer, std::move(cancelled)));
  }
  v1::RankLayoutsResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  *response.mutable_result() = moeplan::ToProto(answer, asked);
  response.set_device_memory_bytes(profile.cluster.device_memory_bytes);
  return response;
}

}  // namespace moeplan::service
