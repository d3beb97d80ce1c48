#include "executor/communicator.h"

#include "executor/errors.h"
#include "models/check.h"

namespace moeplan::executor {

StatusOr<std::unique_ptr<Communicator>> Communicator::SplitLimited(int /*color*/, int ctas) {
  return error::CannotLimitCtas(ctas);
}

Communicator::SecondHalf Communicator::StartAllToAll(const PeerRows&, const PeerRows&, Stream&) {
  MOEPLAN_CHECK(false && "only where HasHalves is");
  return {};
}

std::shared_ptr<void> Communicator::Register(std::span<std::byte> /*memory*/) { return nullptr; }

}  // namespace moeplan::executor
