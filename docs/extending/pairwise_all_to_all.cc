// PAIRWISE: in step s, rank r sends to rank r + s and receives from rank r - s. No receiver ever has two senders, which
// on networks that lose packets under incast may be worth the waiting.
#include "examples.h"

namespace examples {
namespace {

moeplan::Status Allowed(const moeplan::GroupShape& group) {
  return group.size > 2 ? moeplan::OkStatus() : moeplan::Infeasible("needs a group of more than two ranks");
}

// Every step is among the ranks of the whole group, and the first is a copy to oneself.
std::vector<moeplan::Team> Phases(const moeplan::GroupShape& group) {
  return std::vector<moeplan::Team>(group.size, moeplan::Team::kGroup);
}

void ListStep(const moeplan::Exchange& exchange, int step, moeplan::PhaseList& list) {
  const int ranks = exchange.group.size;
  const int to = (exchange.rank + step) % ranks;
  list.SendBlock(/*peer=*/to, to);
  list.ReceiveBlock((exchange.rank + ranks - step) % ranks);
}

}  // namespace

moeplan::Status AddPairwise() {
  return moeplan::RegisterAllToAll({.name = "PAIRWISE", .allowed = Allowed, .phases = Phases, .messages = ListStep})
      .status();
}

}  // namespace examples
