#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include "models/check.h"

namespace {

// What one side has brought; gone once the other has come.
struct Move {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  bool sends = false;
  bool done = false;
};

struct World {
  std::vector<CommOnCpu*> members;                                           // By rank; null: not yet.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Move>>> waiting;  // By sender and receiver.
  std::map<int, std::map<int, std::shared_ptr<World>>> splits;               // By number and color.
  std::map<int, std::vector<std::pair<CommOnCpu*, CommOnCpu**>>> made;       // By number of the split, and where to.
  std::map<int, std::vector<CommOnCpu*>> splitting;                          // By number: who has called.

  bool complete() const {
    for (const CommOnCpu* member : members) {
      if (member == nullptr) return false;
    }
    return true;
  }
};

}  // namespace

struct CommOnCpu {
  std::shared_ptr<World> world;  // Null: its split is under way.
  int rank = 0;
  int splits = 0;
  int busy_looks = 0;  // How often it will say that it is under way.
  int running = 0;     // Operations on streams.
  int captured = 0;    // Operations in graphs that were not destroyed, or run.
  int registered = 0;
  bool aborted = false, finalizing = false, splitting = false;
  std::thread::id card;  // A rank has a thread and a card of its own, and makes its communicators there.
};

namespace {

struct Nccl {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<World>> worlds;
  int ids = 0;
  const std::string launch_order = moeplan::on_cpu::FromEnvironment("NCCL_LAUNCH_ORDER_IMPLICIT");
  std::deque<CommOnCpu> all;  // Streams may still have operations of those that are gone.
  std::atomic<int> communicators = 0, registrations = 0;
  std::atomic<ncclResult_t> broken = ncclSuccess;
};

Nccl& TheNccl() {
  static auto* const nccl = new Nccl;
  return *nccl;
}

constexpr int kBusyLooks = 3;
// How long ending a communicator waits for what NCCL would wait for without end.
constexpr std::chrono::seconds kEndless{10};

struct Request {
  CommOnCpu* comm;
  cudaStream_t stream;
  int peer;
  Move move;
};
thread_local std::vector<Request> group;
thread_local int group_depth = 0;
thread_local int max_ctas = 0;

// Keeps a communicator from ending while a graph has an operation of it, as the persistent plans of NCCL do. The copies
// of an operation, in the graph, in what was instantiated from it and in a launch that has not ended, share one.
class Captured {
 public:
  explicit Captured(CommOnCpu& comm) : comm_(comm) {
    const std::lock_guard lock(TheNccl().mutex);
    ++comm_.captured;
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    const std::lock_guard lock(TheNccl().mutex);
    --comm_.captured;
    TheNccl().changed.notify_all();
  }

