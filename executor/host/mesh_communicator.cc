#include "executor/host/mesh_communicator.h"

#include "executor/host/host_stream.h"
#include "executor/host/mesh_operation.h"
#include "executor/host/parts.h"
#include "models/check.h"

namespace moeplan::executor {
namespace {

class MeshCommunicator final : public Communicator {
 public:
  MeshCommunicator(std::unique_ptr<Mesh> mesh, double deadline_s) : mesh_(std::move(mesh)), deadline_s_(deadline_s) {}

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }

  void AllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) override {
    Queue(stream, [sends = RowParts(send, size()), receives = RowParts(recv, size())](
                      MeshOperation& operation) mutable { return operation.Exchange(sends.Now(), receives.Now()); });
  }

  bool HasHalves() const override { return true; }

  SecondHalf StartAllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) override {
    HostStream& host_stream = HostStream::Of(stream);
    const auto operation = std::make_shared<MeshOperation>(*mesh_, host_stream.label(), host_stream.tokens());
    host_stream.Enqueue([this, operation, sends = RowParts(send, size()), receives = RowParts(recv, size())]() mutable {
      operation->Begin(sequence_++, DeadlineIn(deadline_s_));
      const Status status = operation->BeginExchange(sends.Now(), receives.Now());
      if (!status.ok()) operation->End();
      return status;
    });
    return [operation](Stream& later) {
      HostStream::Of(later).Enqueue([operation] {
        const Status status = operation->AwaitAll();
        operation->End();
        return status;
      });
    };
  }

  void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) override {
    MOEPLAN_CHECK(recv.size() == send.size() * size());
    Queue(stream, [sends = SameToAll(Writable(send), size()), receives = EqualParts(recv, size())](
                      MeshOperation& operation) { return operation.Exchange(sends, receives); });
  }

  void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                     Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size() * size());
    Queue(stream, [=, this, parts = EqualParts(Writable(send), size())](MeshOperation& operation) {
      return operation.SumOfParts(parts, recv, type, scratch_);
    });
  }

  void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                 Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size());
    const std::vector<Part> sums = ElementParts(recv, type, size());
    Queue(stream,
          [type, this, sums, own_sum = sums[rank()].bytes, to_all = SameToAll(sums[rank()].bytes, size()),
           own_parts = ElementParts(Writable(send), type, size())](MeshOperation& operation) -> Status {
            RETURN_IF_ERROR(operation.SumOfParts(own_parts, own_sum, type, scratch_));
            return operation.Exchange(to_all, sums);
          });
  }

  void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) override {
    Queue(stream, [sends = PartsOf(sends), recvs = PartsOf(recvs)](MeshOperation& operation) {
      return operation.Exchange(sends, recvs);
    });
  }

  void SendRecv(std::function<void(Transfers&)> list, Stream& stream) override {
    Queue(stream, [list = std::move(list), now = Transfers(), sends = std::vector<Part>(),
                   recvs = std::vector<Part>()](MeshOperation& operation) mutable {
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
    const HostStream& host_stream = HostStream::Of(stream);
    const auto gather_operation =
        std::make_shared<MeshOperation>(*gathering.mesh_, host_stream.label(), host_stream.tokens());
    Queue(stream, [=, this, &gathering](MeshOperation& operation) {
      gather_operation->Begin(gathering.sequence_++, operation.deadline());
      const Status status = OverlapGather(operation, exchange, *gather_operation, gathered_parts, type);
      gather_operation->End();
      return status;
    });
  }

  void Barrier(Stream& stream) override {
    Queue(stream, [](MeshOperation& operation) { return operation.SignalAll(); });
  }

  StatusOr<std::unique_ptr<Communicator>> Split(int color) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Mesh> sub_mesh, SplitMesh(*mesh_, color, sequence_++, deadline_s_));
    return MakeMeshCommunicator(std::move(sub_mesh), deadline_s_);
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
  Status OverlapGather(MeshOperation& exchanging, const ShardedExchange& exchange, MeshOperation& gathering,
                       const Gathering& gathered, ElementType type) const {
    const int expert_ranks = size() / exchange.shards;
    exchanging.CopyToSelf(exchange.sends, exchange.partials);
    RETURN_IF_ERROR(exchanging.PostReceives(exchange.partials));
    RETURN_IF_ERROR(gathering.PostReceives(gathered.receives));
    RETURN_IF_ERROR(exchanging.SignalAll(exchange.sends));
    size_t gathered_bytes = 0;
    for (const Part& sum : gathered.own_sums) gathered_bytes += sum.bytes.size();
    RETURN_IF_ERROR(gathering.SignalAll(gathered_bytes));
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

  template <typename Body>
  void Queue(Stream& stream, Body body) {
    HostStream& host_stream = HostStream::Of(stream);
    // Shared, because work is copyable.
    const auto operation = std::make_shared<MeshOperation>(*mesh_, host_stream.label(), host_stream.tokens());
    host_stream.Enqueue([this, operation, body = std::move(body)]() mutable {
      operation->Begin(sequence_++, DeadlineIn(deadline_s_));
      const Status status = body(*operation);
      operation->End();
      return status;
    });
  }

  std::unique_ptr<Mesh> mesh_;
  double deadline_s_;
  uint64_t sequence_ = 0;  // Of what uses this communicator, one operation at a time.
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Communicator> MakeMeshCommunicator(std::unique_ptr<Mesh> mesh, double deadline_s) {
  return std::make_unique<MeshCommunicator>(std::move(mesh), deadline_s);
}

}  // namespace moeplan::executor
