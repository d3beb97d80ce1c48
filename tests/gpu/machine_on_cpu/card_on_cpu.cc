#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "models/check.h"

using Work = std::function<void()>;

// One lock for the whole card: who waits on it, waits for any change, but a stream's thread for what it is given.
struct Card {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const std::byte*, std::pair<size_t, cudaMemoryType>> memory;
  std::mutex host_functions;  // Taken by the one that runs.
  std::atomic<int> launches = 0, allocations = 0, events = 0;
  const std::string connections = moeplan::on_cpu::FromEnvironment("CUDA_DEVICE_MAX_CONNECTIONS");
};

namespace {

Card& TheCard() {
  static auto* const card = new Card;  // Streams of tests may end after statics.
  return *card;
}

thread_local bool in_host_function = false;
std::unique_lock<std::mutex> Enter() {
  MOEPLAN_CHECK(!in_host_function);  // A card would hang here.
  return std::unique_lock(TheCard().mutex);
}

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

using NodeSet = std::set<int>;

struct GraphOnCpu {
  struct Node {
    Work run;
    NodeSet after;
    EventOnCpu* records = nullptr;
    EventOnCpu* waits_for = nullptr;
  };
  std::vector<Node> nodes;
  std::vector<StreamOnCpu*> streams;
  StreamOnCpu* origin = nullptr;
  cudaError_t error = cudaSuccess;
  std::mt19937 random{12345};
};

struct EventOnCpu {
  uint64_t announced = 0, passed = 0;
  double time_s = 0;
  GraphOnCpu* captured_in = nullptr;
  NodeSet captured;
};

struct StreamOnCpu {
  const int priority;
  std::deque<Work> queue;
  std::condition_variable given;
  bool running = false, stopping = false;
  GraphOnCpu* capture = nullptr;
  NodeSet last;  // What the next node comes after.
  std::thread thread{[this] { Run(); }};

  bool idle() const { return queue.empty() && !running; }
  void Push(Work work) {
    queue.push_back(std::move(work));
    given.notify_one();
  }
  void Run() {
    std::unique_lock lock(TheCard().mutex);
    while (true) {
      given.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      const Work work = std::move(queue.front());
      queue.pop_front();
      running = true;
      lock.unlock();
      work();
      lock.lock();
      running = false;
      if (queue.empty()) TheCard().changed.notify_all();
    }
  }
};

namespace {

void Pass(EventOnCpu& event, uint64_t mark) {
  const std::lock_guard lock(TheCard().mutex);
  event.passed = std::max(event.passed, mark);
  event.time_s = NowS();
  TheCard().changed.notify_all();
}

void AwaitMark(EventOnCpu& event, uint64_t mark) {
  std::unique_lock lock(TheCard().mutex);
  TheCard().changed.wait(lock, [&] { return event.passed >= mark; });
}

int AddNode(StreamOnCpu& stream, GraphOnCpu::Node node) {
  GraphOnCpu& graph = *stream.capture;
  node.after = stream.last;
  graph.nodes.push_back(std::move(node));
  const int id = static_cast<int>(graph.nodes.size()) - 1;
  stream.last = {id};
  return id;
}

cudaError_t Queue(StreamOnCpu& stream, Work work) {
  if (stream.capture != nullptr) {
    AddNode(stream, {.run = std::move(work)});
  } else {
    stream.Push(std::move(work));
  }
  return cudaSuccess;
}

cudaError_t Invalidate(GraphOnCpu& graph, cudaError_t error) {
  graph.error = error;
  return error;
}

cudaMemoryType TypeOf(const void* data) {
  const auto* at = static_cast<const std::byte*>(data);
  auto after = TheCard().memory.upper_bound(at);
  if (after == TheCard().memory.begin()) return cudaMemoryTypeUnregistered;
  const auto& [begin, what] = *--after;
  return at < begin + what.first ? what.second : cudaMemoryTypeUnregistered;
}

cudaError_t Allocate(void** memory, size_t bytes, cudaMemoryType type) {
  const auto lock = Enter();
  *memory = ::operator new (bytes, std::align_val_t{256});
  std::memset(*memory, 0xee, bytes);
  ++TheCard().allocations;
  TheCard().memory[static_cast<std::byte*>(*memory)] = {bytes, type};
  return cudaSuccess;
}

cudaError_t Free(void* memory) {
  const auto lock = Enter();
  if (memory == nullptr) return cudaSuccess;
  MOEPLAN_CHECK(TheCard().memory.erase(static_cast<std::byte*>(memory)) == 1);
  ::operator delete (memory, std::align_val_t{256});
  return cudaSuccess;
}

void AwaitIdle(StreamOnCpu& stream, std::unique_lock<std::mutex>& lock) {
  TheCard().changed.wait(lock, [&] { return stream.idle(); });
}

// A graph under way: as many threads as it was captured from streams take nodes that nothing holds up, any of them.
class Replay {
 public:
  Replay(const GraphOnCpu& graph, std::vector<Work> works, uint32_t seed)
      : works_(std::move(works)), random_(seed), waits_for_(works_.size()), followers_(works_.size()) {
    for (size_t id = 0; id < works_.size(); ++id) {
      waits_for_[id] = graph.nodes[id].after.size();
      for (const int before : graph.nodes[id].after) followers_[before].push_back(id);
      if (waits_for_[id] == 0) ready_.push_back(id);
    }
  }

