// The threads of a host device and the streams they run.
//
// A stream is a queue of steps, run in order by whichever thread has taken it, one at a time. A stream that has to wait
// for an event is put aside, not its thread, which goes on with one that can run: tasks that follow one another across
// streams stay on one thread, and no hop between them wakes another. There are as many threads as streams, so work
// that blocks (a collective) holds up no other stream. A thread without a stream looks for one a few microseconds, and
// then sleeps; of all that look, one at a time. Why not a thread that stays with its stream: docs/decisions/0007.
//
// Where the process has one processor, streams of high and of normal priority have threads of their own, and the system
// prefers those of high priority: collectives go on while experts compute, as beside a GPU's.
//
// Steps are queued and waited for by one thread, the device's. Within what was reserved, queueing allocates nothing.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "executor/host/host_stream.h"
#include "executor/host/spin.h"

namespace moeplan::executor {

class CrewStream;

// Marks are counted, in the order they pass. So of marks on several streams at once one may be taken for another, but
// who waits for the last of them waits for all.
class CrewEvent final : public Event {
 public:
  // Of the last mark that passed.
  double time_s() const { return time_s_.load(std::memory_order_relaxed); }

 private:
  friend class StreamCrew;
  bool HasPassed(uint32_t marks) const { return static_cast<int32_t>(passed_.load() - marks) >= 0; }

  uint32_t announced_ = 0;  // Marks queued so far.
  std::atomic<uint32_t> passed_ = 0;
  std::atomic<double> time_s_ = 0;
  std::atomic<CrewStream*> waiting_ = nullptr;  // Streams put aside; changed under the crew's lock.
};

struct CrewStep {
  enum class Kind : uint32_t { kRecord, kWait, kWork, kOwnedWork };
  Kind kind;
  uint32_t marks = 0;  // Of a wait: as many have to pass.
  union {
    CrewEvent* event;
    const HostStream::Work* work;  // kOwnedWork is deleted once it has run.
  };

  static CrewStep Record(CrewEvent& event) { return {.kind = Kind::kRecord, .event = &event}; }
  static CrewStep Wait(CrewEvent& event) { return {.kind = Kind::kWait, .event = &event}; }
  static CrewStep Run(const HostStream::Work* work, bool owned) {
    return {.kind = owned ? Kind::kOwnedWork : Kind::kWork, .work = work};
  }
};

struct QueuedStep {
  CrewStream* stream;
  CrewStep step;
};

class StreamCrew {
 public:
  // Runs the work of a stream; any thread of the crew calls it.
  using Runner = std::function<void(const HostStream::Work& work)>;
  explicit StreamCrew(Runner run_work, bool priorities_apart = !MayRunBesideItself())
      : run_work_(std::move(run_work)), priorities_apart_(priorities_apart) {}
  // Requires that all streams have left.
  ~StreamCrew();

  void Join(CrewStream& stream, StreamPriority priority);
  // Blocks until the stream has run what is queued on it.
  void Leave(CrewStream& stream);

  // Queues steps in the order given, across streams: a wait is for the last mark of its event that comes before it.
  void Queue(std::span<const QueuedStep> steps);
  // Makes room for as many steps at a time on `stream`.
  void Reserve(CrewStream& stream, size_t steps);
  // Blocks until no stream has anything left to run.
  void AwaitIdle();
  // Blocks until the stream has run what is queued on it.
  void AwaitStream(const CrewStream& stream);

 private:
  friend class CrewStream;
  // Threads, and the streams that they run.
  struct Watch {
    std::vector<std::thread> threads;
    size_t streams = 0;
    CrewStream *first_ready = nullptr, *last_ready = nullptr;
    std::atomic<int> ready = 0;               // Streams that can run.
    std::atomic<bool> helper_coming = false;  // A thread is awake and looks for a stream.
    int sleeping = 0;
    std::condition_variable wake;
  };

  void RunStreams(Watch& watch);
  CrewStream* NextReady(Watch& watch);
  void Run(CrewStream& stream);
  bool Refill(CrewStream& stream);
  bool PutAside(CrewStream& stream, CrewEvent& event, uint32_t marks);
  void Pass(CrewEvent& event);
  void MakeReady(CrewStream& stream);
  void CallHelpers(const Watch* but_of = nullptr);

  const Runner run_work_;
  const bool priorities_apart_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::atomic<int> busy_ = 0;  // Streams that have anything to run.
  std::atomic<bool> stopping_ = false;
  int awaited_ = 0;                               // Streams that somebody waits for.
  std::array<Watch, kStreamPriorities> watches_;  // By priority, or the first for all.
};

// What the crew keeps of a stream.
class CrewStream {
 private:
  friend class StreamCrew;
  StreamCrew::Watch* watch_ = nullptr;
  // Under the crew's lock.
  std::vector<CrewStep> incoming_;
  size_t reserved_ = 0;
  std::atomic<bool> busy_ = false;  // Changes under the lock.
  CrewStream* next_ = nullptr;      // In the list of those that can run, or that wait for an event.
  uint32_t awaited_marks_ = 0;
  // Of the thread that runs it.
  std::vector<CrewStep> running_;
  size_t next_step_ = 0;
};

}  // namespace moeplan::executor
