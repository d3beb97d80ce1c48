#include "executor/host/stream_crew.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "executor/host/spin.h"
#include "models/check.h"

namespace moeplan {
namespace {

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// On the only processor of a rank, the thread that moves bytes shall not wait for a time slice of the experts': GPUs
// compute beside their network, too.
void ComeAfterTransfers() {
  constexpr int kNicer = 10;
  (void)setpriority(PRIO_PROCESS, /*this thread*/ 0, getpriority(PRIO_PROCESS, 0) + kNicer);
}

}  // namespace

StreamCrew::~StreamCrew() {
  {
    const std::lock_guard lock(mutex_);
    MOEPLAN_CHECK(streams_ == 0);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void StreamCrew::Join() {
  if (++streams_ > threads_.size()) {
    threads_.emplace_back([this] {
      if (!MayRunBesideItself()) ComeAfterTransfers();
      RunStreams();
    });
  }
}

void StreamCrew::Leave(CrewStream& stream) {
  std::unique_lock lock(mutex_);
  ++leaving_;
  idle_.wait(lock, [&] { return !stream.busy_; });
  --leaving_;
  --streams_;
}

void StreamCrew::Queue(std::span<const QueuedStep> steps) {
  {
    const std::lock_guard lock(mutex_);
    for (auto [stream, step] : steps) {
      if (step.kind == Step::Kind::kRecord) ++step.event->announced_;
      if (step.kind == Step::Kind::kWait) step.marks = step.event->announced_;
      stream->incoming_.push_back(step);
      if (std::exchange(stream->busy_, true)) continue;
      ++busy_;
      MakeReady(*stream);
    }
  }
  CallHelper();
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

void StreamCrew::RunStreams() {
  while (CrewStream* stream = NextReady()) Run(*stream);
}

// The next stream that can run; null when there will be none.
CrewStream* StreamCrew::NextReady() {
  bool helping = false, has_spun = false;
  std::unique_lock lock(mutex_);
  while (true) {
    if (CrewStream* stream = first_ready_; stream != nullptr) {
      first_ready_ = std::exchange(stream->next_, nullptr);
      --ready_;
      if (helping) helper_coming_ = false;
      return stream;
    }
    if (stopping_) return nullptr;
    if (!has_spun && (helping || !helper_coming_)) {
      helping = has_spun = helper_coming_ = true;
      lock.unlock();
      SpinUntil([this] { return ready_ > 0 || stopping_; });
      lock.lock();
      continue;
    }
    if (helping) helper_coming_ = false;
    ++sleeping_;
    wake_.wait(lock);
    --sleeping_;
    helping = true;
    has_spun = false;
  }
}

void StreamCrew::Run(CrewStream& stream) {
  while (stream.next_step_ < stream.running_.size() || Refill(stream)) {
    const Step step = stream.running_[stream.next_step_++];
    switch (step.kind) {
      case Step::Kind::kRecord: Pass(*step.event); break;
      case Step::Kind::kWait:
        if (!step.event->HasPassed(step.marks) && PutAside(stream, *step.event, step.marks)) return;
        break;
      case Step::Kind::kWork:
      case Step::Kind::kOwnedWork:
        CallHelper();  // Work may take long: other streams should not wait for this thread.
        run_work_(*step.work);
        if (step.kind == Step::Kind::kOwnedWork) delete step.work;
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
  if (--busy_ == 0 || leaving_ > 0) idle_.notify_all();
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
  (first_ready_ == nullptr ? first_ready_ : last_ready_->next_) = &stream;
  last_ready_ = &stream;
  ++ready_;
}

// Wakes a thread when streams can run and nobody is coming for them. The one that comes calls the next.
void StreamCrew::CallHelper() {
  if (ready_ == 0 || helper_coming_) return;
  {
    const std::lock_guard lock(mutex_);
    if (ready_ == 0 || helper_coming_ || sleeping_ == 0) return;
    helper_coming_ = true;
  }
  wake_.notify_one();
}

}  // namespace moeplan
