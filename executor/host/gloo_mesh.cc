#include "executor/host/gloo_mesh.h"

#ifdef MOEPLAN_HAVE_GLOO
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include "executor/host/abort_line.h"
#include "executor/host/spin.h"
#include "executor/host/thread_priority.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kConnectTimeout{30000};
// From the moment that a rank gives up, and Gloo closes its connections, to the reason that it sends after that.
constexpr milliseconds kReasonTimeout{200};
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

// Runs work on Gloo's own event thread. A connection that another thread has locked makes that thread spin until the
// lock is free, and if the holder waits for the same processor that is a whole tick of the scheduler: collectives of
// 0.4 ms then take 4. So sends, receives and the end of a buffer happen on it.
class EventThread final : public gloo::transport::tcp::Handler {
 public:
  using Work = std::function<void()>;

  explicit EventThread(GlooDevice device)
      : device_(std::static_pointer_cast<gloo::transport::tcp::Device>(std::move(device))),
        wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (wake_fd_ < 0) throw std::runtime_error(StrCat("eventfd: ", std::strerror(errno)));
    device_->registerDescriptor(wake_fd_, EPOLLIN, this);
    // Gloo writes to connections that a peer may have closed: an error there, not the end of the process.
    Post([] {
      if (!MayRunBesideItself()) AskForShortSlices();  // Not in real time: it spins for locks.
      sigset_t broken_pipe;
      sigemptyset(&broken_pipe);
      sigaddset(&broken_pipe, SIGPIPE);
      pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    });
  }
  ~EventThread() override {
    device_->unregisterDescriptor(wake_fd_, this);
    close(wake_fd_);
    RunAll();
  }

  void Post(Work work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    const uint64_t one = 1;
    if (queue_.size() == 1) (void)!write(wake_fd_, &one, sizeof one);
  }

  void PostAndWait(const Work& work) {
    std::promise<void> done;
    Post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  // Returns when nothing posted is left. Cheap when that is so already.
  void Drain() {
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty() && !running_) return;
    }
    PostAndWait([] {});
  }

  GlooDevice device() const { return device_; }

 private:
  void handleEvents(int) override {
    uint64_t count = 0;
    (void)!read(wake_fd_, &count, sizeof count);
    RunAll();
  }

  void RunAll() {
    std::vector<Work> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(queue_);
      running_ = true;
    }
    for (const Work& work : all) work();
    const std::lock_guard lock(mutex_);
    running_ = false;
  }

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int wake_fd_;
  std::mutex mutex_;
  std::vector<Work> queue_;
  bool running_ = false;
};