 private:
  CommOnCpu& comm_;
};

bool IsReady(const CommOnCpu& comm) {
  if (comm.world == nullptr || !comm.world->complete() || comm.splitting || comm.busy_looks > 0) return false;
  return !comm.finalizing || (comm.running == 0 && comm.captured == 0);
}

// Waits as NCCL does: for the communicator's own operations, for all graphs that have any, and, to free memory, for
// what runs on the card. What is still there after kEndless leaves the communicator behind.
ncclResult_t End(CommOnCpu& comm, std::unique_lock<std::mutex>& lock) {
  const auto idle = [&] {
    return comm.captured == 0 && std::ranges::all_of(TheNccl().all, [&](const CommOnCpu& other) {
             return other.card != comm.card || other.running == 0;
           });
  };
  if (!TheNccl().changed.wait_for(lock, kEndless, idle)) return ncclInternalError;
  MOEPLAN_CHECK(comm.registered == 0 || comm.aborted);
  TheNccl().registrations -= comm.registered;
  --TheNccl().communicators;
  return ncclSuccess;
}

bool Fits(const Move& one, const Move& other) { return one.sends != other.sends; }

// On the stream's thread: all moves of one communicator at once.
void Run(CommOnCpu& comm, const std::vector<Request>& requests) {
  std::unique_lock lock(TheNccl().mutex);
  std::vector<std::shared_ptr<Move>> own;
  for (const Request& request : requests) {
    const int from = request.move.sends ? comm.rank : request.peer, to = request.move.sends ? request.peer : comm.rank;
    auto& waiting = comm.world->waiting[{from, to}];
    if (!waiting.empty() && Fits(*waiting.front(), request.move)) {
      Move& other = *waiting.front();
      const Move &send = other.sends ? other : request.move, &receive = other.sends ? request.move : other;
      MOEPLAN_CHECK(send.bytes == receive.bytes);
      std::memmove(receive.to, send.from, send.bytes);
      other.done = true;
      waiting.pop_front();
      continue;
    }
    own.push_back(std::make_shared<Move>(request.move));
    waiting.push_back(own.back());
  }
  TheNccl().changed.notify_all();
  for (const auto& move : own) TheNccl().changed.wait(lock, [&] { return move->done || comm.aborted; });
  --comm.running;
  TheNccl().changed.notify_all();
}

ncclResult_t Add(const Request& request) {
  group.push_back(request);
  if (group_depth > 0) return ncclSuccess;
  ++group_depth;
  return ncclGroupEnd();
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22803;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(TheNccl().mutex);
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "job %d", ++TheNccl().ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  MOEPLAN_CHECK(config->blocking == 0);
  max_ctas = config->maxCTAs;
  const std::lock_guard lock(TheNccl().mutex);
  auto& world = TheNccl().worlds[id.internal];
  if (world == nullptr) world = std::make_shared<World>(World{.members = std::vector<CommOnCpu*>(ranks)});
  *comm = world->members[rank] = &TheNccl().all.emplace_back(
      CommOnCpu{.world = world, .rank = rank, .busy_looks = kBusyLooks, .card = std::this_thread::get_id()});
  ++TheNccl().communicators;
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int, ncclComm_t* made, ncclConfig_t* config) {
  MOEPLAN_CHECK(config->blocking == 0 && color >= 0);
  max_ctas = config->maxCTAs;
  const std::lock_guard lock(TheNccl().mutex);
  World& world = *comm->world;
  const int number = comm->splits++;
  CommOnCpu& own = TheNccl().all.emplace_back(CommOnCpu{.busy_looks = kBusyLooks, .card = std::this_thread::get_id()});
  ++TheNccl().communicators;
  comm->busy_looks = kBusyLooks;
  comm->splitting = true;
  auto& child = world.splits[number][color];
  if (child == nullptr)
    child = std::make_shared<World>(World{.members = std::vector<CommOnCpu*>(world.members.size())});
  child->members[comm->rank] = &own;
  *made = nullptr;
  world.made[number].emplace_back(&own, made);
  world.splitting[number].push_back(comm);
  if (world.made[number].size() < world.members.size()) return ncclInProgress;
  for (auto& [any, one] : world.splits[number]) {
    std::erase(one->members, nullptr);
    for (size_t i = 0; i < one->members.size(); ++i) {
      one->members[i]->rank = static_cast<int>(i);
      one->members[i]->world = one;
    }
  }
  // NCCL, too, writes only now: who has given up by then must not have freed the place.
  for (const auto& [one, place] : world.made[number]) *place = one;
  for (CommOnCpu* parent : world.splitting[number]) parent->splitting = false;
  return ncclInProgress;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  if (memory == nullptr || bytes == 0) return ncclInvalidArgument;
  const std::lock_guard lock(TheNccl().mutex);
  ++comm->registered;
  ++TheNccl().registrations;
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const std::lock_guard lock(TheNccl().mutex);
  MOEPLAN_CHECK(handle != nullptr && comm->registered > 0);
  --comm->registered;
  --TheNccl().registrations;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(TheNccl().mutex);
  if (TheNccl().broken != ncclSuccess) return TheNccl().broken;
  if (!IsReady(*comm)) return ncclInvalidArgument;
  comm->finalizing = true;
  comm->busy_looks = kBusyLooks;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::unique_lock lock(TheNccl().mutex);
  return End(*comm, lock);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(TheNccl().mutex);
  comm->aborted = true;
  TheNccl().changed.notify_all();
  return End(*comm, lock);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(TheNccl().mutex);
  *state = TheNccl().broken != ncclSuccess ? TheNccl().broken.load() : IsReady(*comm) ? ncclSuccess : ncclInProgress;
  if (comm->busy_looks > 0) --comm->busy_looks;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "internal error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group.empty()) return ncclSuccess;
  std::vector<Request> requests;
  requests.swap(group);
  CommOnCpu* const comm = requests[0].comm;
  {
    const std::lock_guard lock(TheNccl().mutex);
    comm->busy_looks = kBusyLooks;
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(requests[0].stream, &status);
  const auto captured = status == cudaStreamCaptureStatusNone ? nullptr : std::make_shared<const Captured>(*comm);
  const auto run = [comm, requests, captured] {
    {
      const std::lock_guard lock(TheNccl().mutex);
      ++comm->running;
    }
    Run(*comm, requests);
  };
  return moeplan::on_cpu::Launch(run, requests[0].stream) == cudaSuccess ? ncclInProgress : ncclUnhandledCudaError;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add({comm, stream, peer, {.from = static_cast<const std::byte*>(data), .bytes = count, .sends = true}});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add({comm, stream, peer, {.to = static_cast<std::byte*>(data), .bytes = count}});
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclGroupStart();
  for (int peer = 0; peer < static_cast<int>(comm->world->members.size()); ++peer) {
    ncclSend(send, count, type, peer, comm, stream);
    ncclRecv(static_cast<std::byte*>(recv) + peer * count, count, type, peer, comm, stream);
  }
  return ncclGroupEnd();
}

namespace moeplan::on_cpu {

void BreakNccl(ncclResult_t result) { TheNccl().broken = result; }
int Communicators() { return TheNccl().communicators; }
int Registrations() { return TheNccl().registrations; }
int MaxCtas() { return max_ctas; }
std::string LaunchOrder() { return TheNccl().launch_order; }

}  // namespace moeplan::on_cpu
