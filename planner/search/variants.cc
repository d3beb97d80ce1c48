#include "planner/search/variants.h"

#include "models/measurement/candidates.h"
#include "models/schedule/schedules.h"
#include "models/workload/codec.h"

namespace moeplan::planner {
namespace {

std::set<int, std::greater<>> LimitsOf(const Profile& profile) {
  std::set<int, std::greater<>> limits;
  for (const CollectiveModel& entry : profile.collectives) limits.insert(entry.key.ctas);
  limits.erase(0);
  return limits;
}

}  // namespace

bool HasCodec(const Knobs& knobs) {
  return knobs.dispatch_codec != Codec::kNone || knobs.combine_codec != Codec::kNone;
}

Variants::Variants(const Workload& workload, const Profile& profile)
    : workload_(workload), profile_(profile), limits_(LimitsOf(profile)) {}

Variants::OfFamily Variants::Of(Family family) const {
  OfFamily found;
  for (const Knobs& variant : VariantsOf(family, workload_.layout, profile_.cluster.gpus_per_node)) {
    if (variant.all_to_all == AllToAllAlgorithm::kDirect || Find(profile_, ExchangeKey(variant)) != nullptr) {
      found.tried.push_back(variant);
    } else {
      found.not_measured.push_back(Essential(ExchangeKey(variant)));
    }
    AddLimited(variant, found.tried);
  }
  return found;
}

void Variants::AddLimited(Knobs variant, std::vector<Knobs>& variants) const {
  if (ExchangeKey(variant).group.size == 1) return;
  for (const int ctas : limits_) {
    variant.communication_ctas = ctas;
    if (Find(profile_, ExchangeKey(variant)) != nullptr) variants.push_back(variant);
  }
}

std::vector<Knobs> Variants::Coded(const Knobs& variant) const {
  std::vector<Knobs> coded;
  for (const Knobs& knobs : WithCodecs(variant, workload_)) {
    if (HasCodec(knobs) && IsKnown(knobs.dispatch_codec, workload_.dispatch_codec) &&
        IsKnown(knobs.combine_codec, workload_.combine_codec)) {
      coded.push_back(knobs);
    }
  }
  return coded;
}

bool Variants::IsKnown(Codec codec, Codec named) const {
  if (codec == Codec::kNone || codec == named) return true;
  const auto measured = [&](Kernel kernel) {
    return Find(profile_, KeyOf(kernel, workload_.layer, workload_.layout)) != nullptr;
  };
  return measured(EncodeKernel(codec)) && measured(DecodeKernel(codec));
}

CollectiveKey Variants::ExchangeKey(const Knobs& knobs) const {
  CollectiveKey key = {.collective = Collective::kAllToAll,
                       .group = ExchangeShape(knobs.family, workload_.layout, profile_.cluster.gpus_per_node)};
  key.algorithm = knobs.all_to_all;
  key.bytes_per_element = workload_.layer.bytes_per_element;
  key.ctas = knobs.communication_ctas;
  return key;
}

}  // namespace moeplan::planner
