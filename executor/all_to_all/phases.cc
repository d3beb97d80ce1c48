#include "executor/all_to_all/phases.h"

#include <utility>

namespace moeplan {
namespace {

// The places of blocks in the buffers of one rank, and the messages between it and others.
class PhaseBuilder {
 public:
  PhaseBuilder(const Exchange& exchange, PhaseMessages& phase)
      : exchange_(exchange),
        per_node_(exchange.group.ranks_per_node),
        nodes_(exchange.group.size / per_node_),
        node_(exchange.rank / per_node_),
        place_(exchange.rank % per_node_),
        phase_(phase) {
    phase_.sends.clear();
    phase_.receives.clear();
    phase_.sent_offsets.clear();
    phase_.received_offsets.clear();
    size_t sent = 0, received = 0;
    for (int rank = 0; rank < exchange.group.size; ++rank) {
      if (rank % exchange.dump == 0) {
        phase_.sent_offsets.push_back(std::exchange(sent, sent + Bytes(exchange.rank, rank)));
      }
      phase_.received_offsets.push_back(std::exchange(received, received + Bytes(rank, exchange.rank)));
    }
  }

  // Blocks between the ranks of the own node.
  void ExchangeInside() {
    for (int place = 0; place < per_node_; ++place) {
      SendBlock(RankAt(node_, place), RankAt(node_, place));
      ReceiveBlock(RankAt(node_, place));
    }
  }

  void ExchangeBetween() {
    for (int rank = 0; rank < exchange_.group.size; ++rank) {
      if (rank / per_node_ == node_) continue;
      SendBlock(rank, rank);
      ReceiveBlock(rank);
    }
  }

  // ---- HIER_2D. Scratch holds what the own node has for the own place of others: [node][place it comes from].

  void CollectForPlace() {
    for (int place = 0; place < per_node_; ++place) {
      ForOtherNodes([&](int node) { SendBlock(RankAt(node_, place), RankAt(node, place)); });
    }
    size_t offset = 0;
    ForOtherNodes([&](int node) {
      for (int place = 0; place < per_node_; ++place) {
        Receive(RankAt(node_, place), Place::kScratch, offset, Bytes(RankAt(node_, place), RankAt(node, place_)));
      }
    });
  }

  void ExchangeAmongPlace() {
    size_t offset = 0;
    ForOtherNodes([&](int node) {
      const size_t bytes = BytesFromNode(node_, RankAt(node, place_));
      Send(RankAt(node, place_), Place::kScratch, offset, bytes);
      offset += bytes;
      ReceiveNode(node, RankAt(node, place_));
    });
  }

  // ---- HIER_1D. The leader's scratch holds first what its node has for others, [node][place there][place here], then
  // what others have for its node, [node][place here][place there].

  void CollectAtLeader() {
    ForOtherNodes([&](int node) {
      for (int place = 0; place < per_node_; ++place) SendBlock(RankAt(node_, 0), RankAt(node, place));
    });
    if (place_ != 0) return;
    size_t offset = 0;
    ForOtherNodes([&](int node) {
      for (int there = 0; there < per_node_; ++there) {
        for (int here = 0; here < per_node_; ++here) {
          const int from = RankAt(node_, here);
          Receive(from, Place::kScratch, offset, Bytes(from, RankAt(node, there)));
        }
      }
    });
  }

  void ExchangeAmongLeaders() {
    size_t out = 0, in = 0;
    ForOtherNodes([&](int node) { in += BytesBetween(node_, node); });
    ForOtherNodes([&](int node) {
      const size_t sent = BytesBetween(node_, node), received = BytesBetween(node, node_);
      Send(RankAt(node, 0), Place::kScratch, out, sent);
      Receive(RankAt(node, 0), Place::kScratch, in, received);
      out += sent;
    });
  }

  void ScatterFromLeader() {
    ForOtherNodes([&](int node) { ReceiveNode(node, RankAt(node_, 0)); });
    if (place_ != 0) return;
    size_t offset = 0;
    ForOtherNodes([&](int node) { offset += BytesBetween(node_, node); });
    ForOtherNodes([&](int node) {
      for (int place = 0; place < per_node_; ++place) {
        const size_t bytes = BytesFromNode(node, RankAt(node_, place));
        Send(RankAt(node_, place), Place::kScratch, offset, bytes);
        offset += bytes;
      }
    });
  }

