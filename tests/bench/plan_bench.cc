// How fast the rules and the joint search of one layer are, on one core.
//
//   bin/plan_bench [PLANS [SEARCH]]     plans made for the memory figure; only this search, by name
//
// On the contract's example profile and workload. "Everything on": TRAINING, lossy codecs, and a profile with an entry
// for all that the search can ask (made-up lines), each all-to-all algorithm, codec and contention among them. Medians.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <string_view>
#include <vector>

#include "models/measurement/needs.h"
#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"
#include "planner/search/plan_layer.h"
#include "proto/convert/profile.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan {
namespace {

constexpr int kRepeats = 11;

// Median seconds of one call, of so many calls each time.
template <typename Call>
double MedianS(int calls, Call call) {
  std::vector<double> times_s;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    times_s.push_back(took.count() / calls);
  }
  std::ranges::nth_element(times_s, times_s.begin() + kRepeats / 2);
  return times_s[kRepeats / 2];
}

template <typename Rule>
void ReportRule(const char* name, int calls, const Workload& workload, const Profile& profile, Rule rule) {
  const double time_s = MedianS(calls, [&] {
    PriceNotes notes;
    if (!rule(workload, profile, notes).ok()) std::abort();
  });
  std::printf("rule %-20s %8.2f µs  %9.0f a second\n", name, time_s * 1e6, 1 / time_s);
}

void ReportSearch(const char* name, int calls, const Workload& workload, const Profile& profile) {
  PlanAnswer answer;
  const double time_s = MedianS(calls, [&] { answer = *planner::PlanLayer(workload, profile, {.rules = false}); });
  std::printf("search %-18s %8.2f ms  %6d graphs, %zu candidates, stop reason %d, floor %.4f of the best\n", name,
              time_s * 1e3, answer.search.evaluated, answer.candidates.size(),
              static_cast<int>(answer.search.stop_reason),
              answer.search.time_floor_s / answer.candidates.front().predicted_time_s);
}

void ReportMemory(const Workload& workload, const Profile& profile, int plans) {
  const auto in_use = [] { return mallinfo2().uordblks; };
  for (int i = 0; i < 1000; ++i) (void)planner::PlanLayer(workload, profile, {.top = 1});
  const size_t before = in_use();
  for (int i = 0; i < plans; ++i) (void)planner::PlanLayer(workload, profile, {.top = 1});
  std::printf("memory after %d plans: %+lld bytes\n", plans, static_cast<long long>(in_use() - before));
}

// One made-up line for every key that the search may ask, neighbours unlike.
Profile EverythingMeasured(const Workload& workload, const Profile& like) {
  Profile profile{.cluster = like.cluster};
  std::set<CostKey> keys;
  for (const Need& need : NeedsOf({workload}, profile.cluster)) keys.insert(need.key);
  int number = 0;
  for (const CostKey& key : keys) {
    const double slowness = 1 + 0.1 * (number++ % 7);
    if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
      const double s_per_byte = collective->group.size == collective->group.ranks_per_node ? 4e-12 : 2.5e-11;
      profile.collectives.push_back({*collective, MakeCostModel(AlphaBeta{1e-5, s_per_byte * slowness})});
    }
    if (const auto* kernel = std::get_if<KernelKey>(&key)) {
      const double s_per_unit = CountsFlops(kernel->kernel) ? 2e-15 : 1e-12;
      profile.kernels.push_back({*kernel, MakeCostModel(AlphaBeta{5e-6, s_per_unit * slowness})});
    }
  }
  return profile;
}

void ReportRules(const Workload& workload, const Profile& profile) {
  Workload long_loop = workload;
  long_loop.max_chunks = 64;
  long_loop.min_chunk_bytes = 1;
  ReportRule("parm", 20000, workload, profile, [](const Workload& layer, const Profile& costs, PriceNotes& notes) {
    return planner::ParmRule(layer, costs, notes);
  });
  ReportRule("monta, 64 chunks", 2000, long_loop, profile,
             [](const Workload& layer, const Profile& costs, PriceNotes& notes) {
               return planner::MontaRule(layer, costs, notes);
             });
  ReportRule("schemoe", 200, workload, profile, [](const Workload& layer, const Profile& costs, PriceNotes& notes) {
    return planner::SchemoeRule(layer, costs, notes);
  });
}

Status Report(int plans, std::string_view only) {
  const std::string contract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
  ASSIGN_OR_RETURN(const auto profile_message, ReadJsonFile<v1::Profile>(contract + "profile.example.json"));
  ASSIGN_OR_RETURN(const Profile profile, ProfileFromProto(profile_message));
  ASSIGN_OR_RETURN(const auto workload_message, ReadJsonFile<v1::Workload>(contract + "workload.example.json"));
  ASSIGN_OR_RETURN(const Workload given, WorkloadFromProto(workload_message));
  ASSIGN_OR_RETURN(const Workload workload, ResolveWorkload(given, profile.cluster));
  if (only.empty()) ReportRules(workload, profile);

  const auto report = [&](const char* name, int calls, const Workload& asked, const Profile& known) {
    if (only.empty() || only == name) ReportSearch(name, calls, asked, known);
  };
  report("as given", 20, workload, profile);
  Workload everything = workload;
  everything.phase = Phase::kTraining;
  everything.allow_lossy = true;
  const Profile measured = EverythingMeasured(everything, profile);
  report("lossless, all known", 20, workload, EverythingMeasured(workload, profile));
  report("everything on", 1, everything, measured);
  if (only.empty()) ReportMemory(workload, profile, plans);
  return OkStatus();
}

}  // namespace
}  // namespace moeplan

int main(int argc, char** argv) {
  const moeplan::Status status = moeplan::Report(argc > 1 ? std::atoi(argv[1]) : 2000, argc > 2 ? argv[2] : "");
  if (!status.ok()) std::fprintf(stderr, "plan_bench: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
