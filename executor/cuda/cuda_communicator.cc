#include "executor/cuda/cuda_communicator.h"

#include <functional>

#include "executor/cuda/host_counts.h"
#include "executor/cuda/part_sums.h"
#include "executor/host/host_stream.h"
#include "models/check.h"

namespace moeplan::executor::cuda {
namespace {

class CudaCommunicator final : public Communicator {
 public:
  CudaCommunicator(std::unique_ptr<PartExchange> exchange, CudaDevice& device)
      : exchange_(std::move(exchange)), device_(device), sums_(device), counts_(device) {}

  int rank() const override { return exchange_->rank(); }
  int size() const override { return exchange_->size(); }

  void AllToAll(const PeerRows& send, const PeerRows& recv, Stream& stream) override {
    const bool irregular = send.cells.counts != nullptr || recv.cells.counts != nullptr;
    Queue(irregular, stream, [&](const std::string& task) -> Status {
      ASSIGN_OR_RETURN(const HostCounts::Rows rows, counts_.Read(send, recv, stream));
      return exchange_->Exchange(PartsOf(rows.send, size()), PartsOf(rows.recv, size()), task, stream);
    });
  }

  void AllGather(std::span<const std::byte> send, std::span<std::byte> recv, Stream& stream) override {
    MOEPLAN_CHECK(recv.size() == send.size() * size());
    Queue(/*asks_host=*/false, stream,
          [&](const std::string& task) { return exchange_->AllGather(send, recv, task, stream); });
  }

  void ReduceScatter(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                     Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size() * size());
    Queue(/*asks_host=*/false, stream, [&](const std::string& task) {
      return SumOfParts(EqualParts(Writable(send), size()), recv, type, task, stream);
    });
  }

  void AllReduce(std::span<const std::byte> send, std::span<std::byte> recv, ElementType type,
                 Stream& stream) override {
    MOEPLAN_CHECK(send.size() == recv.size());
    Queue(/*asks_host=*/false, stream, [&](const std::string& task) -> Status {
      const std::vector<Part> sums = ElementParts(recv, type, size());
      const std::span<std::byte> own = sums[rank()].bytes;
      RETURN_IF_ERROR(SumOfParts(ElementParts(Writable(send), type, size()), own, type, task, stream));
      return exchange_->Exchange(SameToAll(own, size()), sums, task, stream);
    });
  }

  void SendRecv(std::span<const Transfer> sends, std::span<const Transfer> recvs, Stream& stream) override {
    Queue(/*asks_host=*/false, stream,
          [&](const std::string& task) { return exchange_->Exchange(PartsOf(sends), PartsOf(recvs), task, stream); });
  }

  void SendRecv(std::function<void(Transfers&)> list, Stream& stream) override {
    Queue(/*asks_host=*/true, stream, [&](const std::string& task) -> Status {
      RETURN_IF_ERROR(device_.Await(stream));
      Transfers now;
      list(now);
      return exchange_->Exchange(PartsOf(now.sends), PartsOf(now.recvs), task, stream);
    });
  }

  void AllToAllAllGather(const PeerRows& send, const PeerRows& partial, int shards, std::span<std::byte> gathered,
                         ElementType type, Communicator& gather, Stream& stream) override {
    auto& gathering = static_cast<CudaCommunicator&>(gather);
    Queue(/*asks_host=*/false, stream, [&](const std::string& task) -> Status {
      const std::vector<Part> partials = PartsOf(partial, size());
      RETURN_IF_ERROR(exchange_->Exchange(PartsOf(send, size()), partials, task, stream));
      const std::span<std::byte> own = EqualParts(gathered, gathering.size())[gathering.rank()].bytes;
      const size_t bytes = partials[0].bytes.size() * partials.size();
      RETURN_IF_ERROR(sums_.Add({partial.data, bytes}, own, size() / shards, shards, type, stream));
      return gathering.exchange_->AllGather(own, gathered, task, stream);
    });
  }

  void Barrier(Stream& stream) override {
    Queue(/*asks_host=*/false, stream, [&](const std::string& task) -> Status {
      ASSIGN_OR_RETURN(const std::span<std::byte> marks, sums_.Scratch(size()));
      return exchange_->AllGather(marks.subspan(rank(), 1), marks, task, stream);
    });
  }

  bool LimitsCtas() const override { return exchange_->limits_ctas(); }

  StatusOr<std::unique_ptr<Communicator>> Split(int color) override {
    ASSIGN_OR_RETURN(std::unique_ptr<PartExchange> exchange, exchange_->Split(color, /*max_ctas=*/0));
    return MakeCudaCommunicator(std::move(exchange), device_);
  }

  StatusOr<std::unique_ptr<Communicator>> SplitLimited(int color, int ctas) override {
    if (!LimitsCtas()) return Communicator::SplitLimited(color, ctas);
    ASSIGN_OR_RETURN(std::unique_ptr<PartExchange> exchange, exchange_->Split(color, ctas));
    return MakeCudaCommunicator(std::move(exchange), device_);
  }

  std::shared_ptr<void> Register(std::span<std::byte> memory) override { return exchange_->Register(memory); }

  void Abort(const Status& why) override { exchange_->Abort(why); }

 private:
  template <typename Body>
  void Queue(bool asks_host, Stream& stream, Body body) {
    const std::string& task = HostStream::Of(stream).label();
    if (device_.capturing() && (asks_host || !exchange_->capturable())) {
      return device_.RefuseCapture(asks_host ? "sizes that the host has to know" : "ranks that queue together");
    }
    if (device_.failed()) return;
    const Status status = body(task);
    if (status.ok() || device_.failed()) return;
    device_.capturing() ? Report(stream, status) : device_.Fail(status);
  }

  // out = the sum over ranks of the part each has for this rank; `parts` are the own ones.
  Status SumOfParts(const std::vector<Part>& parts, std::span<std::byte> out, ElementType type, const std::string& task,
                    Stream& stream) {
    ASSIGN_OR_RETURN(const std::span<std::byte> scratch, sums_.Scratch(out.size() * size()));
    RETURN_IF_ERROR(exchange_->Exchange(parts, EqualParts(scratch, size()), task, stream));
    return sums_.Add(scratch, out, /*groups=*/1, size(), type, stream);
  }

  const std::unique_ptr<PartExchange> exchange_;
  CudaDevice& device_;
  PartSums sums_;
  HostCounts counts_;
};

}  // namespace

std::unique_ptr<Communicator> MakeCudaCommunicator(std::unique_ptr<PartExchange> exchange, CudaDevice& device) {
  return std::make_unique<CudaCommunicator>(std::move(exchange), device);
}

}  // namespace moeplan::executor::cuda
