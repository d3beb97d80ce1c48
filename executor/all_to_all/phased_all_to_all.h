// Runs an all-to-all algorithm other than DIRECT, phase by phase, over a communicator's send/recv.
//
// Phases follow one another on the stream of the task; the first of PIPE, inside nodes, runs beside the other on a
// stream of its own, and the task's stream goes on when both are done. Blocks are sent from where they lie: nothing is
// packed.
//
// Irregular rows (counts that are read when the stream gets there): "sizes first, then data" holds for every algorithm.
// PIPE knows all it needs from the own counts. In the HIERs some ranks pass on what they neither sent nor get, so the
// ranks of a node gather their counts first: HIER_2D those of what they send, HIER_1D, whose leaders also scatter,
// those of what they receive, too (KnownBlocks). Transfers are then sized as the stream gets to each phase.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/communicator.h"
#include "executor/device.h"
#include "models/all_to_all/phases.h"
#include "models/cost/collective.h"
#include "models/workload/groups.h"

namespace moeplan::executor {

// What follows the task's name in the label of a phase that runs beside the others.
inline constexpr std::string_view kInsideNodes = " (inside nodes)";

// The communicators of the teams that a rank is in.
class AllToAllTeams {
 public:
  // Splits `group`, which is borrowed, is of `shape`, and where the own rank is `rank`. Collective; blocks.
  static StatusOr<AllToAllTeams> Make(Communicator& group, const GroupShape& shape, int rank);
  Communicator& operator[](Team team);

 private:
  Communicator* group_ = nullptr;
  std::unique_ptr<Communicator> node_, place_;
};

// What is exchanged; buffers are borrowed. `scratch` has ScratchBlocks (models/all_to_all/algorithm.h) times the bytes
// of the largest block that may come, and may serve whatever else runs on the same stream.
struct PhasedExchange {
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kHier2d;
  GroupShape group;
  int rank = 0;
  PeerRows send, recv;
  std::span<std::byte> scratch;
};

class PhasedAllToAll {
 public:
  // `device`, `teams` and the stream for the phase inside nodes of PIPE are borrowed. Allocates, and works out all that
  // does not depend on counts.
  static StatusOr<std::unique_ptr<PhasedAllToAll>> Prepare(const PhasedExchange& exchange, Device& device,
                                                           AllToAllTeams& teams, Stream& inside_nodes);
  virtual ~PhasedAllToAll() = default;

  // As Communicator::AllToAll, again and again. `task`: what work on the stream inside nodes belongs to; `stream` has
  // its label already.
  virtual void Enqueue(const std::string& task, Stream& stream) = 0;
};

}  // namespace moeplan::executor
