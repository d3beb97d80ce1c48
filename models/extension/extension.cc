#include "models/extension/extension.h"

namespace moeplan {

StatusOr<AllToAllAlgorithm> RegisterAllToAll(AllToAllDefinition algorithm) { return AddAllToAll(std::move(algorithm)); }

StatusOr<Codec> RegisterCodec(OwnCodec codec) {
  ASSIGN_OR_RETURN(const Codec added, AddCodec(std::move(codec)));
  AddKernelsOf(added);
  return added;
}

StatusOr<Family> RegisterSchedule(ScheduleDefinition schedule) { return AddSchedule(std::move(schedule)); }

StatusOr<ExpertKind> RegisterExpert(OwnExpert expert) {
  ASSIGN_OR_RETURN(const ExpertKind added, AddExpert(std::move(expert)));
  AddKernelsOf(added);
  return added;
}

}  // namespace moeplan