// A full mesh of connections whose addresses travel by our own means rather than a Gloo store.
class Connections : public gloo::Context {
 public:
  Connections(int rank, int size, const GlooDevice& device, milliseconds connect_timeout) : gloo::Context(rank, size) {
    transportContext_ = device->createContext(rank, size);
    // A fresh transport context has no defined timeout, and pairs take theirs when they are made. A pair that connects
    // waits five times as long.
    transportContext_->setTimeout(std::max(connect_timeout / 5, milliseconds(1)));
    setTimeout(connect_timeout);
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

// The transfers of a group that are under way, so that an abort ends their waits: from another thread, or another rank.
class Waits {
 public:
  Waits(std::shared_ptr<AbortLine> line, std::string group) : line_(std::move(line)), group_(std::move(group)) {
    line_->Join(group_, [this](const Status& why) { Fail(why); });
  }
  ~Waits() { line_->Leave(group_); }

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
  void Abort(const Status& why) { line_->Abort(group_, why); }
  Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  // The same, after a transfer with rank `peer` of the job has failed: its reason may be on its way.
  Status AwaitFailure(int peer) { return line_->AwaitNews(group_, peer, kReasonTimeout); }

  const std::shared_ptr<AbortLine>& line() const { return line_; }
  const std::string& group() const { return group_; }

 private:
  void Fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    for (gloo::transport::UnboundBuffer* buffer : buffers_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }

  std::shared_ptr<AbortLine> line_;
  std::string group_;
  mutable std::mutex mutex_;
  std::set<gloo::transport::UnboundBuffer*> buffers_;
  Status failure_;
};

class GlooTransfer final : public PendingTransfer {
 public:
  using Buffer = gloo::transport::UnboundBuffer;

  GlooTransfer(std::unique_ptr<Buffer> buffer, bool receives, int job_rank, std::shared_ptr<Waits> waits,
               std::shared_ptr<EventThread> thread)
      : state_(std::make_shared<State>()),
        receives_(receives),
        job_rank_(job_rank),
        waits_(std::move(waits)),
        thread_(std::move(thread)) {
    state_->buffer = std::move(buffer);
  }
  ~GlooTransfer() override {
    // Unfinished, Gloo may still write into the caller's memory until the buffer is gone.
    EventThread::Work drop = [state = std::move(state_)] { state->buffer.reset(); };
    if (finished_) {
      thread_->Post(std::move(drop));
    } else {
      thread_->PostAndWait(std::move(drop));
    }
  }

  void Start(int peer, uint64_t tag) {
    thread_->Post([state = state_, receives = receives_, peer, tag] { state->Start(receives, peer, tag); });
  }

  Status Wait(Deadline deadline) override {
    // A wait that times out closes the connection, holding its lock until the event thread has come round: what was
    // posted must not be waiting for that lock there.
    thread_->Drain();
    RETURN_IF_ERROR(waits_->Enter(state_->buffer.get()));
    const Status status = Guarded([&]() -> Status {
      const bool done =
          receives_ ? state_->buffer->waitRecv(TimeLeft(deadline)) : state_->buffer->waitSend(TimeLeft(deadline));
      if (done) return OkStatus();
      RETURN_IF_ERROR(state_->NotStarted());
      RETURN_IF_ERROR(waits_->failure());
      return {StatusCode::kPeerLost, "the transfer was given up"};
    });
    waits_->Leave(state_->buffer.get());
    finished_ = status.ok();
    if (status.code() != StatusCode::kPeerLost) return status;
    const Status reason = waits_->AwaitFailure(job_rank_);
    return reason.ok() ? status : reason;
  }

 private:
  // Shared with the event thread.
  struct State {
    std::unique_ptr<Buffer> buffer;
    std::mutex mutex;
    Status not_started;

    void Start(bool receives, int peer, uint64_t tag) {
      const Status started = Guarded([&] {
        if (receives) {
          buffer->recv(peer, tag);
        } else {
          buffer->send(peer, tag);
        }
        return OkStatus();
      });
      if (started.ok()) return;
      {
        const std::lock_guard lock(mutex);
        not_started = started;
      }
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
    Status NotStarted() {
      const std::lock_guard lock(mutex);
      return not_started;
    }
  };

  std::shared_ptr<State> state_;
  bool receives_;
  int job_rank_;
  bool finished_ = false;
  std::shared_ptr<Waits> waits_;
  std::shared_ptr<EventThread> thread_;
};

// Two connections to every peer: one for data, one for signals.
struct Links {
  std::unique_ptr<Connections> data, signals;

  static StatusOr<Links> Make(int rank, int size, const GlooDevice& device, milliseconds connect_timeout) {
    Links links;
    const Status made = Guarded([&] {
      links.data = std::make_unique<Connections>(rank, size, device, connect_timeout);
      links.signals = std::make_unique<Connections>(rank, size, device, connect_timeout);
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

  // `job_ranks`: of the peers, for errors.
  Status Connect(const std::vector<std::string>& addresses, const std::vector<int>& job_ranks) const {
    for (int which = 0; which < 2; ++which) {
      Connections& connections = which == 0 ? *data : *signals;
      for (int peer = 0; peer < connections.size; ++peer) {
        if (peer == connections.rank) continue;
        ASSIGN_OR_RETURN(const std::vector<char> list, Entry(addresses[peer], which));
        ASSIGN_OR_RETURN(const std::vector<char> address, Entry({list.data(), list.size()}, connections.rank));
        RETURN_IF_ERROR(Guarded([&] {
                          connections.Connect(peer, address);
                          return OkStatus();
                        }).Within(StrCat("connecting to rank ", job_ranks[peer])));
      }
    }
    return OkStatus();
  }
};

class GlooMesh final : public Mesh {
 public:
  GlooMesh(std::shared_ptr<EventThread> thread, Links links, int rank, std::vector<int> job_ranks,
           std::shared_ptr<AbortLine> line, std::string group)
      : thread_(std::move(thread)),
        links_(std::move(links)),
        rank_(rank),
        job_ranks_(std::move(job_ranks)),
        waits_(std::make_shared<Waits>(std::move(line), std::move(group))) {}
  // Buffers hold on to their connections, which must not be closed by the event thread: it may have news of them at
  // hand.
  ~GlooMesh() override {
    thread_->PostAndWait([] {});
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_ranks_.size()); }
  int JobRank(int peer) const override { return job_ranks_[peer]; }

  StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    return Start(*links_.data, peer, tag, bytes.data(), bytes.size(), /*receives=*/true);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    return Start(*links_.data, peer, tag, const_cast<std::byte*>(bytes.data()), bytes.size(), /*receives=*/false);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer, std::span<std::byte> bytes) override {
    return Start(*links_.signals, peer, 0, bytes.data(), bytes.size(), /*receives=*/true);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer, std::span<const std::byte> bytes) override {
    return Start(*links_.signals, peer, 0, const_cast<std::byte*>(bytes.data()), bytes.size(), /*receives=*/false);
  }

  StatusOr<std::unique_ptr<Mesh>> SubMesh(const std::vector<int>& members, Deadline deadline) override;

  void Abort(const Status& why) override { waits_->Abort(why); }
  Status failure() const override { return waits_->failure(); }

 private:
  StatusOr<std::unique_ptr<PendingTransfer>> Start(Connections& connections, int peer, uint64_t tag, void* data,
                                                   size_t bytes, bool receives) {
    RETURN_IF_ERROR(waits_->failure());
    auto transfer = std::make_unique<GlooTransfer>(connections.createUnboundBuffer(data, bytes), receives,
                                                   job_ranks_[peer], waits_, thread_);
    transfer->Start(peer, tag);
    return transfer;
  }

  // Sends `own` to every member and returns what each of them sent; lengths go ahead.
  StatusOr<std::vector<std::string>> ExchangeText(const std::vector<int>& members, const std::string& own,
                                                  Deadline deadline);
  Status ExchangeBytes(const std::vector<int>& members, std::span<const std::byte> own,
                       const std::vector<std::span<std::byte>>& received, Deadline deadline);

  std::shared_ptr<EventThread> thread_;
  Links links_;
  int rank_;
  std::vector<int> job_ranks_;
  std::shared_ptr<Waits> waits_;
  uint64_t exchanges_ = 0;
  std::map<std::string, int> sub_meshes_;  // How many were made, by their members.
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
  std::string name;
  int own = 0;
  for (const int member : members) {
    if (member == rank_) own = static_cast<int>(job_ranks.size());
    job_ranks.push_back(job_ranks_[member]);
    name += StrCat(name.empty() ? "/" : ",", member);
  }
  const std::string group = StrCat(waits_->group(), name, "#", sub_meshes_[name]++, ";");
  ASSIGN_OR_RETURN(Links links,
                   Links::Make(own, static_cast<int>(members.size()), thread_->device(), TimeLeft(deadline)));
  ASSIGN_OR_RETURN(const std::vector<std::string> addresses, ExchangeText(members, links.Addresses(), deadline));
  RETURN_IF_ERROR(links.Connect(addresses, job_ranks));
  return std::make_unique<GlooMesh>(thread_, std::move(links), own, std::move(job_ranks), waits_->line(), group);
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
  TcpJoin(std::shared_ptr<EventThread> thread, Links links, std::unique_ptr<AbortLine> line)
      : thread_(std::move(thread)),
        links_(std::move(links)),
        line_(std::move(line)),
        address_(ToHex(links_.Addresses()) + kSeparator + line_->address()) {}

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Mesh>> Connect(const std::vector<std::string>& addresses) && override {
    const int rank = links_.data->rank, size = links_.data->size;
    if (static_cast<int>(addresses.size()) != size) {
      return InternalError(StrCat("found addresses of ", addresses.size(), " ranks, expected ", size));
    }
    std::vector<std::string> lists, lines;
    for (const std::string& address : addresses) {
      const size_t end = std::min(address.find(kSeparator), address.size() - 1);
      lists.push_back(FromHex(address.substr(0, end)));
      lines.push_back(address.substr(end + 1));
    }
    std::vector<int> job_ranks;
    for (int peer = 0; peer < size; ++peer) job_ranks.push_back(peer);
    RETURN_IF_ERROR(links_.Connect(lists, job_ranks));
    RETURN_IF_ERROR(line_->Connect(lines, kConnectTimeout));
    return std::make_unique<GlooMesh>(std::move(thread_), std::move(links_), rank, std::move(job_ranks),
                                      std::move(line_),
                                      /*group=*/"");
  }

 private:
  static constexpr char kSeparator = '@';

  std::shared_ptr<EventThread> thread_;
  Links links_;
  std::unique_ptr<AbortLine> line_;
  std::string address_;
};

}  // namespace

StatusOr<std::unique_ptr<GlooJoin>> StartGlooJoin(int rank, int size, const std::string& host_address) {
  std::shared_ptr<EventThread> thread;
  const Status made = Guarded([&] {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = host_address;
    thread = std::make_shared<EventThread>(gloo::transport::tcp::CreateDevice(attributes));
    return OkStatus();
  });
  if (!made.ok()) return Unavailable(StrCat("cannot listen on ", host_address, ": ", made.message()));
  ASSIGN_OR_RETURN(Links links, Links::Make(rank, size, thread->device(), kConnectTimeout));
  ASSIGN_OR_RETURN(std::unique_ptr<AbortLine> line, AbortLine::Listen(rank, size, host_address));
  return std::make_unique<TcpJoin>(std::move(thread), std::move(links), std::move(line));
}

}  // namespace moeplan::executor

#else

namespace moeplan::executor {

StatusOr<std::unique_ptr<GlooJoin>> StartGlooJoin(int, int, const std::string&) {
  return Unimplemented("this build has no Gloo, so ranks cannot be processes; install libgloo-dev and build again");
}

}  // namespace moeplan::executor

#endif
