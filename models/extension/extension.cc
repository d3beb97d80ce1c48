#include "models/extension/extension.h"

#include "models/cost/operation.h"
#include "models/registry.h"

namespace moeplan {

StatusOr<AllToAllAlgorithm> RegisterAllToAll(AllToAllDefinition algorithm) {
  const Registration registration;
  return AddAllToAll(std::move(algorithm));
}

StatusOr<Codec> RegisterCodec(OwnCodec codec) {
  const Registration registration;
  ASSIGN_OR_RETURN(const Codec added, AddCodec(std::move(codec)));
  AddKernelsOf(added);
  return added;
}

StatusOr<Family> RegisterSchedule(ScheduleDefinition schedule) {
  const Registration registration;
  return AddSchedule(std::move(schedule));
}

StatusOr<ExpertKind> RegisterExpert(OwnExpert expert) {
  const Registration registration;
  ASSIGN_OR_RETURN(const ExpertKind added, AddExpert(std::move(expert)));
  AddKernelsOf(added);
  return added;
}

}  // namespace moeplan
