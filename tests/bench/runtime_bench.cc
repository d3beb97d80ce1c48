// What the runtime itself costs: microseconds a task of graphs whose tasks do nothing, on the host backend, and what a
// run after the first asks of the machine.
//
//   runtime_bench [RUNS [TASKS]]
#include <cstdio>
#include <cstdlib>

#include "tests/bench/counted.h"
#include "tests/bench/empty_graph.h"

namespace {

using moeplan::bench::Shape;

void Report(const char* name, Shape shape, int runs, int tasks) {
  moeplan::bench::EmptyRun run(shape, tasks);
  run.Run();
  const uint64_t allocations = moeplan::bench::Allocations(), threads = moeplan::bench::ThreadsMade();
  for (int i = 0; i < runs; ++i) run.Run();
  const double allocations_a_run = static_cast<double>(moeplan::bench::Allocations() - allocations) / runs;
  const double threads_a_run = static_cast<double>(moeplan::bench::ThreadsMade() - threads) / runs;
  const std::vector<double> times = run.TaskTimesS(runs);
  std::printf("%-12s %8.3f %8.3f %8.3f %12.1f %8.1f\n", name, times.front() * 1e6, times[times.size() / 2] * 1e6,
              times[times.size() * 9 / 10] * 1e6, allocations_a_run, threads_a_run);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 1000, tasks = argc > 2 ? std::atoi(argv[2]) : 256;
  if (runs < 1 || tasks < 1) return std::fprintf(stderr, "usage: runtime_bench [RUNS [TASKS]]\n"), 1;
  std::printf("%d runs of %d empty tasks; us a task\n", runs, tasks);
  std::printf("%-12s %8s %8s %8s %12s %8s\n", "graph", "best", "median", "90 %", "allocations", "threads");
  Report("one stream", Shape::kOneStream, runs, tasks);
  Report("chain", Shape::kChain, runs, tasks);
  Report("pipeline", Shape::kPipeline, runs, tasks);
}
