// The seam between the runtime and a network: collectives over one group of ranks, queued on streams.
//
// Every member queues the same operations in the same order. Buffers stay the caller's and must live until the stream
// has passed. A communicator is used by one stream at a time; for two at once, Split off another. Every operation has a
// deadline: when a peer misses it, or is lost, the operation fails the device with an error that names the rank, the
// task and the bytes, and the communicator is unusable from then on.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "executor/device.h"
#include "executor/rows.h"

namespace moeplan::executor {

// Rows for each peer. With fewer blocks than ranks, each block goes to that many consecutive ranks ("dump").
struct PeerRows {
  std::byte* data = nullptr;
  size_t row_bytes = 0;
  CellLayout cells;
};

struct Transfer {
  int peer = 0;
  std::span<std::byte> bytes;
};

struct Transfers {
  std::vector<Transfer> sends, recvs;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether plans may limit the CTAs of its collectives (Knobs::communication_ctas).
  virtual bool LimitsCtas() const { return false; }

  // Block i of `send` goes to rank i (see PeerRows) and block i of `recv` comes from it. Regular when neither has
  // counts; else both sides must agree on the counts, which are exchanged beforehand.
  virtual void AllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) = 0;
  // Whether an all-to-all can be queued in two halves, so that the rows of the next are on their way before those of
  // this one have arrived.
  virtual bool HasHalves() const { return false; }
  // Queues the first half of AllToAll on `stream`, which sends, and returns what queues the second on another stream,
  // which waits for the rows of the others and has to come after the first. All ranks begin the operations of a
  // communicator in the same order. Requires HasHalves.
  using SecondHalf = std::function<void(Stream& stream)>;
  virtual SecondHalf StartAllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream);
  // recv = the `send` of every rank in rank order; recv.size() = size() · send.size().
  virtual void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) = 0;
  // recv = the own part of the sum over ranks; send.size() = size() · recv.size(). Sums in float, in rank order.
  virtual void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                             Stream& stream) = 0;
  // recv = the sum over ranks, the same bits on all of them.
  virtual void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                         Stream& stream) = 0;
  // All transfers at once; transfers between the same two ranks match in order.
  virtual void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) = 0;
  // The same with transfers that are known only when the stream gets there: `list` is called then, once a run, may read
  // what earlier work of the stream has left to the host (Device::host_reads_memory, Copy), and fills lists that come
  // empty and keep their room from run to run. On a GPU's stream that means that the host waits for it.
  virtual void SendRecv(std::function<void(Transfers&)> list, Stream& stream) = 0;
  // Parm's SAA (§III-D) over this EP&ESP group: all-to-all of `send` into `partial`, the `shards` consecutive blocks of
  // each EP rank summed, and each sum gathered over `gather` (MP) as soon as its parts are in. `gathered` has
  // gather.size() equal parts. Regular rows alone.
  virtual void AllToAllAllGather(const PeerRows& send, const PeerRows& partial, int shards,
                                 std::span<std::byte> gathered, ElementType type, Communicator& gather,
                                 Stream& stream) = 0;
  virtual void Barrier(Stream& stream) = 0;

  // A communicator over the ranks of the same color, ordered by rank. Collective; blocks.
  virtual StatusOr<std::unique_ptr<Communicator>> Split(int color) = 0;
  // The same, of at most `ctas` CTAs for each collective of it and of what is split from it. kInvalidInput where
  // LimitsCtas is not.
  virtual StatusOr<std::unique_ptr<Communicator>> SplitLimited(int color, int ctas);
  // Tells the network of device memory that collectives will send from and receive into again and again, until the
  // handle goes, which it must before the memory and the communicator. Null: it does not care. Not while capturing.
  virtual std::shared_ptr<void> Register(std::span<std::byte> memory);
  // Makes running and later operations fail with `why`, those of communicators split from this one too. From any
  // thread.
  virtual void Abort(const Status& why) = 0;
};

}  // namespace moeplan::executor
