#include "examples.h"

namespace examples {

moeplan::Status AddAll() {
  RETURN_IF_ERROR(AddPairwise());
  RETURN_IF_ERROR(AddFp4());
  RETURN_IF_ERROR(AddSquaredRelu());
  return AddShardGather();
}

}  // namespace examples

MOEPLAN_EXTENSION(examples::AddAll)