  void Run(size_t threads) {
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back([this] { TakeNodes(); });
    TakeNodes();
    for (std::thread& one : others) one.join();
  }

 private:
  void TakeNodes() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return taken_ == works_.size() || !ready_.empty(); });
      if (ready_.empty()) return;
      std::swap(ready_[random_() % ready_.size()], ready_.back());
      const size_t id = ready_.back();
      ready_.pop_back();
      ++taken_;
      lock.unlock();
      works_[id]();
      lock.lock();
      for (const size_t after : followers_[id]) {
        if (--waits_for_[after] == 0) ready_.push_back(after);
      }
      // One that got ready is for this thread.
      if (ready_.size() > 1 || taken_ == works_.size()) changed_.notify_all();
    }
  }

  const std::vector<Work> works_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> waits_for_;               // How many nodes, by node.
  std::vector<std::vector<size_t>> followers_;  // By node.
  std::vector<size_t> ready_;
  size_t taken_ = 0;
};

bool AllJoined(const GraphOnCpu& graph) {
  NodeSet joined, look = graph.origin->last;
  while (!look.empty()) {
    const int id = *look.begin();
    look.erase(look.begin());
    if (joined.insert(id).second) look.insert(graph.nodes[id].after.begin(), graph.nodes[id].after.end());
  }
  return joined.size() == graph.nodes.size();
}

int cards = 1;
thread_local int own_card = 0;
thread_local bool refuses_graphs = false;

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  constexpr const char* kNames[] = {"success",
                                    "invalid value",
                                    "out of memory",
                                    "invalid device",
                                    "not ready",
                                    "capture: unsupported",
                                    "capture: unjoined stream",
                                    "capture: a wait for what is outside"};
  return kNames[error];
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  (void)TheCard();  // A card is there from here on.
  *count = cards;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int card) {
  if (card >= cards) return cudaErrorInvalidDevice;
  own_card = card;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* card) {
  *card = own_card;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int card) {
  if (card >= cards) return cudaErrorInvalidDevice;
  *properties = {.name = "card on the CPU",
                 .uuid = {{0x01, 0x23, 0x45, 0x67, '\x89', '\xab', '\xcd', '\xef'}},
                 .totalGlobalMem = size_t{1} << 30,
                 .major = 9,
                 .minor = 0,
                 .multiProcessorCount = 2,
                 .l2CacheSize = 1 << 20};
  properties->uuid.bytes[15] = static_cast<char>(card);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 12090;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1 << 16;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int card) {
  std::snprintf(bus, length, "0000:%02x:00.0", card);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) { return Allocate(memory, bytes, cudaMemoryTypeDevice); }
