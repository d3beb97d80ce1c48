#include "executor/communicator.h"

#include "executor/errors.h"

namespace moeplan::executor {

StatusOr<std::unique_ptr<Communicator>> Communicator::SplitLimited(int /*color*/, int ctas) {
  return error::CannotLimitCtas(ctas);
}

std::shared_ptr<void> Communicator::Register(std::span<std::byte> /*memory*/) { return nullptr; }

}  // namespace moeplan::executor
