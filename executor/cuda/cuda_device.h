// The cuda backend's device: CUDA streams and events on one card, which several devices may share, each with streams of
// its own and a thread of its own that drives it and has made it.
//
// Streams are HostStreams too: work of the host runs as a host function of the stream, where it must call no CUDA and
// wait for no other host function. Copy takes any memory; what is pageable goes through pinned memory in pieces, so
// rows should lie on the card. After an error, what is queued by then still runs on the card, but for host functions
// and copies through the host; nothing more is queued.
//
// Capture takes the work down as a CUDA graph over all streams that it uses: a replay begins when all of these have
// come to it, and they go on when it has ended. Where the host is needed in its midst (RefuseCapture), Enqueue queues
// anew.
//
// TimeS is the machine's monotonic clock, as that of the host backend, see clock_anchor.h.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "executor/device.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

// kPinned: pinned memory of the host, which may read and write it while the card runs. For tests: the card reaches it
// over its bus.
enum class MemoryKind { kDevice, kPinned };

struct CudaDeviceOptions {
  int card = 0;
  MemoryKind memory = MemoryKind::kDevice;
};

class CudaDevice : public Device {
 public:
  // TimeS of an event that is recorded now is off by no more than this.
  virtual double clock_uncertainty_s() const = 0;

  // Stops the device with `why` as if work had failed; from any thread, host functions of streams included.
  virtual void Fail(const Status& why) = 0;
  // Called once, on the failing thread, when the device stops; must call no CUDA.
  virtual void OnFailure(std::function<void(const Status&)> callback) = 0;
  virtual bool failed() const = 0;

  // Whether what is queued is being taken down.
  virtual bool capturing() const = 0;
  // While capturing: `handle` goes when the graph goes.
  virtual void KeepWithCapture(std::shared_ptr<void> handle) = 0;
  // The work under capture can be a graph on no rank: what follows is queued in vain, and again at each Enqueue.
  virtual void RefuseCapture(const std::string& why) = 0;
  // How often recordings were replayed: events inside them are not those of the replay before.
  virtual uint64_t replays() const = 0;

  // `look` is called every few milliseconds while this device waits for the card, and whenever that ends, on its
  // thread, until the handle goes.
  virtual std::shared_ptr<void> Watch(std::function<void()> look) = 0;

  // Device memory that holds `bytes`. Blocks; allowed while capturing, like Allocate, and then not part of the graph.
  virtual StatusOr<DeviceMemory> Upload(const std::byte* from, size_t bytes) = 0;
};

// kUnavailable without such a card. The calling thread is the one that drives the device.
StatusOr<std::unique_ptr<CudaDevice>> MakeCudaDevice(const CudaDeviceOptions& options);

// What work of our own is launched on, in the order of calls. Not to be kept beyond a launch: a stream joins a capture
// here.
cudaStream_t StreamOf(Stream& stream);
// Fails the device of `stream` with an error of what was launched on it, naming the task. OK: nothing.
void Report(Stream& stream, const Status& launched);

}  // namespace moeplan::executor::cuda