cudaError_t cudaFree(void* memory) { return Free(memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return Allocate(memory, bytes, cudaMemoryTypeHost); }
cudaError_t cudaFreeHost(void* memory) { return Free(memory); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const auto lock = Enter();
  attributes->type = TypeOf(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const auto lock = Enter();
  if (TypeOf(to) == cudaMemoryTypeUnregistered) return cudaErrorInvalidValue;
  if (TypeOf(from) != cudaMemoryTypeUnregistered) {
    return Queue(*stream, [=] { std::memmove(to, from, bytes); });
  }
  // A card reads pageable memory when it is asked to, and needs it at once.
  if (stream->capture != nullptr) return Invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
  const auto* begin = static_cast<const std::byte*>(from);
  return Queue(*stream, [to, now = std::vector<std::byte>(begin, begin + bytes)] {
    if (!now.empty()) std::memcpy(to, now.data(), now.size());
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const auto lock = Enter();
  return Queue(*stream, [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  const auto lock = Enter();
  *stream = new StreamOnCpu{.priority = priority};
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    auto lock = Enter();
    AwaitIdle(*stream, lock);
    stream->stopping = true;
    stream->given.notify_one();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto lock = Enter();
  if (stream->capture != nullptr) return Invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  auto lock = Enter();
  if (stream->capture != nullptr) return Invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
  AwaitIdle(*stream, lock);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const auto lock = Enter();
  if (flags == cudaEventWaitExternal) {
    if (stream->capture == nullptr) return cudaErrorInvalidValue;
    AddNode(*stream, {.waits_for = event});
    return cudaSuccess;
  }
  if (GraphOnCpu* const graph = event->captured_in; graph != nullptr) {
    if (stream->capture != nullptr && stream->capture != graph) return cudaErrorStreamCaptureIsolation;
    if (std::exchange(stream->capture, graph) == nullptr) graph->streams.push_back(stream);
    stream->last.insert(event->captured.begin(), event->captured.end());
    return cudaSuccess;
  }
  if (stream->capture != nullptr) return Invalidate(*stream->capture, cudaErrorStreamCaptureIsolation);
  return Queue(*stream, [event, mark = event->announced] { AwaitMark(*event, mark); });
}

// Looks again and again, as a card does; what raises the number tells nobody.
CUresult cuStreamWaitValue32(cudaStream_t stream, CUdeviceptr number, unsigned value, unsigned) {
  const auto lock = Enter();
  if (TypeOf(reinterpret_cast<const void*>(number)) == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  Queue(*stream, [at = std::atomic_ref(*reinterpret_cast<unsigned*>(number)), value] {
    while (static_cast<int>(at.load(std::memory_order_acquire) - value) < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::string_view(name) == "cuStreamWaitValue32";
  *function = known ? reinterpret_cast<void*>(&cuStreamWaitValue32) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const auto lock = Enter();
  return Queue(*stream, [=] {
    const std::lock_guard turn(TheCard().host_functions);
    in_host_function = true;
    function(data);
    in_host_function = false;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const auto lock = Enter();
  *event = new EventOnCpu;
  ++TheCard().events;
  return cudaSuccess;
}
// Freed when it has passed, as a card does.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  auto lock = Enter();
  TheCard().changed.wait(lock, [&] { return event->passed == event->announced; });
  delete event;
  --TheCard().events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto lock = Enter();
  event->captured_in = stream->capture;
  if (stream->capture != nullptr) {
    event->captured = stream->last;
    return cudaSuccess;
  }
  return Queue(*stream, [event, mark = ++event->announced] { Pass(*event, mark); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, stream);
  const auto lock = Enter();
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  AddNode(*stream, {.records = event});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto lock = Enter();
  return event->passed == event->announced ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  auto lock = Enter();
  TheCard().changed.wait(lock, [&] { return event->passed == event->announced; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t from, cudaEvent_t to) {
  const auto lock = Enter();
  if (from->passed == 0 || to->passed == 0) return cudaErrorInvalidValue;
  *elapsed_ms = static_cast<float>((to->time_s - from->time_s) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
  std::swap(own, *mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const auto lock = Enter();
  stream->capture = new GraphOnCpu{.streams = {stream}, .origin = stream};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto lock = Enter();
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = Enter();
  GraphOnCpu* const captured = stream->capture;
  if (captured->error == cudaSuccess && !AllJoined(*captured)) captured->error = cudaErrorStreamCaptureUnjoined;
  for (StreamOnCpu* one : captured->streams) {
    one->capture = nullptr;
    one->last.clear();
  }
  *graph = captured->error == cudaSuccess ? captured : nullptr;
  const cudaError_t error = captured->error;
  if (error != cudaSuccess) delete captured;
  return error;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* runs, cudaGraph_t graph, unsigned long long) {
  const auto lock = Enter();
  if (refuses_graphs) return cudaErrorMemoryAllocation;
  *runs = new GraphOnCpu{.nodes = graph->nodes, .streams = graph->streams};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t runs, cudaStream_t stream) {
  const auto lock = Enter();
  ++TheCard().launches;
  std::vector<Work> works;
  for (const GraphOnCpu::Node& node : runs->nodes) {
    if (node.records != nullptr) {
      works.push_back([event = node.records, mark = ++node.records->announced] { Pass(*event, mark); });
    } else if (node.waits_for != nullptr) {
      works.push_back([event = node.waits_for, mark = node.waits_for->announced] { AwaitMark(*event, mark); });
    } else {
      works.push_back(node.run);
    }
  }
  const auto replay = std::make_shared<Replay>(*runs, std::move(works), runs->random());
  return Queue(*stream, [replay, threads = runs->streams.size()] { replay->Run(threads); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t runs) {
  delete runs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

namespace moeplan::on_cpu {

void SetCards(int count) { cards = count; }
std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}
void RefuseGraphs() { refuses_graphs = true; }
std::string Connections() { return TheCard().connections; }
int Launches() { return TheCard().launches; }
int Allocations() { return TheCard().allocations; }
int Events() { return TheCard().events; }

cudaError_t Launch(std::function<void()> kernel, cudaStream_t stream) {
  const auto lock = Enter();
  return Queue(*stream, std::move(kernel));
}

}  // namespace moeplan::on_cpu
