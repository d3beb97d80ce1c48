// The link model on curves of real GPUs, from the folder that MOEPLAN_MEASURED_DATA names: groups, collectives and node
// counts held out, predicted, and compared with the nearest measured group scaled by bus factors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "models/fit/fit.h"
#include "models/fit/statistics.h"
#include "models/links/link_model.h"
#include "models/text.h"
#include "tests/models/nearest_group.h"

namespace moeplan {
namespace {

std::vector<std::map<std::string, std::string>> ReadTable(const std::string& path) {
  const auto cells = [](const std::string& line) {
    std::vector<std::string> parts;
    std::istringstream stream(line);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    if (!parts.empty() && parts.back().ends_with('\r')) parts.back().pop_back();
    return parts;
  };
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = cells(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = cells(line);
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = parts.at(i);
  }
  return rows;
}

using SampleSets = std::map<std::string, SampleSet>;

// One set for each device and element type.
SampleSets ReadNccl(const std::string& folder) {
  const std::map<std::string, Collective> collectives = {{"all_gather", Collective::kAllGather},
                                                         {"reduce_scatter", Collective::kReduceScatter},
                                                         {"all_reduce", Collective::kAllReduce},
                                                         {"alltoall", Collective::kAllToAll}};
  SampleSets sets;
  for (auto& row : ReadTable(folder + "/nccl_single_node.csv")) {
    SampleSet& set = sets[row["device"] + " " + row["dtype"]];
    set.cluster = {.nodes = 1, .gpus_per_node = 8};
    const int gpus = std::stoi(row["gpus"]);
    set.samples.push_back({.key = CollectiveKey{.collective = collectives.at(row["collective"]), .group = {gpus, gpus}},
                           .size = std::stod(row["bytes"]),
                           .times_s = {std::stod(row["time_s"])}});
  }
  return sets;
}

// DeepEP's dispatch or combine over 2, 4 and 8 nodes, one set for each number of SMs, as an all-to-all of the bytes
// that tokens have before a node sends what several of its ranks want only once.
SampleSets ReadDeepEp(const std::string& folder, const std::string& step, int bytes_per_element) {
  SampleSets sets;
  for (auto& row : ReadTable(folder + "/deepep_nodes.csv")) {
    const int nodes = std::stoi(row["nodes"]);
    if (nodes == 1) continue;  // Another device.
    SampleSet& set = sets[row[step + "_sms"]];
    set.cluster = {.nodes = 8, .gpus_per_node = 8};
    const double elements = std::stod(row["tokens"]) * std::stod(row["hidden"]) * std::stod(row["top_k"]);
    set.samples.push_back({.key = CollectiveKey{.group = {8 * nodes, 8}},
                           .size = elements * bytes_per_element,
                           .times_s = {std::stod(row[step + "_s"])}});
  }
  return sets;
}

struct Outcome {
  std::vector<double> errors, nearest_errors;  // Of log time.
  int covered = 0, predicted = 0;
  double high_ratio_sum = 0;

