#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <memory>
#include <vector>

#include "models/check.h"
#include "tests/gpu/on_cpu/cuda_runtime_api.h"

namespace moeplan::on_cpu {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 128 * 1024;

enum class State { kReady, kAtBlock, kAtWarp, kEnded };

// A place to go back to. swapcontext asks the kernel for the signal mask at each switch; only the first into a stack
// needs it, and AddressSanitizer, which follows nothing else from stack to stack.
struct Place {
  ucontext_t context = {};
  jmp_buf jump;
  bool begun = false;  // Whether `jump` may be used.
};

void Switch(Place& from, Place& to) {
#ifdef MOEPLAN_SANITIZED
  MOEPLAN_CHECK(swapcontext(&from.context, &to.context) == 0);
#else
  if (_setjmp(from.jump) != 0) return;
  from.begun = true;
  if (to.begun) _longjmp(to.jump, 1);
  setcontext(&to.context);
#endif
}

struct Thread {
  Place place;
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  State state = State::kEnded;
  uint64_t given = 0;
};

// The threads of one block at a time, each with a stack of its own, all on the thread of the host.
class Block {
 public:
  void Run(int threads, const std::function<void()>& kernel) {
    while (static_cast<int>(threads_.size()) < threads) threads_.push_back(std::make_unique<Thread>());
    kernel_ = &kernel;
    count_ = threads;
    given_.assign((threads + kWarp - 1) / kWarp, {});
    for (int i = 0; i < count_; ++i) Begin(*threads_[i]);
    while (RunReady()) Release();
  }

  std::byte* Shared(size_t bytes) {
    shared_.assign(bytes / sizeof(uint64_t) + 2, 0xdeadbeefdeadbeef);
    return shared_memory();
  }
  std::byte* shared_memory() { return reinterpret_cast<std::byte*>(shared_.data()); }

  void Wait(State state) {
    Thread& thread = *threads_[current_];
    const uint3 index = threadIdx;
    thread.state = state;
    Switch(thread.place, scheduler_);
    threadIdx = index;
  }
  const uint64_t* WaitForWarp(uint64_t value) {
    threads_[current_]->given = value;
    const int warp = current_ / kWarp;
    Wait(State::kAtWarp);
    return given_[warp].data();
  }

  static Block& Own() {
    static Block block;
    return block;
  }

 private:
  void Begin(Thread& thread) {
    ucontext_t& context = thread.place.context;
    MOEPLAN_CHECK(getcontext(&context) == 0);
    context.uc_stack.ss_sp = thread.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    makecontext(&context, &Block::Main, 0);
    thread.place.begun = false;
    thread.state = State::kReady;
  }
  static void Main() {
    Block& block = Own();
    (*block.kernel_)();
    Thread& thread = *block.threads_[block.current_];
    thread.state = State::kEnded;
    Switch(thread.place, block.scheduler_);
  }

  // Whether any thread has not ended.
  bool RunReady() {
    bool lives = false;
    for (current_ = 0; current_ < count_; ++current_) {
      Thread& thread = *threads_[current_];
      if (thread.state == State::kReady) {
        threadIdx.x = static_cast<unsigned>(current_);
        Switch(scheduler_, thread.place);
      }
      lives |= thread.state != State::kEnded;
    }
    return lives;
  }

  void Release() {
    bool released = false;
    for (int first = 0; first < count_; first += kWarp) released |= ReleaseWarp(first);
    if (released) return;
    for (int i = 0; i < count_; ++i) {
      if (threads_[i]->state == State::kAtBlock) threads_[i]->state = State::kReady, released = true;
    }
    MOEPLAN_CHECK(released);
  }

  // When all of its threads that live have come.
  bool ReleaseWarp(int first) {
    const int end = std::min(first + kWarp, count_);
    bool waits = false;
    for (int i = first; i < end; ++i) {
      waits |= threads_[i]->state == State::kAtWarp;
      if (threads_[i]->state == State::kAtBlock) return false;
    }
    if (!waits) return false;
    for (int i = first; i < end; ++i) {
      const bool gives = threads_[i]->state == State::kAtWarp;
      given_[first / kWarp][i - first] = gives ? threads_[i]->given : 0;
      if (gives) threads_[i]->state = State::kReady;
    }
    return true;
  }

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::array<uint64_t, kWarp>> given_;
  std::vector<uint64_t> shared_;
  Place scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  int count_ = 0, current_ = 0;
};

}  // namespace

void Run(dim3 blocks, int threads, size_t shared_bytes, const std::function<void()>& kernel) {
  constexpr unsigned kMaxGridY = 65535;
  constexpr size_t kSharedBytes = 48 * 1024;
  MOEPLAN_CHECK(blocks.x > 0 && blocks.y > 0 && blocks.y <= kMaxGridY && blocks.z > 0 && blocks.z <= kMaxGridY);
  MOEPLAN_CHECK(threads > 0 && threads <= 1024 && shared_bytes <= kSharedBytes);
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
