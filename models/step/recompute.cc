#include "models/step/recompute.h"

namespace moeplan {

std::string_view Name(RecomputeModule module) {
  switch (module) {
    case RecomputeModule::kCoreAttention: return "CORE_ATTN";
    case RecomputeModule::kMlaUpProj: return "MLA_UP_PROJ";
    case RecomputeModule::kLayerNorm: return "LAYERNORM";
    case RecomputeModule::kMoeAct: return "MOE_ACT";
    case RecomputeModule::kMlp: return "MLP";
    case RecomputeModule::kSharedExperts: return "SHARED_EXPERTS";
    case RecomputeModule::kMoe: return "MOE";
  }
  return "?";
}

}  // namespace moeplan