  double coverage() const { return static_cast<double>(covered) / static_cast<double>(errors.size()); }
  void Print(const char* what) const {
    std::printf("%-34s links %5.1f %% median %5.1f %% 90th; nearest %5.1f %% %5.1f %%; interval × %.2f covers %.2f\n",
                what, 100 * Median(errors), 100 * Quantile(errors, 0.9), 100 * Median(nearest_errors),
                100 * Quantile(nearest_errors, 0.9), high_ratio_sum / predicted, coverage());
  }
};

using Holds = std::function<bool(const CollectiveKey& one, const CollectiveKey& asked)>;

// Predicts every curve of every set from those of its set that `holds` does not hold out beside it.
Outcome HoldOut(const SampleSets& sets, const std::function<bool(const CollectiveKey&)>& asks, const Holds& holds) {
  Outcome outcome;
  for (const auto& [name, samples] : sets) {
    const StatusOr<Profile> whole = FitProfile(samples);
    if (!whole.ok()) {
      ADD_FAILURE() << whole.status().message();
      continue;
    }
    for (const CollectiveModel& asked : whole->collectives) {
      if (!asks(asked.key)) continue;
      Profile profile = *whole;
      std::erase_if(profile.collectives, [&](const CollectiveModel& one) { return holds(one.key, asked.key); });
      const auto prediction = LinkModel(profile).Predict(asked.key);
      if (!prediction) {
        ADD_FAILURE() << name << " " << Describe(asked.key);
        continue;
      }
      ++outcome.predicted;
      outcome.high_ratio_sum += prediction->model.model.fit->interval_high_ratio;
      for (const Sample& sample : samples.samples) {
        if (std::get<CollectiveKey>(sample.key) != asked.key) continue;
        const double measured_s = sample.times_s.front();
        const PricedTime price = Price(prediction->model.model, sample.size, 1);
        outcome.errors.push_back(std::abs(std::log(price.time_s / measured_s)));
        outcome.nearest_errors.push_back(
            std::abs(std::log(NearestGroupTimeS(profile, asked.key, sample.size) / measured_s)));
        outcome.covered += price.low_s <= measured_s && measured_s <= price.high_s;
      }
    }
  }
  return outcome;
}

bool SameGroup(const CollectiveKey& one, const CollectiveKey& asked) { return one.group == asked.group; }

class MeasuredLinksTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("MOEPLAN_MEASURED_DATA");
    if (folder == nullptr) GTEST_SKIP() << "MOEPLAN_MEASURED_DATA does not name the folder with nccl_single_node.csv";
    folder_ = folder;
  }

  std::string folder_;
};

TEST_F(MeasuredLinksTest, GroupsOfOtherSizesOnANode) {
  const SampleSets sets = ReadNccl(folder_);
  ASSERT_FALSE(sets.empty());
  for (const int gpus : {2, 4, 8}) {
    const Outcome outcome = HoldOut(
        sets, [&](const CollectiveKey& key) { return key.group.size == gpus; }, SameGroup);
    outcome.Print(StrCat(gpus, " GPUs from the other two sizes").c_str());
    EXPECT_LT(Median(outcome.errors), 0.1);
    EXPECT_LT(Median(outcome.errors), Median(outcome.nearest_errors));
    EXPECT_GE(outcome.coverage(), 0.85);
  }
}

TEST_F(MeasuredLinksTest, OneCurve) {
  const Outcome outcome = HoldOut(
      ReadNccl(folder_), [](const CollectiveKey&) { return true; }, std::equal_to<>());
  outcome.Print("one curve from all others");
  EXPECT_LT(Median(outcome.errors), Median(outcome.nearest_errors) / 2);
  EXPECT_GE(outcome.coverage(), 0.85);
}

TEST_F(MeasuredLinksTest, CollectivesFromTheOthers) {
  const SampleSets sets = ReadNccl(folder_);
  for (const Collective collective :
       {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
    const Outcome outcome = HoldOut(
        sets, [&](const CollectiveKey& key) { return key.collective == collective; },
        [](const CollectiveKey& one, const CollectiveKey& asked) { return one.collective == asked.collective; });
    outcome.Print(StrCat(Name(collective), " from the other three").c_str());
    EXPECT_LT(Median(outcome.errors), 0.15);
    EXPECT_GE(outcome.coverage(), 0.85);
  }
}

TEST_F(MeasuredLinksTest, NodeCountsOfDeepEp) {
  for (const auto& [step, bytes_per_element] : {std::pair("dispatch", 1), std::pair("combine", 2)}) {
    const SampleSets sets = ReadDeepEp(folder_, step, bytes_per_element);
    ASSERT_FALSE(sets.empty());
    for (const int nodes : {2, 4, 8}) {
      const Outcome outcome = HoldOut(
          sets, [&](const CollectiveKey& key) { return key.group.size == 8 * nodes; }, SameGroup);
      outcome.Print(StrCat(step, " on ", nodes, " nodes from the others").c_str());
    }
  }
}

}  // namespace
}  // namespace moeplan
