// The all-to-all algorithms other than DIRECT: when one is something else than DIRECT, what it takes, and who sends
// what to whom.
//
// HIER_1D (HetuMoE, as ScheMoE §5 cites it) gathers at a leader of each node, leaders exchange, leaders scatter.
// HIER_2D (Tutel, DeepSpeed-MoE) exchanges inside nodes, then between ranks of the same place in their nodes. PIPE
// (ScheMoE §5) sends inside nodes and between nodes at the same time, on two streams. Their messages are in phases.h; a
// program may add algorithms of its own. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/all_to_all/phases.h"
#include "models/cost/collective.h"
#include "models/status.h"
#include "models/workload/groups.h"

namespace moeplan {

// Of which blocks `Exchange::bytes` may be asked when their sizes are known to their two ranks alone.
enum class KnownBlocks {
  kOwn,              // Those from and to the own rank.
  kSentByNode,       // And those that a rank of the own node sends.
  kSentOrGotByNode,  // And those that one gets.
  kAll,
};

// Its functions are pure, and called while planning and from the threads of streams.
struct AllToAllDefinition {
  std::string name;
  // OK, or kInfeasible with the reason: "needs ...", where it cannot run or coincides with DIRECT.
  std::function<Status(const GroupShape& group)> allowed;
  // The team of each phase, in order: with it the links that the phase uses.
  std::function<std::vector<Team>(const GroupShape& group)> phases;
  // Whether the first phase runs at the same time as the others, on a stream of its own and among another team than
  // theirs.
  bool first_beside_others = false;
  // Whether a rank has a part in a phase; either all ranks of a team have or none. Null: each has in every phase.
  std::function<bool(int phase, const GroupShape& group, int rank)> takes_part;
  // How many blocks (what one rank has for one other) a rank holds for others on their way; with blocks of different
  // sizes, at most this many times the largest. The first rank needs the most: memory is planned by it. Null: none.
  std::function<int(const GroupShape& group, int rank)> scratch_blocks;
  // What `messages` asks of: the sizes of rows that are counted are gathered accordingly beforehand.
  KnownBlocks known_blocks = KnownBlocks::kOwn;
  // The messages of a rank that takes part, in one phase.
  std::function<void(const Exchange& exchange, int phase, PhaseList& list)> messages;
};

// kInvalidInput for a name that is none or is taken, and where `allowed`, `phases` or `messages` is missing.
StatusOr<AllToAllAlgorithm> AddAllToAll(AllToAllDefinition algorithm);
// Of all but DIRECT.
const AllToAllDefinition& DefinitionOf(AllToAllAlgorithm algorithm);

// All but DIRECT.
inline std::vector<AllToAllAlgorithm> IndirectAlgorithms() { return AllFrom(AllToAllAlgorithm::kHier1d); }

// kInfeasible where an algorithm is not allowed. DIRECT always is.
Status AlgorithmAllowed(AllToAllAlgorithm algorithm, const GroupShape& group);
// As in the definition; none for DIRECT.
int ScratchBlocks(AllToAllAlgorithm algorithm, const GroupShape& group, int rank);
bool TakesPart(AllToAllAlgorithm algorithm, int phase, const GroupShape& group, int rank);
// Makes `list` that of the phase; empty for a rank that takes no part.
void ListPhase(AllToAllAlgorithm algorithm, const Exchange& exchange, int phase, PhaseList& list);

}  // namespace moeplan
