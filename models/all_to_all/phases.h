// Who sends what to whom in each phase of an all-to-all algorithm other than DIRECT: pure functions, so that every
// shape of group can be tried without a network.
//
// A group of P ranks lies on nodes of g consecutive ranks; rank r has place r mod g in node r div g. Rank r has one
// block for each rank, side by side in its send buffer, and gets one from each rank, side by side in its receive
// buffer. A buffer with fewer blocks than ranks sends each block to that many consecutive ranks ("dump").
//
// Blocks for the own node go straight to their receivers in the first phase. Of the others,
//   HIER_1D  0. inside nodes: all blocks to the leader (place 0);  1. between leaders: one message from node to node;
//            2. inside nodes: each rank's blocks from the leader, one message for each node they come from.
//   HIER_2D  0. inside nodes: the blocks for place p of any node to place p;  1. between the ranks of one place: one
//            message from node to node.
//   PIPE     0. inside nodes and 1. between nodes, at the same time; nothing on its way anywhere else.
// So from one node to another g · g messages of DIRECT and PIPE become 1 (HIER_1D) or g (HIER_2D), as large together.
//
// Messages between two ranks in one phase match in order. Within a phase nothing that is received is sent.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "models/workload/groups.h"

namespace moeplan {

enum class Place { kSend, kReceive, kScratch };

struct Message {
  int peer = 0;  // Within the group; possibly the own rank.
  Place place = Place::kSend;
  size_t offset = 0, bytes = 0;
};

struct Exchange {
  GroupShape group;
  int rank = 0;
  int dump = 1;  // How many consecutive ranks get the same block.
  // The size of the block that `from` has for `to`. May be asked of what KnownBlocks (algorithm.h) says: by PIPE of
  // blocks from and to the own rank; by HIER_2D also of those from the own node to the own place of any node; by the
  // leaders of HIER_1D of all from or to the own node.
  std::function<size_t(int from, int to)> bytes;
};

// The messages of one rank in one phase, in the order of their making. Used again, it keeps its room.
class PhaseList {
 public:
  // Empties it, and finds the blocks of `exchange`'s rank in its buffers. `exchange` is borrowed until the next.
  void Begin(const Exchange& exchange);

  // The own block for `to`, to `peer`, which may pass it on.
  void SendBlock(int peer, int to);
  // What `from` has for the own rank, from itself; and what `ranks` ranks from `first` on have for it, from `peer`.
  void ReceiveBlock(int from) { ReceiveBlocks(from, from, 1); }
  void ReceiveBlocks(int peer, int first, int ranks);
  // What is on its way to somebody else.
  void SendScratch(int peer, size_t offset, size_t bytes) { sends_.push_back({peer, Place::kScratch, offset, bytes}); }
  void ReceiveScratch(int peer, size_t offset, size_t bytes) {
    receives_.push_back({peer, Place::kScratch, offset, bytes});
  }

  const std::vector<Message>& sends() const { return sends_; }
  const std::vector<Message>& receives() const { return receives_; }

 private:
  const Exchange* exchange_ = nullptr;
  std::vector<Message> sends_, receives_;
  std::vector<size_t> sent_offsets_, received_offsets_;  // Of the own blocks.
};

// Of the built-in algorithms. Offsets within kScratch stay below their scratch_blocks times the largest block.
void ListHier1d(const Exchange& exchange, int phase, PhaseList& list);
void ListHier2d(const Exchange& exchange, int phase, PhaseList& list);
void ListPipe(const Exchange& exchange, int phase, PhaseList& list);

}  // namespace moeplan
