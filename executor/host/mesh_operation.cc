#include "executor/host/mesh_operation.h"

#include <bit>
#include <cstring>

#include "executor/errors.h"

namespace moeplan::executor {

Deadline DeadlineIn(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

Status MeshOperation::BeginExchange(const std::vector<Part>& sends, const std::vector<Part>& receives) {
  CopyToSelf(sends, receives);
  RETURN_IF_ERROR(PostReceives(receives));
  RETURN_IF_ERROR(SignalAll(sends));
  return PostSends(sends);
}

Status MeshOperation::Exchange(const std::vector<Part>& sends, const std::vector<Part>& receives) {
  RETURN_IF_ERROR(BeginExchange(sends, receives));
  return AwaitAll();
}

Status MeshOperation::SumOfParts(const std::vector<Part>& parts, std::span<std::byte> out, ElementType type,
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

void MeshOperation::CopyToSelf(const std::vector<Part>& sends, const std::vector<Part>& receives) const {
  auto receive = receives.begin();
  for (const Part& send : sends) {
    if (send.peer != mesh_.rank()) continue;
    while (receive->peer != mesh_.rank()) ++receive;
    const bool in_place = receive->bytes.data() == send.bytes.data();
    if (!in_place && !send.bytes.empty()) std::memcpy(receive->bytes.data(), send.bytes.data(), send.bytes.size());
    ++receive;
  }
}

Status MeshOperation::SignalAll(const std::vector<Part>& sends) {
  announced_.assign(mesh_.size(), {.tokens = tokens_});
  for (const Part& send : sends) announced_[send.peer].bytes += send.bytes.size();
  return Signal();
}

Status MeshOperation::SignalAll(size_t bytes) {
  announced_.assign(mesh_.size(), {.bytes = bytes, .tokens = tokens_});
  return Signal();
}

Status MeshOperation::Signal() {
  heard_.assign(mesh_.size(), {});
  for (int i = 1; i < mesh_.size(); ++i) {
    const int peer = (mesh_.rank() + i) % mesh_.size();
    const auto heard = std::as_writable_bytes(std::span(heard_).subspan(peer, 1));
    const auto announced = std::as_bytes(std::span(announced_).subspan(peer, 1));
    RETURN_IF_ERROR(Add(signals_, {peer, BytesFrom(peer)}, mesh_.ReceiveSignal(peer, heard)));
    RETURN_IF_ERROR(Add(signals_, {peer, BytesFrom(peer)}, mesh_.SendSignal(peer, announced)));
  }
  RETURN_IF_ERROR(AwaitAll(signals_));
  const int own = mesh_.JobRank(mesh_.rank());
  for (int peer = 0; peer < mesh_.size(); ++peer) {
    if (peer == mesh_.rank()) continue;
    const auto& [bytes, tokens] = heard_[peer];
    if (tokens != tokens_) return error::OtherTokens(mesh_.JobRank(peer), tokens, own, tokens_, task_);
    if (bytes != BytesFrom(peer)) return error::OtherSize(mesh_.JobRank(peer), bytes, BytesFrom(peer), task_);
  }
  return OkStatus();
}

Status MeshOperation::AwaitFrom(int peer) {
  for (Pending& pending : pending_) {
    if (pending.peer == peer && pending.receives) RETURN_IF_ERROR(Await(pending));
  }
  return OkStatus();
}

Status MeshOperation::SendPart(const Part& part) {
  if (part.bytes.empty() || part.peer == mesh_.rank()) return OkStatus();
  return Add(pending_, {part.peer, part.bytes.size()}, mesh_.Send(part.peer, TagOf(part), part.bytes));
}

Status MeshOperation::Post(const std::vector<Part>& parts, bool sends) {
  const auto size = static_cast<unsigned>(mesh_.size());
  for (unsigned i = 1; i < std::bit_ceil(size); ++i) {
    const int peer = mesh_.rank() ^ static_cast<int>(i);
    if (peer >= mesh_.size()) continue;
    for (const Part& part : parts) {
      if (part.peer != peer || part.bytes.empty()) continue;
      if (sends) {
        RETURN_IF_ERROR(SendPart(part));
      } else {
        RETURN_IF_ERROR(
            Add(pending_, {peer, part.bytes.size(), /*receives=*/true}, mesh_.Receive(peer, TagOf(part), part.bytes)));
      }
    }
  }
  return OkStatus();
}

Status MeshOperation::Add(std::vector<Pending>& list, Pending pending,
                          StatusOr<std::unique_ptr<PendingTransfer>> transfer) {
  if (!transfer.ok()) return Explain(transfer.status(), pending.peer, pending.bytes);
  pending.transfer = *std::move(transfer);
  list.push_back(std::move(pending));
  return OkStatus();
}

Status MeshOperation::AwaitAll(std::vector<Pending>& list) {
  for (Pending& pending : list) RETURN_IF_ERROR(Await(pending));
  list.clear();
  return OkStatus();
}

Status MeshOperation::Await(Pending& pending) {
  if (pending.transfer == nullptr) return OkStatus();
  const Status status = pending.transfer->Wait(deadline_);
  if (!status.ok()) return Explain(status, pending.peer, pending.bytes);
  pending.transfer = nullptr;
  return OkStatus();
}

size_t MeshOperation::BytesFrom(int peer) const {
  size_t bytes = 0;
  for (const Pending& pending : pending_) bytes += pending.peer == peer && pending.receives ? pending.bytes : 0;
  return bytes;
}

Status MeshOperation::Explain(const Status& status, int peer, size_t bytes) const {
  const int job_rank = mesh_.JobRank(peer);
  // An abort says itself what went wrong, wherever that was.
  if (status == mesh_.failure()) return status.Within(StrCat("task ", task_));
  switch (status.code()) {
    case StatusCode::kDeadlineExceeded: return error::MissedDeadline(job_rank, task_, static_cast<double>(bytes));
    case StatusCode::kPeerLost: return error::LostPeer(job_rank, task_, static_cast<double>(bytes), status.message());
    default: return status.Within(StrCat("task ", task_));
  }
}

StatusOr<std::unique_ptr<Mesh>> SplitMesh(Mesh& mesh, int color, uint64_t sequence, double deadline_s) {
  std::vector<int> colors(mesh.size());
  MeshOperation operation(mesh, "split");
  operation.Begin(sequence, DeadlineIn(deadline_s));
  const auto bytes = std::as_writable_bytes(std::span(colors));
  colors[mesh.rank()] = color;
  const auto own_color = bytes.subspan(mesh.rank() * sizeof(int), sizeof(int));
  RETURN_IF_ERROR(operation.Exchange(SameToAll(own_color, mesh.size()), EqualParts(bytes, mesh.size())));
  std::vector<int> members;
  for (int peer = 0; peer < mesh.size(); ++peer) {
    if (colors[peer] == color) members.push_back(peer);
  }
  StatusOr<std::unique_ptr<Mesh>> sub_mesh = mesh.SubMesh(members, DeadlineIn(deadline_s));
  if (!sub_mesh.ok()) return sub_mesh.status().Within("task split");
  return sub_mesh;
}

}  // namespace moeplan::executor
