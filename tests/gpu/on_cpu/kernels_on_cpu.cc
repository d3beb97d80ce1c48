#include "tests/gpu/on_cpu/kernels_on_cpu.h"

#include <setjmp.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <mutex>
#include <vector>

#include "models/check.h"
#ifdef MOEPLAN_THREAD_SANITIZED
#include <sanitizer/tsan_interface.h>
#endif

namespace moeplan::on_cpu {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 128 * 1024;

enum class State { kReady, kAtBlock, kAtWarp, kEnded };

// A place to go back to. swapcontext asks the kernel for the signal mask at each switch; only the first into a stack
// needs it, and sanitizers, which follow nothing else from stack to stack.
struct Place {
  ucontext_t context = {};
  jmp_buf jump;
  bool begun = false;        // Whether `jump` may be used.
  void* followed = nullptr;  // By ThreadSanitizer, which wants to be told.
};

void* FollowedHere() {
#ifdef MOEPLAN_THREAD_SANITIZED
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}
void* FollowedStack() {
#ifdef MOEPLAN_THREAD_SANITIZED
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}

// Not inlined: what is in registers where it returns a second time would be lost.
[[gnu::noinline]] void Switch(Place& from, Place& to) {
#ifdef MOEPLAN_THREAD_SANITIZED
  __tsan_switch_to_fiber(to.followed, 0);
#endif
#ifdef MOEPLAN_SANITIZED
  MOEPLAN_CHECK(swapcontext(&from.context, &to.context) == 0);
#else
  if (_setjmp(from.jump) != 0) return;
  from.begun = true;
  if (to.begun) _longjmp(to.jump, 1);
  setcontext(&to.context);
#endif
}

// A stack that runs threads one after the other until one of them waits; then the others need another one.
struct Fiber {
  Place place;
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
};

struct Thread {
  Fiber* fiber = nullptr;  // While it waits.
  State state = State::kEnded;
  uint64_t given = 0;
};

// The threads of one block at a time, all on the thread of the host that runs the kernel.
class Block {
 public:
  void Run(int threads, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    scheduler_.followed = FollowedHere();
    next_ = 0;
    threads_.assign(threads, {});
    given_.assign((threads + kWarp - 1) / kWarp, {});
    while (next_ < count()) Resume(*TakeFiber());
    while (RunReady()) Release();
  }

  void Shared(size_t bytes) { shared_.assign(bytes / sizeof(uint64_t) + 2, 0xdeadbeefdeadbeef); }
  std::byte* shared_memory() { return reinterpret_cast<std::byte*>(shared_.data()); }

  void Wait(State state) {
    const int thread = current_;
    threads_[thread].fiber = running_;
    threads_[thread].state = state;
    Switch(running_->place, scheduler_);
    SetCurrent(thread);
  }
  const uint64_t* WaitForWarp(uint64_t value) {
    threads_[current_].given = value;
    const int warp = current_ / kWarp;
    Wait(State::kAtWarp);
    return given_[warp].data();
  }

  static Block& Own() {
    static Block block;
    return block;
  }

 private:
  int count() const { return static_cast<int>(threads_.size()); }

  void SetCurrent(int thread) {
    current_ = thread;
    threadIdx = {.x = static_cast<unsigned>(thread)};
  }

  Fiber* TakeFiber() {
    if (idle_.empty()) return MakeFiber();
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  // getcontext, too, may return twice.
  [[gnu::noinline]] Fiber* MakeFiber() {
    Fiber& made = *fibers_.emplace_back(std::make_unique<Fiber>());
    ucontext_t& context = made.place.context;
    MOEPLAN_CHECK(getcontext(&context) == 0);
    context.uc_stack.ss_sp = made.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    makecontext(&context, &Block::Main, 0);
    made.place.followed = FollowedStack();
    return &made;
  }
  void Resume(Fiber& fiber) {
    running_ = &fiber;
    Switch(scheduler_, fiber.place);
  }

  static void Main() {
    Block& block = Own();
    while (true) {
      block.RunThreads();
      Fiber& own = *block.running_;
      block.idle_.push_back(&own);
      Switch(own.place, block.scheduler_);
    }
  }
  void RunThreads() {
    while (next_ < count()) {
      SetCurrent(next_++);
      (*kernel_)();
      threads_[current_].state = State::kEnded;
    }
  }

  // Whether any thread has not ended.
  bool RunReady() {
    bool lives = false;
    for (Thread& thread : threads_) {
      if (thread.state == State::kReady) Resume(*thread.fiber);
      lives |= thread.state != State::kEnded;
    }
    return lives;
  }

  void Release() {
    bool released = false;
    for (int first = 0; first < count(); first += kWarp) released |= ReleaseWarp(first);
    if (released) return;
    for (Thread& thread : threads_) {
      if (thread.state == State::kAtBlock) thread.state = State::kReady, released = true;
    }
    MOEPLAN_CHECK(released);
  }

  // When all of its threads that live have come.
  bool ReleaseWarp(int first) {
    const int end = std::min(first + kWarp, count());
    bool waits = false;
    for (int i = first; i < end; ++i) {
      waits |= threads_[i].state == State::kAtWarp;
      if (threads_[i].state == State::kAtBlock) return false;
    }
    if (!waits) return false;
    for (int i = first; i < end; ++i) {
      const bool gives = threads_[i].state == State::kAtWarp;
      given_[first / kWarp][i - first] = gives ? threads_[i].given : 0;
      if (gives) threads_[i].state = State::kReady;
    }
    return true;
  }

  std::vector<Thread> threads_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<std::array<uint64_t, kWarp>> given_;
  std::vector<uint64_t> shared_;
  Place scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  Fiber* running_ = nullptr;
  int current_ = 0, next_ = 0;
};

// What a kernel's alignment trap (tests/gpu/CMakeLists.txt) raises, in the words of a card.
void TellOfTrap(int signal) {
  constexpr char kWords[] = "a kernel on the CPU has met a misaligned address\n";
  (void)!write(STDERR_FILENO, kWords, sizeof kWords - 1);
  std::signal(signal, SIG_DFL);  // The same instruction comes again, and ends the program.
}

bool CatchTraps() {
  for (const int signal : {SIGILL, SIGTRAP}) std::signal(signal, TellOfTrap);
  return true;
}

}  // namespace

void Run(dim3 blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel) {
  constexpr unsigned kMaxGridY = 65535;
  constexpr size_t kSharedBytes = 48 * 1024;
  MOEPLAN_CHECK(blocks.x > 0 && blocks.y > 0 && blocks.y <= kMaxGridY && blocks.z > 0 && blocks.z <= kMaxGridY);
  MOEPLAN_CHECK(threads > 0 && threads <= 1024 && shared_bytes <= kSharedBytes);
  [[maybe_unused]] static const bool catches_traps = CatchTraps();
  static std::mutex one_at_a_time;  // Streams may be threads of the host.
  const std::lock_guard lock(one_at_a_time);
  gridDim = blocks;
  blockDim = dim3(static_cast<unsigned>(threads));
  for (blockIdx.z = 0; blockIdx.z < blocks.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < blocks.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < blocks.x; ++blockIdx.x) {
        Block::Own().Shared(shared_bytes);
        Block::Own().Run(threads, kernel);
      }
    }
  }
}

std::byte* DynamicSharedMemory() { return Block::Own().shared_memory(); }
void WaitForBlock() { Block::Own().Wait(State::kAtBlock); }
const uint64_t* WaitForWarp(uint64_t value) { return Block::Own().WaitForWarp(value); }

}  // namespace moeplan::on_cpu
