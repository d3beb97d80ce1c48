// How many plans a second a sweep makes, by the number of threads.
//
//   bin/sweep_bench [PROFILE.json WORKLOAD.json]
//
// Without arguments: the contract's examples. Prints, for 1, 2, 4, ... threads up to the processors, the plans a second
// of one sweep, the median of five, and the gain over one thread.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "planner/sweep/sweep.h"
#include "proto/convert/profile.h"
#include "proto/json.h"

namespace moeplan {
namespace {

constexpr int kRepeats = 5;
const std::vector<std::string> kAxes = {"layer.sequenceLength=1024,2048,4096,8192,16384",
                                        "layer.capacityFactor=1,1.25,1.5,2", "minChunkBytes=262144,1048576,4194304",
                                        "cluster.nic.scale=0.5,1,2,4"};

StatusOr<planner::Sweep> ReadSweep(const std::string& profile_path, const std::string& workload_path) {
  ASSIGN_OR_RETURN(const auto profile_message, ReadJsonFile<v1::Profile>(profile_path));
  ASSIGN_OR_RETURN(Profile profile, ProfileFromProto(profile_message));
  ASSIGN_OR_RETURN(auto workload, ReadJsonFile<v1::Workload>(workload_path));
  return planner::Sweep::Make(std::move(workload), std::move(profile), kAxes);
}

StatusOr<double> PlansPerSecond(const planner::Sweep& sweep, int threads) {
  std::vector<double> rates;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(sweep.Run(threads, [](const planner::SweepRow&) { return OkStatus(); }));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(sweep.rows()) / took.count());
  }
  std::ranges::nth_element(rates, rates.begin() + kRepeats / 2);
  return rates[kRepeats / 2];
}

Status PrintRates(const std::string& profile, const std::string& workload) {
  ASSIGN_OR_RETURN(const planner::Sweep sweep, ReadSweep(profile, workload));
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::printf("%lld points on %d processors\n", static_cast<long long>(sweep.rows()), processors);
  double alone = 0;
  for (int threads = 1; threads <= processors; threads *= 2) {
    ASSIGN_OR_RETURN(const double rate, PlansPerSecond(sweep, threads));
    if (threads == 1) alone = rate;
    std::printf("%3d threads %10.0f plans/s  %5.2fx\n", threads, rate, rate / alone);
  }
  return OkStatus();
}

}  // namespace
}  // namespace moeplan

int main(int argc, char** argv) {
  const std::string contract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
  const bool given = argc == 3;
  const moeplan::Status status = moeplan::PrintRates(given ? argv[1] : contract + "profile.example.json",
                                                     given ? argv[2] : contract + "workload.example.json");
  if (!status.ok()) std::fprintf(stderr, "sweep_bench: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
