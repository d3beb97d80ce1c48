#include "executor/host/stream_crew.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "executor/host/thread_priority.h"
#include "models/check.h"

namespace moeplan::executor {
namespace {

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

StreamCrew::~StreamCrew() {
  {
    const std::lock_guard lock(mutex_);
    for (const Watch& watch : watches_) MOEPLAN_CHECK(watch.streams == 0);
    stopping_ = true;
  }
  for (Watch& watch : watches_) {
    watch.wake.notify_all();
    for (std::thread& thread : watch.threads) thread.join();
  }
}

void StreamCrew::Join(CrewStream& stream, StreamPriority priority) {
  Watch& watch = watches_[priorities_apart_ ? static_cast<size_t>(priority) : 0];
  stream.watch_ = &watch;
  if (++watch.streams <= watch.threads.size()) return;
  watch.threads.emplace_back([this, &watch, priority] {
    if (priorities_apart_) priority == StreamPriority::kNormal ? RunAfterOthers() : RunPromptly();
    RunStreams(watch);
  });
}

void StreamCrew::Leave(CrewStream& stream) {
  AwaitStream(stream);
  const std::lock_guard lock(mutex_);
  --stream.watch_->streams;
}

void StreamCrew::Queue(std::span<const QueuedStep> steps) {
  {
    const std::lock_guard lock(mutex_);
    for (auto [stream, step] : steps) {
      if (step.kind == CrewStep::Kind::kRecord) ++step.event->announced_;
      if (step.kind == CrewStep::Kind::kWait) step.marks = step.event->announced_;
      stream->incoming_.push_back(step);
      if (stream->busy_.exchange(true)) continue;
      ++busy_;
      MakeReady(*stream);
    }
  }
  CallHelpers();
}

void StreamCrew::Reserve(CrewStream& stream, size_t steps) {
  const std::lock_guard lock(mutex_);
  stream.reserved_ = std::max(stream.reserved_, steps);
  stream.incoming_.reserve(stream.reserved_);
}

void StreamCrew::AwaitIdle() {
  SpinUntil([this] { return busy_ == 0; });
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return busy_ == 0; });
}

void StreamCrew::AwaitStream(const CrewStream& stream) {
  SpinUntil([&] { return !stream.busy_; });
  std::unique_lock lock(mutex_);
  ++awaited_;
  idle_.wait(lock, [&] { return !stream.busy_; });
  --awaited_;
}

void StreamCrew::RunStreams(Watch& watch) {
  while (CrewStream* stream = NextReady(watch)) {
    Run(*stream);
    CallHelpers(/*but_of=*/&watch);  // This thread looks there itself.
  }
}

// The next stream that can run; null when there will be none.
CrewStream* StreamCrew::NextReady(Watch& watch) {
  bool helping = false, has_spun = false;
  std::unique_lock lock(mutex_);
  while (true) {
    if (CrewStream* stream = watch.first_ready; stream != nullptr) {
      watch.first_ready = std::exchange(stream->next_, nullptr);
      --watch.ready;
      if (helping) watch.helper_coming = false;
      return stream;
    }
    if (stopping_) return nullptr;
    if (!has_spun && (helping || !watch.helper_coming)) {
      helping = has_spun = watch.helper_coming = true;
      lock.unlock();
      SpinUntil([&] { return watch.ready > 0 || stopping_; });
      lock.lock();
      continue;
    }
    if (helping) watch.helper_coming = false;
    ++watch.sleeping;
    watch.wake.wait(lock);
    --watch.sleeping;
    helping = true;
    has_spun = false;
  }
}

void StreamCrew::Run(CrewStream& stream) {
  while (stream.next_step_ < stream.running_.size() || Refill(stream)) {
    const CrewStep step = stream.running_[stream.next_step_++];
    switch (step.kind) {
      case CrewStep::Kind::kRecord: Pass(*step.event); break;
      case CrewStep::Kind::kWait:
        if (!step.event->HasPassed(step.marks) && PutAside(stream, *step.event, step.marks)) return;
        break;
      case CrewStep::Kind::kWork:
      case CrewStep::Kind::kOwnedWork:
        CallHelpers();  // Work may take long: other streams should not wait for this thread.
        run_work_(*step.work);
        if (step.kind == CrewStep::Kind::kOwnedWork) delete step.work;
        break;
    }
  }
}

// False when nothing is left: then the stream is no longer the caller's.
bool StreamCrew::Refill(CrewStream& stream) {
  const std::lock_guard lock(mutex_);
  std::swap(stream.running_, stream.incoming_);
  stream.next_step_ = 0;
  stream.incoming_.clear();
  stream.incoming_.reserve(stream.reserved_);
  if (!stream.running_.empty()) return true;
  stream.busy_ = false;
  if (--busy_ == 0 || awaited_ > 0) idle_.notify_all();
  return false;
}

// Whether the stream now waits for the event: then it is no longer the caller's.
bool StreamCrew::PutAside(CrewStream& stream, CrewEvent& event, uint32_t marks) {
  const std::lock_guard lock(mutex_);
  stream.awaited_marks_ = marks;
  stream.next_ = event.waiting_;
  event.waiting_ = &stream;
  // Pass counts first and looks for waiting streams then; so either it sees this one, or this sees its count.
  if (!event.HasPassed(marks)) return true;
  event.waiting_ = std::exchange(stream.next_, nullptr);
  return false;
}

void StreamCrew::Pass(CrewEvent& event) {
  event.time_s_.store(NowS(), std::memory_order_relaxed);
  ++event.passed_;
  if (event.waiting_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  CrewStream* stream = event.waiting_.exchange(nullptr);
  while (stream != nullptr) {
    CrewStream* next = std::exchange(stream->next_, nullptr);
    if (event.HasPassed(stream->awaited_marks_)) {
      MakeReady(*stream);
    } else {
      stream->next_ = event.waiting_;
      event.waiting_ = stream;
    }
    stream = next;
  }
}

// Under the lock.
void StreamCrew::MakeReady(CrewStream& stream) {
  Watch& watch = *stream.watch_;
  (watch.first_ready == nullptr ? watch.first_ready : watch.last_ready->next_) = &stream;
  watch.last_ready = &stream;
  ++watch.ready;
}

// Wakes a thread when streams can run and nobody is coming for them. The one that comes calls the next.
void StreamCrew::CallHelpers(const Watch* but_of) {
  for (Watch& watch : watches_) {
    if (&watch == but_of || watch.ready == 0 || watch.helper_coming) continue;
    {
      const std::lock_guard lock(mutex_);
      if (watch.ready == 0 || watch.helper_coming || watch.sleeping == 0) continue;
      watch.helper_coming = true;
    }
    watch.wake.notify_one();
  }
}

}  // namespace moeplan::executor
