#include "executor/host/gloo_mesh.h"

#ifdef MOEPLAN_HAVE_GLOO
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <set>

#include "models/text.h"

namespace moeplan {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kConnectTimeout{30000};
using GlooDevice = std::shared_ptr<gloo::transport::Device>;

// Gloo reports by exceptions; here they end.
template <typename Function>
Status Guarded(Function function) {
  try {
    return function();
  } catch (const std::exception& exception) {
    const std::string what = exception.what();
    const bool timeout = what.find("imed out") != std::string::npos || what.find("imeout") != std::string::npos;
    return {timeout ? StatusCode::kDeadlineExceeded : StatusCode::kPeerLost, what};
  }
}

milliseconds TimeLeft(Deadline deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, milliseconds(1));
}

// A full mesh of connections whose addresses travel by our own means rather than a Gloo store.
class Connections : public gloo::Context {
 public:
  Connections(int rank, int size, const GlooDevice& device) : gloo::Context(rank, size) {
    transportContext_ = device->createContext(rank, size);
    // A fresh transport context has no defined timeout, and pairs take theirs when they are made.
    transportContext_->setTimeout(kConnectTimeout);
    setTimeout(kConnectTimeout);
    device_ = device;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      transportContext_->createPair(peer);
    }
  }

  // The address that each peer connects to, in rank order, each with its length before it.
  std::string Addresses() {
    std::string all;
    for (int peer = 0; peer < size; ++peer) {
      const std::vector<char> bytes = peer == rank ? std::vector<char>() : getPair(peer)->address().bytes();
      const auto length = static_cast<uint32_t>(bytes.size());
      all.append(reinterpret_cast<const char*>(&length), sizeof length);
      all.append(bytes.begin(), bytes.end());
    }
    return all;
  }

  void Connect(int peer, const std::vector<char>& address) { getPair(peer)->connect(address); }
};

// Entry `index` of a list made by Addresses.
StatusOr<std::vector<char>> Entry(std::string_view list, int index) {
  for (int i = 0;; ++i) {
    uint32_t length = 0;
    if (list.size() < sizeof length) break;
    std::memcpy(&length, list.data(), sizeof length);
    list.remove_prefix(sizeof length);
    if (list.size() < length) break;
    if (i == index) return std::vector<char>(list.begin(), list.begin() + length);
    list.remove_prefix(length);
  }
  return InternalError("a rank sent addresses that cannot be read");
}

