#include "executor/host/mesh_communicator.h"

#include <cstring>
#include <list>

#include "executor/errors.h"
#include "executor/host/host_stream.h"
#include "executor/host/parts.h"
#include "models/check.h"

namespace moeplan {
namespace {

class MeshCommunicator final : public Communicator {
 public:
  MeshCommunicator(std::unique_ptr<Mesh> mesh, double deadline_s) : mesh_(std::move(mesh)), deadline_s_(deadline_s) {}

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }

  void AllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) override {
    Queue(stream,
          [=, this](Operation& operation) { return operation.Exchange(PartsOf(send, size()), PartsOf(recv, size())); });
  }

  void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) override {
    MOEPLAN_CHECK(recv.size() == send.size() * size());
    Queue(stream, [=, this](Operation& operation) {
      return operation.Exchange(SameToAll(Writable(send), size()), EqualParts(recv, size()));
    });
  }

  void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                     Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size() * size());
    Queue(stream, [=, this](Operation& operation) {
      return operation.SumOfParts(EqualParts(Writable(send), size()), recv, type, scratch_);
    });
  }

  void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                 Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size());
    Queue(stream, [=, this](Operation& operation) -> Status {
      const std::vector<Part> own_parts = ElementParts(Writable(send), type, size());
      const std::vector<Part> sums = ElementParts(recv, type, size());
      RETURN_IF_ERROR(operation.SumOfParts(own_parts, sums[rank()].bytes, type, scratch_));
      return operation.Exchange(SameToAll(sums[rank()].bytes, size()), sums);
    });
  }

  void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) override {
    Queue(stream, [sends = PartsOf(sends, size()), recvs = PartsOf(recvs, size())](Operation& operation) {
      return operation.Exchange(sends, recvs);
    });
  }

  void SendRecv(std::function<Transfers()> transfers, Stream& stream) override {
    Queue(stream, [this, transfers = std::move(transfers)](Operation& operation) {
      const Transfers now = transfers();
      return operation.Exchange(PartsOf(now.sends, size()), PartsOf(now.recvs, size()));
    });
  }

  void AllToAllAllGather(const PeerRows& send, const PeerRows& partial, int shards, std::span<std::byte> gathered,
                         ElementType type, Communicator& gather, Stream& stream) override {
    auto& gathering = static_cast<MeshCommunicator&>(gather);
    Queue(stream, [=, this, &gathering](Operation& exchange) {
      Operation gather_operation(*gathering.mesh_, gathering.sequence_++, exchange.task(), exchange.deadline());
      return OverlapGather({exchange, PartsOf(send, size()), PartsOf(partial, size()), shards},
                           {gather_operation, EqualParts(gathered, gathering.size()), gathering.rank()}, type);
    });
  }

  void Barrier(Stream& stream) override {
    Queue(stream, [](Operation& operation) { return operation.SignalAll(); });
  }

  StatusOr<std::unique_ptr<Communicator>> Split(int color) override {
    std::vector<int> colors(size());
    Operation operation(*mesh_, sequence_++, "split", DeadlineFromNow());
    const auto bytes = std::as_writable_bytes(std::span(colors));
    colors[rank()] = color;
    const auto own_color = bytes.subspan(rank() * sizeof(int), sizeof(int));
    RETURN_IF_ERROR(operation.Exchange(SameToAll(own_color, size()), EqualParts(bytes, size())));
    std::vector<int> members;
    for (int peer = 0; peer < size(); ++peer) {
      if (colors[peer] == color) members.push_back(peer);
    }
    StatusOr<std::unique_ptr<Mesh>> sub_mesh = mesh_->SubMesh(members, DeadlineFromNow());
    if (!sub_mesh.ok()) return sub_mesh.status().Within("task split");
    return MakeMeshCommunicator(*std::move(sub_mesh), deadline_s_);
  }

  void Abort(const Status& why) override { mesh_->Abort(why); }

 private:
  // One collective under way: its messages, and what an error says of it.
  class Operation {
   public:
    // `sequence` counts the operations of the communicator, alike on all its ranks.
    Operation(Mesh& mesh, uint64_t sequence, std::string task, Deadline deadline)
        : mesh_(mesh), sequence_(sequence), task_(std::move(task)), deadline_(deadline) {}

    const std::string& task() const { return task_; }
    Deadline deadline() const { return deadline_; }

    Status Exchange(const std::vector<Part>& sends, const std::vector<Part>& receives) {
      CopyToSelf(sends, receives);
      RETURN_IF_ERROR(PostReceives(receives));
      RETURN_IF_ERROR(SignalAll());
      RETURN_IF_ERROR(PostSends(sends));
      return AwaitAll();
    }

    // out = the sum over ranks of the part each has for this rank; `parts` are the own ones.
    Status SumOfParts(const std::vector<Part>& parts, std::span<std::byte> out, ElementType type,
                      std::vector<std::byte>& scratch) {
      const int size = mesh_.size();
      scratch.resize(out.size() * size);
      const std::vector<Part> received = EqualParts(scratch, size);
      RETURN_IF_ERROR(Exchange(parts, received));
      SumParts(received, out, type);
      return OkStatus();
    }

    void CopyToSelf(const std::vector<Part>& sends, const std::vector<Part>& receives) {
      auto receive = receives.begin();
      for (const Part& send : sends) {
        if (send.peer != mesh_.rank()) continue;
        while (receive->peer != mesh_.rank()) ++receive;
        const bool in_place = receive->bytes.data() == send.bytes.data();
        if (!in_place && !send.bytes.empty()) std::memcpy(receive->bytes.data(), send.bytes.data(), send.bytes.size());
        ++receive;
      }
    }

    // Peers are taken in turn, starting behind the own rank, so that not everybody talks to rank 0 first.
    Status PostReceives(const std::vector<Part>& parts) { return Post(parts, /*sends=*/false); }
    Status PostSends(const std::vector<Part>& parts) { return Post(parts, /*sends=*/true); }

    Status SignalAll() {
      Operation signals(mesh_, sequence_, task_, deadline_);
      for (int i = 1; i < mesh_.size(); ++i) {
        const int peer = (mesh_.rank() + i) % mesh_.size();
        RETURN_IF_ERROR(signals.Add(peer, BytesFrom(peer), mesh_.ReceiveSignal(peer)));
        RETURN_IF_ERROR(signals.Add(peer, BytesFrom(peer), mesh_.SendSignal(peer)));
      }
      return signals.AwaitAll();
    }

    Status AwaitAll() {
      for (Pending& pending : pending_) RETURN_IF_ERROR(Await(pending));
      pending_.clear();
      return OkStatus();
    }

    // Posted, and not here yet.
    size_t BytesFrom(int peer) const {
      size_t bytes = 0;
      for (const Pending& pending : pending_) bytes += pending.peer == peer && pending.receives ? pending.bytes : 0;
      return bytes;
    }

    Status AwaitFrom(int peer) {
      for (Pending& pending : pending_) {
        if (pending.peer == peer && pending.receives) RETURN_IF_ERROR(Await(pending));
      }
      return OkStatus();
    }

    Status SendPart(const Part& part) {
      if (part.bytes.empty() || part.peer == mesh_.rank()) return OkStatus();
      return Add(part.peer, part.bytes.size(), mesh_.Send(part.peer, TagOf(part), part.bytes));
    }

   private:
    struct Pending {
      int peer;
      size_t bytes;
      bool receives;
      std::unique_ptr<PendingTransfer> transfer;  // Null once done.
    };

    Status Post(const std::vector<Part>& parts, bool sends) {
      for (int i = 1; i < mesh_.size(); ++i) {
        const int peer = (mesh_.rank() + (sends ? i : mesh_.size() - i)) % mesh_.size();
        for (const Part& part : parts) {
          if (part.peer != peer || part.bytes.empty()) continue;
          if (sends) {
            RETURN_IF_ERROR(SendPart(part));
          } else {
            RETURN_IF_ERROR(
                Add(peer, part.bytes.size(), mesh_.Receive(peer, TagOf(part), part.bytes), /*receives=*/true));
          }
        }
      }
      return OkStatus();
    }

    Status Add(int peer, size_t bytes, StatusOr<std::unique_ptr<PendingTransfer>> transfer, bool receives = false) {
      if (!transfer.ok()) return Explain(transfer.status(), peer, bytes);
      pending_.push_back({peer, bytes, receives, *std::move(transfer)});
      return OkStatus();
    }

    Status Await(Pending& pending) {
      if (pending.transfer == nullptr) return OkStatus();
      const Status status = pending.transfer->Wait(deadline_);
      if (!status.ok()) return Explain(status, pending.peer, pending.bytes);
      pending.transfer = nullptr;
      return OkStatus();
    }

    Status Explain(const Status& status, int peer, size_t bytes) const {
      const int job_rank = mesh_.JobRank(peer);
      // An abort says itself what went wrong, wherever that was.
      if (status == mesh_.failure()) return status.Within(StrCat("task ", task_));
      switch (status.code()) {
        case StatusCode::kDeadlineExceeded: return error::MissedDeadline(job_rank, task_, static_cast<double>(bytes));
        case StatusCode::kPeerLost:
          return error::LostPeer(job_rank, task_, static_cast<double>(bytes), status.message());
        default: return status.Within(StrCat("task ", task_));
      }
    }

    uint64_t TagOf(const Part& part) const { return (sequence_ << 20) | part.index; }

    Mesh& mesh_;
    uint64_t sequence_;
    std::string task_;
    Deadline deadline_;
    std::list<Pending> pending_;
  };

  struct ShardedExchange {
    Operation& operation;
    std::vector<Part> sends, partials;
    int shards;
  };
  struct Gathering {
    Operation& operation;
    std::vector<Part> wholes;  // By gathering rank.
    int rank;
  };

  // The sum of each EP rank's shards starts its way to the MP peers when its last part is in, while the next ones still
  // arrive. Own EP rank first: its parts are the nearest.
  Status OverlapGather(ShardedExchange exchange, Gathering gathering, ElementType type) {
    const int expert_ranks = size() / exchange.shards;
    std::vector<Part> gather_receives, own_sums;
    for (const Part& whole : gathering.wholes) {
      for (const Part& part : EqualParts(whole.bytes, expert_ranks)) {
        auto& parts = whole.peer == gathering.rank ? own_sums : gather_receives;
        parts.push_back({whole.peer, part.bytes, /*index=*/part.peer});
      }
    }
    exchange.operation.CopyToSelf(exchange.sends, exchange.partials);
    RETURN_IF_ERROR(exchange.operation.PostReceives(exchange.partials));
    RETURN_IF_ERROR(gathering.operation.PostReceives(gather_receives));
    RETURN_IF_ERROR(exchange.operation.SignalAll());
    RETURN_IF_ERROR(gathering.operation.SignalAll());
    RETURN_IF_ERROR(exchange.operation.PostSends(exchange.sends));
    for (int i = 0; i < expert_ranks; ++i) {
      const int expert_rank = (rank() / exchange.shards + i) % expert_ranks;
      const int first = expert_rank * exchange.shards;
      for (int shard = 0; shard < exchange.shards; ++shard)
        RETURN_IF_ERROR(exchange.operation.AwaitFrom(first + shard));
      Part sum = own_sums[expert_rank];
      SumParts(std::span(exchange.partials).subspan(first, exchange.shards), sum.bytes, type);
      for (sum.peer = 0; sum.peer < static_cast<int>(gathering.wholes.size()); ++sum.peer) {
        RETURN_IF_ERROR(gathering.operation.SendPart(sum));
      }
    }
    RETURN_IF_ERROR(exchange.operation.AwaitAll());
    return gathering.operation.AwaitAll();
  }

  Deadline DeadlineFromNow() const {
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(deadline_s_));
  }

  template <typename Body>
  void Queue(Stream& stream, Body body) {
    HostStream& host_stream = HostStream::Of(stream);
    host_stream.Enqueue([this, body = std::move(body), task = host_stream.label()]() -> Status {
      Operation operation(*mesh_, sequence_++, task, DeadlineFromNow());
      return body(operation);
    });
  }

  std::unique_ptr<Mesh> mesh_;
  double deadline_s_;
  uint64_t sequence_ = 0;  // Of the stream that uses this communicator.
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Communicator> MakeMeshCommunicator(std::unique_ptr<Mesh> mesh, double deadline_s) {
  return std::make_unique<MeshCommunicator>(std::move(mesh), deadline_s);
}

}  // namespace moeplan
