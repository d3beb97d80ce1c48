#include "cli/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <string_view>

namespace moeplan::cli {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM};

// A signal handler touches these alone: lock-free atomics, and texts that do not change while it is installed.
std::atomic<int> first_signal = 0;
std::atomic<int> kept_count = 0;
std::string before_count, behind_count;

void Write(std::string_view text) { (void)!write(STDERR_FILENO, text.data(), text.size()); }

void Handle(int signal) {
  constexpr unsigned kGraceS = 10;
  constexpr int kAnythingElse = 3;
  int none = 0;
  if (signal != SIGALRM && first_signal.compare_exchange_strong(none, signal)) {
    alarm(kGraceS);
    return;
  }
  StopOnSignal::SayLastWords();
  _exit(kAnythingElse);
}

void Install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGALRM}) sigaction(signal, &action, nullptr);
}

}  // namespace

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kStopSignals) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

StopOnSignal::StopOnSignal(const std::string& before, const std::string& behind) {
  before_count = before;
  behind_count = behind;
  first_signal = 0;
  kept_count = 0;
  Install(Handle);
}

StopOnSignal::~StopOnSignal() {
  alarm(0);
  Install(SIG_DFL);
}

void StopOnSignal::SetCount(int count) { kept_count = count; }

void StopOnSignal::SayLastWords() {
  const int count = kept_count;
  if (count == 0) return;
  char digits[16];
  const char* const end = std::to_chars(std::begin(digits), std::end(digits), count).ptr;
  Write(before_count);
  Write({digits, static_cast<size_t>(end - digits)});
  Write(behind_count);
}

int StopOnSignal::signal() { return first_signal; }

}  // namespace moeplan::cli