// Transfers under way, so that an abort from another thread ends their waits.
class Waits {
 public:
  Status Enter(gloo::transport::UnboundBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    buffers_.insert(buffer);
    return OkStatus();
  }
  void Leave(gloo::transport::UnboundBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    buffers_.erase(buffer);
  }
  void Abort(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
    for (gloo::transport::UnboundBuffer* buffer : buffers_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Destroys a finished buffer, but not yet. Gloo's event thread may still hold it, if it was interrupted between waking
  // the waiter and letting go; the destructor then spins on sched_yield for a whole tick of the scheduler, and a
  // collective of 0.4 ms takes 4.
  void Retire(std::unique_ptr<gloo::transport::UnboundBuffer> buffer) {
    constexpr size_t kKept = 64;
    std::unique_ptr<gloo::transport::UnboundBuffer> oldest;
    const std::lock_guard lock(mutex_);
    retired_.push_back(std::move(buffer));
    if (retired_.size() <= kKept) return;
    oldest = std::move(retired_.front());
    retired_.pop_front();
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<gloo::transport::UnboundBuffer>> retired_;
  std::set<gloo::transport::UnboundBuffer*> buffers_;
  Status failure_;
};

class GlooTransfer final : public PendingTransfer {
 public:
  GlooTransfer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, bool receives, std::shared_ptr<Waits> waits)
      : buffer_(std::move(buffer)), receives_(receives), waits_(std::move(waits)) {}
  ~GlooTransfer() override {
    if (finished_) waits_->Retire(std::move(buffer_));
  }

  Status Wait(Deadline deadline) override {
    RETURN_IF_ERROR(waits_->Enter(buffer_.get()));
    const Status status = Guarded([&]() -> Status {
      const bool done = receives_ ? buffer_->waitRecv(TimeLeft(deadline)) : buffer_->waitSend(TimeLeft(deadline));
      return done ? OkStatus() : waits_->failure();
    });
    waits_->Leave(buffer_.get());
    finished_ = status.ok();
    return status;
  }

 private:
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  bool receives_;
  bool finished_ = false;
  std::shared_ptr<Waits> waits_;
};

// Two connections to every peer: one for data, one for signals.
struct Links {
  std::unique_ptr<Connections> data, signals;

  static StatusOr<Links> Make(int rank, int size, const GlooDevice& device) {
    Links links;
    const Status made = Guarded([&] {
      links.data = std::make_unique<Connections>(rank, size, device);
      links.signals = std::make_unique<Connections>(rank, size, device);
      return OkStatus();
    });
    if (!made.ok()) return made;
    return links;
  }

  // Both lists, each with its length before it, so that Entry reads them back.
  std::string Addresses() const {
    std::string all;
    for (Connections* connections : {data.get(), signals.get()}) {
      const std::string list = connections->Addresses();
      const auto length = static_cast<uint32_t>(list.size());
      all.append(reinterpret_cast<const char*>(&length), sizeof length);
      all += list;
    }
    return all;
  }

  Status Connect(const std::vector<std::string>& addresses) const {
    for (int which = 0; which < 2; ++which) {
      Connections& connections = which == 0 ? *data : *signals;
      for (int peer = 0; peer < connections.size; ++peer) {
        if (peer == connections.rank) continue;
        ASSIGN_OR_RETURN(const std::vector<char> list, Entry(addresses[peer], which));
        ASSIGN_OR_RETURN(const std::vector<char> address, Entry({list.data(), list.size()}, connections.rank));
        RETURN_IF_ERROR(Guarded([&] {
                          connections.Connect(peer, address);
                          return OkStatus();
                        }).Within(StrCat("connecting to rank ", peer)));
      }
    }
    return OkStatus();
  }
};

class GlooMesh final : public Mesh {
 public:
  GlooMesh(GlooDevice device, Links links, int rank, std::vector<int> job_ranks)
      : device_(std::move(device)), links_(std::move(links)), rank_(rank), job_ranks_(std::move(job_ranks)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_ranks_.size()); }
  int JobRank(int peer) const override { return job_ranks_[peer]; }

  StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    return Start(*links_.data, peer, tag, bytes.data(), bytes.size(), /*receives=*/true);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    return Start(*links_.data, peer, tag, const_cast<std::byte*>(bytes.data()), bytes.size(), /*receives=*/false);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer) override {
    return Start(*links_.signals, peer, 0, &received_signal_, 1, /*receives=*/true);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer) override {
    return Start(*links_.signals, peer, 0, &sent_signal_, 1, /*receives=*/false);
  }

  StatusOr<std::unique_ptr<Mesh>> SubMesh(const std::vector<int>& members, Deadline deadline) override;

  void Abort(const Status& why) override { waits_->Abort(why); }

 private:
  StatusOr<std::unique_ptr<PendingTransfer>> Start(Connections& connections, int peer, uint64_t tag, void* data, size_t bytes,
                                                   bool receives) {
    RETURN_IF_ERROR(waits_->failure());
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    RETURN_IF_ERROR(Guarded([&] {
      buffer = connections.createUnboundBuffer(data, bytes);
      if (receives) {
        buffer->recv(peer, tag);
      } else {
        buffer->send(peer, tag);
      }
      return OkStatus();
    }));
    return std::make_unique<GlooTransfer>(std::move(buffer), receives, waits_);
  }

  // Sends `own` to every member and returns what each of them sent; lengths go ahead.
  StatusOr<std::vector<std::string>> ExchangeText(const std::vector<int>& members, const std::string& own, Deadline deadline);
  Status ExchangeBytes(const std::vector<int>& members, std::span<const std::byte> own,
                       const std::vector<std::span<std::byte>>& received, Deadline deadline);

  GlooDevice device_;
  Links links_;
  int rank_;
  std::vector<int> job_ranks_;
  std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
  uint64_t exchanges_ = 0;
  std::byte received_signal_{}, sent_signal_{};
};

// Tags of the exchanges that set up sub-meshes stand apart from those of collectives.
constexpr uint64_t kSetupTag = uint64_t{1} << 62;

Status GlooMesh::ExchangeBytes(const std::vector<int>& members, std::span<const std::byte> own,
                               const std::vector<std::span<std::byte>>& received, Deadline deadline) {
  std::vector<std::unique_ptr<PendingTransfer>> pending;
  const uint64_t tag = kSetupTag + exchanges_++;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank_) continue;
    ASSIGN_OR_RETURN(pending.emplace_back(), Receive(members[i], tag, received[i]));
    ASSIGN_OR_RETURN(pending.emplace_back(), Send(members[i], tag, own));
  }
  for (const auto& transfer : pending) RETURN_IF_ERROR(transfer->Wait(deadline));
  return OkStatus();
}

