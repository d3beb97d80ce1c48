// Point-to-point messages between the ranks of one group: the one thing a host transport has to provide.
//
// Messages between two ranks match by tag, signals in order. Buffers must live until the transfer was waited for, and
// transfers end before their mesh. Members call from one thread at a time each; Abort from any thread. Ranks in errors
// are those of the whole job.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::executor {

using Deadline = std::chrono::steady_clock::time_point;

class PendingTransfer {
 public:
  // Dropping a transfer that did not finish cancels it.
  virtual ~PendingTransfer() = default;
  // OK, kDeadlineExceeded, kPeerLost with the reason, or Mesh::failure.
  virtual Status Wait(Deadline deadline) = 0;
};

class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The peer's rank in the whole job, for messages.
  virtual int JobRank(int peer) const = 0;

  virtual StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) = 0;
  virtual StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) = 0;

  // Small messages that may overtake data, as long on both sides: receivers tell senders that they are ready.
  virtual StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer, std::span<std::byte> bytes) = 0;
  virtual StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer, std::span<const std::byte> bytes) = 0;

  // A mesh of its own over `members` (ascending, containing the own rank). Collective among them; blocks.
  virtual StatusOr<std::unique_ptr<Mesh>> SubMesh(const std::vector<int>& members, Deadline deadline) = 0;

  // Fails this mesh and those made from it, on every rank: transfers under way and later ones answer `why`.
  virtual void Abort(const Status& why) = 0;
  // What this mesh was aborted with, by whichever rank; OK before. From any thread.
  virtual Status failure() const = 0;
};

// Ranks as threads of this process; element i is for rank i.
std::vector<std::unique_ptr<Mesh>> MakeInProcessMeshes(int size);

}  // namespace moeplan::executor
