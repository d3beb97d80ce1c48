#include "models/all_to_all/algorithm.h"

#include "models/check.h"
#include "models/registry.h"
#include "models/text.h"

namespace moeplan {
namespace {

Status NeedsTwoLevels(const GroupShape& group) {
  if (group.ranks_per_node > 1 && group.ranks_per_node < group.size) return OkStatus();
  return Infeasible("needs a group over several nodes with several ranks on each");
}

int BlocksAway(const GroupShape& group) { return group.size - group.ranks_per_node; }

// Stand in the order of AllToAllAlgorithm, DIRECT aside; registered ones, which alone carry their names, follow.
Registry<AllToAllDefinition>& Definitions() {
  static Registry<AllToAllDefinition> definitions({
      {.allowed = NeedsTwoLevels,
       .phases =
           [](const GroupShape&) {
             return std::vector{Team::kNode, Team::kPlace, Team::kNode};
           },
       .takes_part = [](int phase, const GroupShape& group,
                        int rank) { return phase != 1 || rank % group.ranks_per_node == 0; },
       .scratch_blocks =
           [](const GroupShape& group, int rank) {
             return rank % group.ranks_per_node == 0 ? 2 * BlocksAway(group) * group.ranks_per_node : 0;
           },
       .known_blocks = KnownBlocks::kSentOrGotByNode,
       .messages = ListHier1d},
      {.allowed = NeedsTwoLevels,
       .phases =
           [](const GroupShape&) {
             return std::vector{Team::kNode, Team::kPlace};
           },
       .scratch_blocks = [](const GroupShape& group, int) { return BlocksAway(group); },
       .known_blocks = KnownBlocks::kSentByNode,
       .messages = ListHier2d},
      {.allowed = NeedsTwoLevels,
       .phases =
           [](const GroupShape&) {
             return std::vector{Team::kNode, Team::kGroup};
           },
       .first_beside_others = true,
       .messages = ListPipe},
  });
  return definitions;
}

}  // namespace

StatusOr<AllToAllAlgorithm> AddAllToAll(AllToAllDefinition algorithm) {
  if (!algorithm.allowed || !algorithm.phases || !algorithm.messages) {
    return InvalidInput(
        StrCat("all-to-all ", algorithm.name, ": found no allowed, phases or messages, expected all three"));
  }
  ASSIGN_OR_RETURN(const auto added, AddOwnName<AllToAllAlgorithm>(algorithm.name, "all-to-all"));
  Definitions().Add(std::move(algorithm));
  return added;
}

const AllToAllDefinition& DefinitionOf(AllToAllAlgorithm algorithm) {
  MOEPLAN_CHECK(algorithm != AllToAllAlgorithm::kDirect);
  return Definitions().At(static_cast<size_t>(algorithm) - 1);
}

Status AlgorithmAllowed(AllToAllAlgorithm algorithm, const GroupShape& group) {
  if (algorithm == AllToAllAlgorithm::kDirect) return OkStatus();
  const Status allowed = DefinitionOf(algorithm).allowed(group);
  if (allowed.ok()) return allowed;
  return {allowed.code(), StrCat("allToAll: ", Name(algorithm), " ", allowed.message(), ", found ", group.size,
                                 " ranks, ", group.ranks_per_node, " a node")};
}

int ScratchBlocks(AllToAllAlgorithm algorithm, const GroupShape& group, int rank) {
  if (algorithm == AllToAllAlgorithm::kDirect) return 0;
  const auto& blocks = DefinitionOf(algorithm).scratch_blocks;
  return blocks ? blocks(group, rank) : 0;
}

bool TakesPart(AllToAllAlgorithm algorithm, int phase, const GroupShape& group, int rank) {
  const auto& takes_part = DefinitionOf(algorithm).takes_part;
  return !takes_part || takes_part(phase, group, rank);
}

void ListPhase(AllToAllAlgorithm algorithm, const Exchange& exchange, int phase, PhaseList& list) {
  list.Begin(exchange);
  if (TakesPart(algorithm, phase, exchange.group, exchange.rank))
    DefinitionOf(algorithm).messages(exchange, phase, list);
}

}  // namespace moeplan