 private:
  int RankAt(int node, int place) const { return node * per_node_ + place; }
  size_t Bytes(int from, int to) const { return exchange_.bytes(from, to); }

  size_t BytesFromNode(int node, int to) const {
    size_t bytes = 0;
    for (int place = 0; place < per_node_; ++place) bytes += Bytes(RankAt(node, place), to);
    return bytes;
  }

  size_t BytesBetween(int from_node, int to_node) const {
    size_t bytes = 0;
    for (int place = 0; place < per_node_; ++place) bytes += BytesFromNode(from_node, RankAt(to_node, place));
    return bytes;
  }

  template <typename Visit>
  void ForOtherNodes(Visit visit) const {
    for (int node = 0; node < nodes_; ++node) {
      if (node != node_) visit(node);
    }
  }

  // The own block for `to`, sent to `peer`, which may pass it on.
  void SendBlock(int peer, int to) {
    Send(peer, Place::kSend, phase_.sent_offsets[to / exchange_.dump], Bytes(exchange_.rank, to));
  }

  void ReceiveBlock(int from) {
    phase_.receives.push_back({from, Place::kReceive, phase_.received_offsets[from], Bytes(from, exchange_.rank)});
  }

  // All blocks of a node for the own rank, from `peer`.
  void ReceiveNode(int node, int peer) {
    phase_.receives.push_back(
        {peer, Place::kReceive, phase_.received_offsets[RankAt(node, 0)], BytesFromNode(node, exchange_.rank)});
  }

  void Send(int peer, Place place, size_t offset, size_t bytes) {
    phase_.sends.push_back({peer, place, offset, bytes});
  }

  // Where the next one goes is behind this one.
  void Receive(int peer, Place place, size_t& offset, size_t bytes) {
    phase_.receives.push_back({peer, place, offset, bytes});
    offset += bytes;
  }

  const Exchange& exchange_;
  const int per_node_, nodes_, node_, place_;
  PhaseMessages& phase_;
};

}  // namespace

std::span<const Team> TeamsOf(AllToAllAlgorithm algorithm) {
  static constexpr Team kByLeaders[] = {Team::kNode, Team::kPlace, Team::kNode};
  static constexpr Team kByPlaces[] = {Team::kNode, Team::kPlace};
  static constexpr Team kAtOnce[] = {Team::kNode, Team::kGroup};
  switch (algorithm) {
    case AllToAllAlgorithm::kDirect: return {};
    case AllToAllAlgorithm::kHier1d: return kByLeaders;
    case AllToAllAlgorithm::kHier2d: return kByPlaces;
    case AllToAllAlgorithm::kPipe: return kAtOnce;
  }
  return {};
}

bool AtOnce(AllToAllAlgorithm algorithm) { return algorithm == AllToAllAlgorithm::kPipe; }

bool TakesPart(AllToAllAlgorithm algorithm, int phase, const GroupShape& group, int rank) {
  return algorithm != AllToAllAlgorithm::kHier1d || phase != 1 || rank % group.ranks_per_node == 0;
}

PhaseMessages PhaseOf(const Exchange& exchange, int phase) {
  PhaseMessages messages;
  ListPhase(exchange, phase, messages);
  return messages;
}

void ListPhase(const Exchange& exchange, int phase, PhaseMessages& messages) {
  PhaseBuilder build(exchange, messages);
  if (!TakesPart(exchange.algorithm, phase, exchange.group, exchange.rank)) return;
  const bool leaders = exchange.algorithm == AllToAllAlgorithm::kHier1d;
  const bool places = exchange.algorithm == AllToAllAlgorithm::kHier2d;
  if (phase == 0) build.ExchangeInside();
  if (phase == 0 && leaders) build.CollectAtLeader();
  if (phase == 1 && leaders) build.ExchangeAmongLeaders();
  if (phase == 2 && leaders) build.ScatterFromLeader();
  if (phase == 0 && places) build.CollectForPlace();
  if (phase == 1 && places) build.ExchangeAmongPlace();
  if (phase == 1 && AtOnce(exchange.algorithm)) build.ExchangeBetween();
}

}  // namespace moeplan
