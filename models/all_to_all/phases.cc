#include "models/all_to_all/phases.h"

#include <utility>

#include "models/check.h"

namespace moeplan {
namespace {

// The places of blocks in the buffers of one rank, and the messages between it and others.
class PhaseBuilder {
 public:
  PhaseBuilder(const Exchange& exchange, PhaseList& list)
      : exchange_(exchange),
        per_node_(exchange.group.ranks_per_node),
        nodes_(exchange.group.size / per_node_),
        node_(exchange.rank / per_node_),
        place_(exchange.rank % per_node_),
        list_(list) {}

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
        Receive(RankAt(node_, place), offset, Bytes(RankAt(node_, place), RankAt(node, place_)));
      }
    });
  }

  void ExchangeAmongPlace() {
    size_t offset = 0;
    ForOtherNodes([&](int node) {
      const size_t bytes = BytesFromNode(node_, RankAt(node, place_));
      list_.SendScratch(RankAt(node, place_), offset, bytes);
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
          Receive(from, offset, Bytes(from, RankAt(node, there)));
        }
      }
    });
  }

  void ExchangeAmongLeaders() {
    size_t out = 0, in = 0;
    ForOtherNodes([&](int node) { in += BytesBetween(node_, node); });
    ForOtherNodes([&](int node) {
      const size_t sent = BytesBetween(node_, node), received = BytesBetween(node, node_);
      list_.SendScratch(RankAt(node, 0), out, sent);
      Receive(RankAt(node, 0), in, received);
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
        list_.SendScratch(RankAt(node_, place), offset, bytes);
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

  void SendBlock(int peer, int to) { list_.SendBlock(peer, to); }
  void ReceiveBlock(int from) { list_.ReceiveBlock(from); }
  // All blocks of a node for the own rank, from `peer`.
  void ReceiveNode(int node, int peer) { list_.ReceiveBlocks(peer, RankAt(node, 0), per_node_); }

  // Where the next one goes is behind this one.
  void Receive(int peer, size_t& offset, size_t bytes) {
    list_.ReceiveScratch(peer, offset, bytes);
    offset += bytes;
  }

  const Exchange& exchange_;
  const int per_node_, nodes_, node_, place_;
  PhaseList& list_;
};

}  // namespace

void PhaseList::Begin(const Exchange& exchange) {
  exchange_ = &exchange;
  sends_.clear();
  receives_.clear();
  sent_offsets_.clear();
  received_offsets_.clear();
  size_t sent = 0, received = 0;
  for (int rank = 0; rank < exchange.group.size; ++rank) {
    if (rank % exchange.dump == 0) {
      sent_offsets_.push_back(std::exchange(sent, sent + exchange.bytes(exchange.rank, rank)));
    }
    received_offsets_.push_back(std::exchange(received, received + exchange.bytes(rank, exchange.rank)));
  }
}

void PhaseList::SendBlock(int peer, int to) {
  MOEPLAN_CHECK(0 <= to && to < exchange_->group.size);
  sends_.push_back({peer, Place::kSend, sent_offsets_[to / exchange_->dump], exchange_->bytes(exchange_->rank, to)});
}

void PhaseList::ReceiveBlocks(int peer, int first, int ranks) {
  MOEPLAN_CHECK(0 <= first && ranks >= 1 && first + ranks <= exchange_->group.size);
  size_t bytes = 0;
  for (int rank = first; rank < first + ranks; ++rank) bytes += exchange_->bytes(rank, exchange_->rank);
  receives_.push_back({peer, Place::kReceive, received_offsets_[first], bytes});
}

void ListHier1d(const Exchange& exchange, int phase, PhaseList& list) {
  PhaseBuilder build(exchange, list);
  if (phase == 0) build.ExchangeInside();
  if (phase == 0) build.CollectAtLeader();
  if (phase == 1) build.ExchangeAmongLeaders();
  if (phase == 2) build.ScatterFromLeader();
}

void ListHier2d(const Exchange& exchange, int phase, PhaseList& list) {
  PhaseBuilder build(exchange, list);
  if (phase == 0) build.ExchangeInside();
  if (phase == 0) build.CollectForPlace();
  if (phase == 1) build.ExchangeAmongPlace();
}

void ListPipe(const Exchange& exchange, int phase, PhaseList& list) {
  PhaseBuilder build(exchange, list);
  if (phase == 0) build.ExchangeInside();
  if (phase == 1) build.ExchangeBetween();
}

}  // namespace moeplan
