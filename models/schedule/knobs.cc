#include "models/schedule/knobs.h"

namespace moeplan {

std::string_view Name(Family family) {
  switch (family) {
    case Family::kBaseline: return "BASELINE";
    case Family::kBaselineTp: return "BASELINE_TP";
    case Family::kParmS1: return "PARM_S1";
    case Family::kParmS2: return "PARM_S2";
    case Family::kMontaO1: return "MONTA_O1";
    case Family::kMontaO2: return "MONTA_O2";
    case Family::kMontaO3: return "MONTA_O3";
    case Family::kPipeline: return "PIPELINE";
    case Family::kOncePerNode: return "ONCE_PER_NODE";
  }
  return OwnNames<Family>::NameOf(family);
}

}  // namespace moeplan
