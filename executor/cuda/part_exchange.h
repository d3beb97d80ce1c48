// What moves bytes between the ranks of a group on their cards' streams: the one thing a transport of the cuda backend
// has to provide. Parts are device memory; they must live until the stream has passed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/host/parts.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

class PartExchange {
 public:
  virtual ~PartExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Queues all parts at once; parts between the same two ranks match in order, those of the own rank too. A part that
  // is sent to where it lies stays. Errors that show later stop the device. `task` names the operation in them.
  virtual Status Exchange(std::span<const Part> sends, std::span<const Part> receives, const std::string& task,
                          Stream& stream) = 0;
  // recv = the `send` of every rank in rank order.
  virtual Status AllGather(std::span<const std::byte> send, std::span<std::byte> recv, const std::string& task,
                           Stream& stream) = 0;
  // Whether what is queued can be part of a CUDA graph.
  virtual bool capturable() const = 0;

  // Whether Split limits CTAs.
  virtual bool limits_ctas() const { return false; }

  // Among the ranks of the same color, ordered by rank, each operation of at most `max_ctas` CTAs; 0: as here.
  // Collective; blocks.
  virtual StatusOr<std::unique_ptr<PartExchange>> Split(int color, int max_ctas) = 0;
  // Communicator::Register.
  virtual std::shared_ptr<void> Register(std::span<std::byte> /*memory*/) { return nullptr; }
  // Of this group and those split from it; from any thread, host functions of streams included.
  virtual void Abort(const Status& why) = 0;
};

// What an exchange has to move: no part without bytes, and none of the own rank that comes from where it goes. Pure.
// Requires that the own rank's parts match in order.
struct Moves {
  std::vector<Part> sends, receives;
};
Moves MovesOf(std::span<const Part> sends, std::span<const Part> receives, int rank);

}  // namespace moeplan::executor::cuda
