// One collective over a mesh: the messages under way, and what an error says of it.
//
// Receives are posted first, then senders are told so, and only then is sent (mesh_communicator.h says why). Every rank
// of the mesh takes part in each operation. One thread at a time; errors name rank, task and bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/host/mesh.h"
#include "executor/host/parts.h"

namespace moeplan::executor {

Deadline DeadlineIn(double seconds);

// May be run again and again. `mesh` is borrowed. Operations of ranks that are about other `tokens` do not go together.
class MeshOperation {
 public:
  MeshOperation(Mesh& mesh, std::string task, const CallTokens& tokens = {})
      : mesh_(mesh), task_(std::move(task)), tokens_(tokens) {}

  // `sequence` counts the operations of the mesh, alike on all its ranks.
  void Begin(uint64_t sequence, Deadline deadline) {
    sequence_ = sequence;
    deadline_ = deadline;
  }
  // Cancels what a failure left under way.
  void End() {
    pending_.clear();
    signals_.clear();
  }

  Deadline deadline() const { return deadline_; }

  // All parts at once; those of the own rank match in order, the others by peer and index. Begun, all parts are under
  // way; AwaitAll ends it.
  Status Exchange(const std::vector<Part>& sends, const std::vector<Part>& receives);
  Status BeginExchange(const std::vector<Part>& sends, const std::vector<Part>& receives);
  // out = the sum over ranks of the part each has for this rank; `parts` are the own ones.
  Status SumOfParts(const std::vector<Part>& parts, std::span<std::byte> out, ElementType type,
                    std::vector<std::byte>& scratch);

  // ---- The steps of an exchange, for who does something between them.
  void CopyToSelf(const std::vector<Part>& sends, const std::vector<Part>& receives) const;
  // In step i a rank turns to the one whose number differs from its own in the bits of i, so that ranks pair up and
  // none is sent to by two at once. By rising distance, the ranks of a node would all begin with the same rank of
  // another node, whose network card would have to take what they send at once.
  Status PostReceives(const std::vector<Part>& parts) { return Post(parts, /*sends=*/false); }
  Status PostSends(const std::vector<Part>& parts) { return Post(parts, /*sends=*/true); }
  // Every rank has come this far, is about as many tokens, and sends what receives are posted for: `sends`, or `bytes`
  // to each. kInvalidInput, naming a rank, where they are about other tokens.
  Status SignalAll(const std::vector<Part>& sends);
  Status SignalAll(size_t bytes = 0);
  Status AwaitAll() { return AwaitAll(pending_); }
  Status AwaitFrom(int peer);
  Status SendPart(const Part& part);

 private:
  struct Pending {
    int peer;
    size_t bytes;
    bool receives = false;
    std::unique_ptr<PendingTransfer> transfer = nullptr;  // Null once done.
  };

  // A rank tells every other how many bytes it will send, and how many tokens they are about.
  struct Announcement {
    uint64_t bytes = 0;
    CallTokens tokens;
  };

  // Sends `announced_`.
  Status Signal();
  Status Post(const std::vector<Part>& parts, bool sends);
  Status Add(std::vector<Pending>& list, Pending pending, StatusOr<std::unique_ptr<PendingTransfer>> transfer);
  Status AwaitAll(std::vector<Pending>& list);
  Status Await(Pending& pending);
  // Posted, and not here yet.
  size_t BytesFrom(int peer) const;
  Status Explain(const Status& status, int peer, size_t bytes) const;
  uint64_t TagOf(const Part& part) const { return (sequence_ << 20) | part.index; }

  Mesh& mesh_;
  const std::string task_;
  const CallTokens tokens_;
  uint64_t sequence_ = 0;
  Deadline deadline_;
  std::vector<Announcement> announced_, heard_;  // To and from each rank of the mesh.
  std::vector<Pending> pending_, signals_;
  std::vector<Part> received_;
};

// A mesh of its own over the ranks of the same color, ordered by rank. `sequence` as above. Collective; blocks, at most
// twice `deadline_s`.
StatusOr<std::unique_ptr<Mesh>> SplitMesh(Mesh& mesh, int color, uint64_t sequence, double deadline_s);

}  // namespace moeplan::executor
