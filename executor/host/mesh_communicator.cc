#include "executor/host/mesh_communicator.h"

#include <cstring>

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
    Queue(stream, [sends = RowParts(send, size()), receives = RowParts(recv, size())](Operation& operation) mutable {
      return operation.Exchange(sends.Now(), receives.Now());
    });
  }

  void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) override {
    MOEPLAN_CHECK(recv.size() == send.size() * size());
    Queue(stream, [sends = SameToAll(Writable(send), size()), receives = EqualParts(recv, size())](
                      Operation& operation) { return operation.Exchange(sends, receives); });
  }

  void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                     Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size() * size());
    Queue(stream, [=, this, parts = EqualParts(Writable(send), size())](Operation& operation) {
      return operation.SumOfParts(parts, recv, type, scratch_);
    });
  }

  void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                 Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size());
    const std::vector<Part> sums = ElementParts(recv, type, size());
    Queue(stream,
          [type, this, sums, own_sum = sums[rank()].bytes, to_all = SameToAll(sums[rank()].bytes, size()),
           own_parts = ElementParts(Writable(send), type, size())](Operation& operation) -> Status {
            RETURN_IF_ERROR(operation.SumOfParts(own_parts, own_sum, type, scratch_));
            return operation.Exchange(to_all, sums);
          });
  }

  void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) override {
    Queue(stream, [sends = PartsOf(sends), recvs = PartsOf(recvs)](Operation& operation) {
      return operation.Exchange(sends, recvs);
    });
  }

  void SendRecv(std::function<void(Transfers&)> list, Stream& stream) override {
    Queue(stream, [list = std::move(list), now = Transfers(), sends = std::vector<Part>(),
                   recvs = std::vector<Part>()](Operation& operation) mutable {
      now.sends.clear();
      now.recvs.clear();
      list(now);
      ListParts(now.sends, sends);
      ListParts(now.recvs, recvs);
      return operation.Exchange(sends, recvs);
    });
  }

  void AllToAllAllGather(const PeerRows& send, const PeerRows& partial, int shards, std::span<std::byte> gathered,
                         ElementType type, Communicator& gather, Stream& stream) override {
    auto& gathering = static_cast<MeshCommunicator&>(gather);
    const ShardedExchange exchange = {PartsOf(send, size()), PartsOf(partial, size()), shards};
    const Gathering gathered_parts = GatheringOf(EqualParts(gathered, gathering.size()), gathering.rank(),
                                                 /*expert_ranks=*/size() / shards);
    const auto gather_operation = std::make_shared<Operation>(*gathering.mesh_, HostStream::Of(stream).label());
    Queue(stream, [=, this, &gathering](Operation& operation) {
      gather_operation->Begin(gathering.sequence_++, operation.deadline());
      const Status status = OverlapGather(operation, exchange, *gather_operation, gathered_parts, type);
      gather_operation->End();
      return status;
    });
  }

  void Barrier(Stream& stream) override {
    Queue(stream, [](Operation& operation) { return operation.SignalAll(); });
  }

  StatusOr<std::unique_ptr<Communicator>> Split(int color) override {
    std::vector<int> colors(size());
    Operation operation(*mesh_, "split");
    operation.Begin(sequence_++, DeadlineFromNow());
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
  // The parts of rows, listed once where no counts change them.
  class RowParts {
   public:
    RowParts(const PeerRows& rows, int size) : rows_(rows), size_(size) {
      if (rows.cells.counts == nullptr) ListParts(rows_, size_, parts_);
    }
    // Reads the counts, where there are any.
    const std::vector<Part>& Now() {
      if (rows_.cells.counts != nullptr) ListParts(rows_, size_, parts_);
      return parts_;
    }

   private:
    const PeerRows rows_;
    const int size_;
    std::vector<Part> parts_;
  };

  // One collective, run again and again: the messages under way, and what an error says of it.
  class Operation {
   public:
    Operation(Mesh& mesh, std::string task) : mesh_(mesh), task_(std::move(task)) {}

    // `sequence` counts the operations of the communicator, alike on all its ranks.
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
      scratch.resize(out.size() * mesh_.size());
      received_.clear();
      for (int peer = 0; peer < mesh_.size(); ++peer) {
        received_.push_back({peer, std::span(scratch).subspan(out.size() * peer, out.size())});
      }
      RETURN_IF_ERROR(Exchange(parts, received_));
      SumParts(received_, out, type);
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
      for (int i = 1; i < mesh_.size(); ++i) {
        const int peer = (mesh_.rank() + i) % mesh_.size();
        RETURN_IF_ERROR(Add(signals_, {peer, BytesFrom(peer)}, mesh_.ReceiveSignal(peer)));
        RETURN_IF_ERROR(Add(signals_, {peer, BytesFrom(peer)}, mesh_.SendSignal(peer)));
      }
      return AwaitAll(signals_);
    }

    Status AwaitAll() { return AwaitAll(pending_); }

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
      return Add(pending_, {part.peer, part.bytes.size()}, mesh_.Send(part.peer, TagOf(part), part.bytes));
    }

   private:
    struct Pending {
      int peer;
      size_t bytes;
      bool receives = false;
      std::unique_ptr<PendingTransfer> transfer = nullptr;  // Null once done.
    };

    Status Post(const std::vector<Part>& parts, bool sends) {
      for (int i = 1; i < mesh_.size(); ++i) {
        const int peer = (mesh_.rank() + (sends ? i : mesh_.size() - i)) % mesh_.size();
        for (const Part& part : parts) {
          if (part.peer != peer || part.bytes.empty()) continue;
          if (sends) {
            RETURN_IF_ERROR(SendPart(part));
          } else {
            RETURN_IF_ERROR(Add(pending_, {peer, part.bytes.size(), /*receives=*/true},
                                mesh_.Receive(peer, TagOf(part), part.bytes)));
          }
        }
      }
      return OkStatus();
    }

    Status Add(std::vector<Pending>& list, Pending pending, StatusOr<std::unique_ptr<PendingTransfer>> transfer) {
      if (!transfer.ok()) return Explain(transfer.status(), pending.peer, pending.bytes);
      pending.transfer = *std::move(transfer);
      list.push_back(std::move(pending));
      return OkStatus();
    }

    Status AwaitAll(std::vector<Pending>& list) {
      for (Pending& pending : list) RETURN_IF_ERROR(Await(pending));
      list.clear();
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
    const std::string task_;
    uint64_t sequence_ = 0;
    Deadline deadline_;
    std::vector<Pending> pending_, signals_;
    std::vector<Part> received_;
  };

  struct ShardedExchange {
    std::vector<Part> sends, partials;
    int shards;
  };
  struct Gathering {
    int ranks;
    std::vector<Part> own_sums;  // By EP rank.
    std::vector<Part> receives;
  };

  static Gathering GatheringOf(const std::vector<Part>& wholes, int own_rank, int expert_ranks) {
    Gathering gathering = {.ranks = static_cast<int>(wholes.size())};
    for (const Part& whole : wholes) {
      for (const Part& part : EqualParts(whole.bytes, expert_ranks)) {
        auto& parts = whole.peer == own_rank ? gathering.own_sums : gathering.receives;
        parts.push_back({whole.peer, part.bytes, /*index=*/part.peer});
      }
    }
    return gathering;
  }

  // The sum of each EP rank's shards starts its way to the MP peers when its last part is in, while the next ones still
  // arrive. Own EP rank first: its parts are the nearest.
  Status OverlapGather(Operation& exchanging, const ShardedExchange& exchange, Operation& gathering,
                       const Gathering& gathered, ElementType type) const {
    const int expert_ranks = size() / exchange.shards;
    exchanging.CopyToSelf(exchange.sends, exchange.partials);
    RETURN_IF_ERROR(exchanging.PostReceives(exchange.partials));
    RETURN_IF_ERROR(gathering.PostReceives(gathered.receives));
    RETURN_IF_ERROR(exchanging.SignalAll());
    RETURN_IF_ERROR(gathering.SignalAll());
    RETURN_IF_ERROR(exchanging.PostSends(exchange.sends));
    for (int i = 0; i < expert_ranks; ++i) {
      const int expert_rank = (rank() / exchange.shards + i) % expert_ranks;
      const int first = expert_rank * exchange.shards;
      for (int shard = 0; shard < exchange.shards; ++shard) RETURN_IF_ERROR(exchanging.AwaitFrom(first + shard));
      Part sum = gathered.own_sums[expert_rank];
      SumParts(std::span(exchange.partials).subspan(first, exchange.shards), sum.bytes, type);
      for (sum.peer = 0; sum.peer < gathered.ranks; ++sum.peer) RETURN_IF_ERROR(gathering.SendPart(sum));
    }
    RETURN_IF_ERROR(exchanging.AwaitAll());
    return gathering.AwaitAll();
  }

  Deadline DeadlineFromNow() const {
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(deadline_s_));
  }

  template <typename Body>
  void Queue(Stream& stream, Body body) {
    HostStream& host_stream = HostStream::Of(stream);
    // Shared, because work is copyable.
    const auto operation = std::make_shared<Operation>(*mesh_, host_stream.label());
    host_stream.Enqueue([this, operation, body = std::move(body)]() mutable {
      operation->Begin(sequence_++, DeadlineFromNow());
      const Status status = body(*operation);
      operation->End();
      return status;
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
