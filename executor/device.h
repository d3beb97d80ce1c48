// The seam between the runtime and a machine: memory, streams, events.
//
// A Stream runs what is queued on it in order; streams run beside each other. An Event marks a point of a stream that
// others can wait for and whose time can be read afterwards. Everything here queues and returns at once, except
// Synchronize. A device belongs to one rank and is driven by one thread.
//
// Errors: what fails while a stream runs (a lost peer, a deadline) stops the device: later work is skipped, events
// still pass, and Synchronize returns the first error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "models/status.h"

namespace moeplan::executor {

class Stream {
 public:
  virtual ~Stream() = default;
};

// Of streams that are ready at once, those of high priority go first: where they share a processor with others, what
// runs beside the compute of a GPU (collectives, copies) should not wait for it here. kData: as kHigh, but behind it
// (Device::data_goes_last), for data-parallel traffic: of the layer only what is queued after it waits for it.
enum class StreamPriority { kNormal, kHigh, kData };
inline constexpr int kStreamPriorities = 3;

class Event {
 public:
  virtual ~Event() = default;
};

// Work taken down once, to be queued again and again (Device::Capture).
class Recording {
 public:
  // Blocks while a stream still needs it. Streams and events must outlive it.
  virtual ~Recording() = default;
  // Queues all of it, as if `queue` were called again, and for less.
  virtual void Enqueue() = 0;

  // Whether Enqueue may replay on one rank and call `queue` on another that took down the same, because a machine has
  // refused it there. Then all ranks whose work meets agree before the first Enqueue. The same on all of them.
  virtual bool MayDiffer() const { return false; }
  // Makes it ready; whether Enqueue will replay it on this rank.
  virtual bool CanReplay() { return true; }
  // From now on Enqueue calls `queue`; or it replays, or is an error of the device where this rank cannot.
  virtual void QueueAnew() {}
  virtual void ReplayOrFail() {}
};

// Memory of a device, freed with the handle. Contents start as zero.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::byte* data, size_t bytes, std::function<void(std::byte*)> release)
      : data_(data, std::move(release)), bytes_(bytes) {}

  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{nullptr, [](std::byte*) {}};
  size_t bytes_ = 0;
};

// The tokens that work is about: of the call, and of the source batch that they are a part of.
struct CallTokens {
  int32_t call = 0, batch = 0;

  friend bool operator==(const CallTokens&, const CallTokens&) = default;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual StatusOr<DeviceMemory> Allocate(size_t bytes) = 0;
  // Whether functions of the host that streams call find in that memory what work before them has written.
  virtual bool host_reads_memory() const = 0;
  virtual std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority) = 0;
  // Whether streams of priority kData are behind those of kHigh; else they are the same.
  virtual bool data_goes_last() const { return false; }
  virtual std::unique_ptr<Event> MakeEvent() = 0;

  // Marks the point that `stream` has reached; replaces an earlier mark of the same event.
  virtual void Record(Event& event, Stream& stream) = 0;
  // Holds `stream` until the last Record of `event` before this call has passed.
  virtual void Wait(Stream& stream, Event& event) = 0;
  // Copies within the device or between it and the host.
  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) = 0;
  // What the work queued next on `stream` belongs to: names it in errors, profilers and virtual clocks.
  virtual void Label(Stream& stream, const std::string& task) = 0;
  // How many tokens the collectives queued next on `stream` are about. Where it can tell, a backend lets a collective
  // fail with kInvalidInput whose ranks have said different numbers.
  virtual void SetTokens(Stream&, const CallTokens&) {}

  // Takes down what `queue` queues on streams of this device, running none of it. `queue` is called now or, by devices
  // that keep no work, at each Enqueue; it queues the same every time and makes no recording. What it passes by pointer
  // must live as long as the recording.
  virtual std::unique_ptr<Recording> Capture(std::function<void()> queue) = 0;

  // A stream that the job itself has on this device, such as the current one of PyTorch; null: its default stream.
  using JobStream = void*;
  // Where a job uses the device's memory in place: holds `stream` until the job's stream has come this far, or the
  // job's stream until `stream` has. kInvalidInput for a stream that is being captured.
  virtual Status FollowJob(Stream& /*stream*/, JobStream /*job*/) { return OkStatus(); }
  virtual void HoldJob(JobStream /*job*/, Stream& /*stream*/) {}
  // Whether the memory is the device's, so that its kernels can use it in place.
  virtual bool Holds(const void* /*memory*/) const { return host_reads_memory(); }
  // Makes the calling thread one that may drive the device, until the handle goes.
  virtual std::shared_ptr<void> Enter() { return nullptr; }

  // Looks after what is queued, whose peers may be lost, and does not wait for it.
  virtual void Look() {}
  // The first error that is known by now.
  virtual Status first_error() const { return OkStatus(); }
  // Blocks until everything queued has passed; the first error since the device was made.
  virtual Status Synchronize() = 0;
  // The same of what is queued on `stream` alone. Not while capturing.
  virtual Status Await(Stream& stream) = 0;
  // When a recorded event passed, in seconds on this device's clock. Only after Synchronize.
  virtual double TimeS(const Event& event) const = 0;
};

}  // namespace moeplan::executor