StatusOr<std::vector<std::string>> GlooMesh::ExchangeText(const std::vector<int>& members, const std::string& own,
                                                          Deadline deadline) {
  std::vector<uint64_t> lengths(members.size(), own.size());
  std::vector<std::span<std::byte>> slots;
  const uint64_t own_length = own.size();
  for (uint64_t& length : lengths) slots.push_back(std::as_writable_bytes(std::span(&length, 1)));
  RETURN_IF_ERROR(ExchangeBytes(members, std::as_bytes(std::span(&own_length, 1)), slots, deadline));
  std::vector<std::string> texts;
  for (const uint64_t length : lengths) texts.push_back(std::string(length, '\0'));
  slots.clear();
  for (std::string& text : texts) slots.push_back(std::as_writable_bytes(std::span(text)));
  RETURN_IF_ERROR(ExchangeBytes(members, std::as_bytes(std::span(own)), slots, deadline));
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank_) texts[i] = own;
  }
  return texts;
}

StatusOr<std::unique_ptr<Mesh>> GlooMesh::SubMesh(const std::vector<int>& members, Deadline deadline) {
  std::vector<int> job_ranks;
  int own = 0;
  for (const int member : members) {
    if (member == rank_) own = static_cast<int>(job_ranks.size());
    job_ranks.push_back(job_ranks_[member]);
  }
  ASSIGN_OR_RETURN(Links links, Links::Make(own, static_cast<int>(members.size()), device_));
  ASSIGN_OR_RETURN(const std::vector<std::string> addresses, ExchangeText(members, links.Addresses(), deadline));
  RETURN_IF_ERROR(links.Connect(addresses));
  return std::make_unique<GlooMesh>(device_, std::move(links), own, std::move(job_ranks));
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string ToHex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += kHexDigits[static_cast<unsigned char>(byte) / 16];
    text += kHexDigits[static_cast<unsigned char>(byte) % 16];
  }
  return text;
}

// Digits that are none read as 15; Entry then refuses what does not add up.
std::string FromHex(std::string_view text) {
  const auto digit = [&](size_t at) { return std::min<size_t>(kHexDigits.find(text[at]), 15); };
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes += static_cast<char>(digit(i) * 16 + digit(i + 1));
  return bytes;
}

class TcpJoin final : public GlooJoin {
 public:
  TcpJoin(GlooDevice device, Links links)
      : device_(std::move(device)), links_(std::move(links)), address_(ToHex(links_.Addresses())) {}

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Mesh>> Connect(const std::vector<std::string>& addresses) && override {
    const int rank = links_.data->rank, size = links_.data->size;
    if (static_cast<int>(addresses.size()) != size) {
      return InternalError(StrCat("found addresses of ", addresses.size(), " ranks, expected ", size));
    }
    std::vector<std::string> lists;
    for (const std::string& address : addresses) lists.push_back(FromHex(address));
    RETURN_IF_ERROR(links_.Connect(lists));
    std::vector<int> job_ranks;
    for (int peer = 0; peer < size; ++peer) job_ranks.push_back(peer);
    return std::make_unique<GlooMesh>(std::move(device_), std::move(links_), rank, std::move(job_ranks));
  }

 private:
  GlooDevice device_;
  Links links_;
  std::string address_;
};

}  // namespace

StatusOr<std::unique_ptr<GlooJoin>> StartGlooJoin(int rank, int size, const std::string& host_address) {
  GlooDevice device;
  const Status made = Guarded([&] {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = host_address;
    device = gloo::transport::tcp::CreateDevice(attributes);
    return OkStatus();
  });
  if (!made.ok()) return Unavailable(StrCat("cannot listen on ", host_address, ": ", made.message()));
  ASSIGN_OR_RETURN(Links links, Links::Make(rank, size, device));
  return std::make_unique<TcpJoin>(std::move(device), std::move(links));
}

}  // namespace moeplan

#else

namespace moeplan {

StatusOr<std::unique_ptr<GlooJoin>> StartGlooJoin(int, int, const std::string&) {
  return Unimplemented("this build has no Gloo, so ranks cannot be processes; install libgloo-dev and build again");
}

}  // namespace moeplan

#endif
