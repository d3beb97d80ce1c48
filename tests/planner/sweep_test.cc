// Sweeps against single calls of the planner.
#include "planner/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "models/text.h"
#include "planner/search/plan_layer.h"
#include "planner/sweep/cost_scaling.h"
#include "planner/sweep/ordered_rows.h"
#include "proto/convert/workload.h"
#include "proto/json.h"
#include "tests/planner/contract_files.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

uint64_t Seed() {
  static const uint64_t seed = TestSeed();
  return seed;
}

StatusOr<Sweep> SweepOf(const std::vector<std::string>& axes) {
  return Sweep::Make(ToProto(ExampleWorkload()), ExampleProfile(), axes);
}

std::vector<SweepRow> RowsOf(const Sweep& sweep, int threads = 2) {
  std::vector<SweepRow> rows;
  EXPECT_EQ(sweep.Run(threads,
                      [&](const SweepRow& row) {
                        rows.push_back(row);
                        return OkStatus();
                      }),
            OkStatus());
  return rows;
}

std::string Text(const SweepRow& row) {
  std::string text;
  for (const SweepValue& value : row.values) text += TextOf(value) + " ";
  return text;
}

TEST(SweepTest, AllCombinationsInTheOrderGivenTheLastFastest) {
  const auto sweep = SweepOf({"layer.sequenceLength=4096,8192", "maxChunks=1,4,2"});
  ASSERT_TRUE(sweep.ok()) << sweep.status().message();
  EXPECT_EQ(sweep->rows(), 6);
  EXPECT_THAT(sweep->paths(), ElementsAre("layer.sequenceLength", "maxChunks"));
  std::vector<std::string> texts;
  for (const SweepRow& row : RowsOf(*sweep)) texts.push_back(Text(row));
  EXPECT_THAT(texts, ElementsAre("4096 1 ", "4096 4 ", "4096 2 ", "8192 1 ", "8192 4 ", "8192 2 "));
}

// A field that can be swept, as text, and the same change made by hand.
struct Change {
  const char* path;
  std::vector<const char*> values;
  std::function<void(size_t, Workload&, Profile&)> make;
};

std::vector<Change> Changes() {
  const auto scale_all = [](auto& entries, auto named, double factor) {
    for (auto& entry : entries) {
      if (named(entry.key)) ScaleTime(entry.model, factor);
    }
  };
  return {
      {"layer.sequenceLength",
       {"8192", "2048", "1e4"},
       [](size_t i, Workload& workload, Profile&) {
         workload.layer.sequence_length = std::array{8192, 2048, 10000}[i];
       }},
      {"layer.topK",
       {"1", "2", "3"},
       [](size_t i, Workload& workload, Profile&) {
         workload.layer.top_k = static_cast<int>(i) + 1;  // 3 of 2 experts is no layer.
       }},
      {"layer.capacityFactor",
       {"0.5", "1.25"},
       [](size_t i, Workload& workload, Profile&) {
         workload.layer.capacity_factor = std::array{0.5, 1.25}[i];
       }},
      {"layer.gate",
       {"BATCH_PRIORITIZED", "TOP_K"},
       [](size_t i, Workload& workload, Profile&) {
         workload.layer.gate = std::array{GateKind::kBatchPrioritized, GateKind::kTopK}[i];
       }},
      {"layout.expertParallel",
       {"2", "4", "1"},
       [](size_t i, Workload& workload, Profile&) {
         workload.layout.expert_parallel = std::array{2, 4, 1}[i];
       }},
      {"phase",
       {"TRAINING", "FORWARD"},
       [](size_t i, Workload& workload, Profile&) {
         workload.phase = std::array{Phase::kTraining, Phase::kForward}[i];
       }},
      {"allowLossy", {"true", "false"}, [](size_t i, Workload& workload, Profile&) { workload.allow_lossy = i == 0; }},
      {"minChunkBytes",
       {"65536", "4194304"},
       [](size_t i, Workload& workload, Profile&) {
         workload.min_chunk_bytes = std::array{65536, 4194304}[i];
       }},
      {"cluster.nodes",
       {"2", "4"},
       [](size_t i, Workload&, Profile& profile) {
         profile.cluster.nodes = std::array{2, 4}[i];  // Where data parallel is given, 4 is refused.
       }},
      {"cluster.deviceMemoryBytes",
       {"1e6", "8.5e10"},
       [](size_t i, Workload&, Profile& profile) {
         profile.cluster.device_memory_bytes = std::array{1e6, 8.5e10}[i];
       }},
      {"cluster.nic.scale",
       {"2", "0.5", "1"},
       [](size_t i, Workload&, Profile& profile) {
         ScaleNic(profile, std::array{2.0, 0.5, 1.0}[i]);
       }},
      {"collectives[ALL_TO_ALL].timeScale",
       {"0.5", "3"},
       [=](size_t i, Workload&, Profile& profile) {
         scale_all(
             profile.collectives, [](const CollectiveKey& key) { return key.collective == Collective::kAllToAll; },
             std::array{0.5, 3.0}[i]);
       }},
      {"kernels[EXPERT_GEMM].alphaBeta.betaSPerFlop",
       {"1e-15", "4e-14"},
       [](size_t i, Workload&, Profile& profile) {
         for (KernelModel& entry : profile.kernels) {
           if (entry.key.kernel != Kernel::kExpertGemm) continue;
           std::get<AlphaBeta>(entry.model.curve).beta_s_per_unit = std::array{1e-15, 4e-14}[i];
         }
       }},
      {"collectives[0].efficiency.points[2].efficiency",
       {"0.5", "0.25", "0.7"},
       [](size_t i, Workload&, Profile& profile) {
         std::get<Efficiency>(profile.collectives[0].model.curve).points[2].efficiency = std::array{0.5, 0.25, 0.7}[i];
       }},
      {"kernels[EXPERT_GEMM].timeScale",
       {"0.125"},
       [=](size_t, Workload&, Profile& profile) {
         scale_all(
             profile.kernels, [](const KernelKey& key) { return key.kernel == Kernel::kExpertGemm; }, 0.125);
       }},
  };
}

TEST(SweepRandomTest, EveryPointIsWhatASingleCallSays) {
  std::mt19937_64 random(Seed());
  int feasible = 0, infeasible = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Change> changes = Changes();
    std::shuffle(changes.begin(), changes.end(), random);
    changes.resize(1 + random() % 3);
    std::vector<std::string> axes;
    for (const Change& change : changes) {
      std::string axis = StrCat(change.path, "=");
      for (size_t i = 0; i < change.values.size(); ++i) axis += StrCat(i > 0 ? "," : "", change.values[i]);
      axes.push_back(axis);
    }
    const auto sweep = SweepOf(axes);
    ASSERT_TRUE(sweep.ok()) << sweep.status().message();
    const std::vector<SweepRow> rows = RowsOf(*sweep, 1 + static_cast<int>(random() % 3));
    ASSERT_EQ(static_cast<int64_t>(rows.size()), sweep->rows());
    for (size_t row = 0; row < rows.size(); ++row) {
      Workload workload = ExampleWorkload();
      Profile profile = ExampleProfile();
      std::vector<size_t> point(changes.size());
      size_t rest = row;
      for (size_t i = changes.size(); i-- > 0; rest /= changes[i].values.size())
        point[i] = rest % changes[i].values.size();
      for (const bool scales : {false, true}) {  // Scales multiply what fields are set to.
        for (size_t i = 0; i < changes.size(); ++i) {
          if (std::string_view(changes[i].path).ends_with("cale") == scales)
            changes[i].make(point[i], workload, profile);
        }
      }
      const StatusOr<PlanAnswer> single = PlanLayer(workload, profile);
      SCOPED_TRACE(StrCat(Text(rows[row]), "of ", axes.front()));
      if (single.ok() && !single->candidates.empty()) {
        ++feasible;
        ASSERT_TRUE(rows[row].best) << rows[row].reason;
        EXPECT_EQ(*rows[row].best, single->candidates.front());
      } else {
        ++infeasible;
        ASSERT_FALSE(rows[row].best);
        EXPECT_EQ(rows[row].reason, single.ok() ? single->explanation : single.status().message());
      }
    }
  }
  EXPECT_GT(feasible, 50);
  EXPECT_GT(infeasible, 50);
}

TEST(SweepTest, RowsAreTheSameForEveryNumberOfThreads) {
  const auto sweep = SweepOf({"layer.sequenceLength=1024,2048,4096,8192,16384", "maxChunks=1,2,3,4,5,6,7,8,9,10"});
  ASSERT_TRUE(sweep.ok());
  const auto json_of = [&](int threads) {
    std::vector<std::string> rows;
    for (const SweepRow& row : RowsOf(*sweep, threads))
      rows.push_back(ToJson(sweep->ToProto(row), JsonStyle::kCompact));
    return rows;
  };
  const std::vector<std::string> alone = json_of(1);
  for (const int threads : {2, 5, 64}) EXPECT_EQ(json_of(threads), alone);
}

TEST(SweepTest, AFasterNicIsFasterButNotTwice) {
  const auto sweep = SweepOf({"cluster.nic.scale=1,2,1e9"});
  ASSERT_TRUE(sweep.ok()) << sweep.status().message();
  const std::vector<SweepRow> rows = RowsOf(*sweep);
  const auto time_s = [&](int i) { return rows[i].best->predicted_time_s; };
  EXPECT_LT(time_s(1), time_s(0));
  EXPECT_GT(time_s(1), time_s(0) / 2);
  EXPECT_LT(time_s(2), time_s(1));
}

TEST(SweepTest, AnEmitThatFailsEndsTheSweep) {
  const auto sweep = SweepOf({"maxChunks=1,2,3,4,5,6,7,8,9", "layer.batch=1,2,3,4,5,6,7,8,9"});
  ASSERT_TRUE(sweep.ok());
  int emitted = 0;
  const Status status =
      sweep->Run(3, [&](const SweepRow&) { return ++emitted == 3 ? Unavailable("the reader is gone") : OkStatus(); });
  EXPECT_EQ(status, Unavailable("the reader is gone"));
  EXPECT_EQ(emitted, 3);
}

TEST(SweepTest, ACancelledSweepDoesNotWaitForItsRows) {
  const auto sweep = SweepOf({"maxChunks=1,2,3,4,5,6,7,8,9", "layer.batch=1,2,3,4,5,6,7,8,9"});
  ASSERT_TRUE(sweep.ok());
  for (const int last : {0, 1, 40}) {
    std::stop_source stop;
    if (last == 0) stop.request_stop();
    int emitted = 0;
    const Status status = sweep->Run(
        3,
        [&](const SweepRow&) {
          if (++emitted == last) stop.request_stop();
          return OkStatus();
        },
        stop.get_token());
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_EQ(emitted, last);
  }
}

TEST(SweepTest, WhatIsSweptIsInTheMessageByPath) {
  const auto sweep =
      SweepOf({"layer.gate=TOP_K,BATCH_PRIORITIZED", "allowLossy=true", "layer.capacityFactor=1.5", "layer.topK=2,9"});
  ASSERT_TRUE(sweep.ok()) << sweep.status().message();
  const std::vector<SweepRow> rows = RowsOf(*sweep);
  const v1::WhatIfRow feasible = sweep->ToProto(rows[0]), infeasible = sweep->ToProto(rows[1]);
  EXPECT_EQ(feasible.fields().at("layer.gate").string_value(), "TOP_K");
  EXPECT_TRUE(feasible.fields().at("allowLossy").bool_value());
  EXPECT_EQ(feasible.fields().at("layer.capacityFactor").number_value(), 1.5);
  EXPECT_TRUE(feasible.has_best());
  EXPECT_EQ(feasible.predicted_time_s(), feasible.best().predicted_time_s());
  EXPECT_FALSE(feasible.has_reason());
  EXPECT_FALSE(infeasible.has_best());
  EXPECT_FALSE(infeasible.has_predicted_time_s());
  EXPECT_THAT(infeasible.reason(), HasSubstr("layer.topK: found 9"));
}

TEST(SweepTest, WhatCannotBeSweptIsRefusedWithWhatCan) {
  const auto expect_refused = [](const std::vector<std::string>& axes, auto matcher) {
    const auto sweep = SweepOf(axes);
    ASSERT_FALSE(sweep.ok()) << axes.front();
    EXPECT_EQ(sweep.status().code(), StatusCode::kInvalidInput);
    EXPECT_THAT(sweep.status().message(), matcher);
  };
  expect_refused({}, HasSubstr("found none"));
  expect_refused({"layer.batch"}, HasSubstr("found 'layer.batch', expected PATH="));
  expect_refused({"=3"}, HasSubstr("expected PATH="));
  expect_refused({"layer.batch="}, HasSubstr("--sweep: layer.batch: found an empty value"));
  expect_refused({"layer.batch=1,,2"}, HasSubstr("found an empty value"));
  expect_refused({"layer.batch=1.5"}, HasSubstr("--sweep: layer.batch: found 1.5, expected a whole number"));
  expect_refused({"layer.batch=x"}, HasSubstr("layer.batch: found the string \"x\", expected a whole number"));
  expect_refused({"layer.batch=nan"}, HasSubstr("found the string \"nan\""));
  expect_refused({"layer.batch=1e99"}, HasSubstr("layer.batch"));
  expect_refused({"layer.batch=\"}{\\"}, HasSubstr("layer.batch"));
  expect_refused({"layer.gate=TOP"}, AllOf(HasSubstr("layer.gate"), HasSubstr("BATCH_PRIORITIZED")));
  expect_refused({"allowLossy=1"}, HasSubstr("allowLossy: found 1, expected true or false"));
  expect_refused({"layer.bacth=1"}, AllOf(HasSubstr("layer.bacth"), HasSubstr("did you mean batch?")));
  expect_refused({"batch=1"}, AllOf(HasSubstr("layer"), HasSubstr("cluster.nic.scale")));
  expect_refused({"layer=1"}, AllOf(HasSubstr("an object"), HasSubstr("layer.batch"), HasSubstr("layer.topK")));
  expect_refused({"layer.batch.x=1"}, HasSubstr("something below layer.batch"));
  expect_refused({"layer..batch=1"}, HasSubstr("layer."));
  expect_refused({"cluster.node=1"}, AllOf(HasSubstr("cluster.node"), HasSubstr("did you mean nodes?")));
  expect_refused({"cluster.nodes=two"}, HasSubstr("cluster.nodes: found the string \"two\""));
  expect_refused({"cluster.nic.scale=0"}, HasSubstr("expected a number from 1e-9 to 1e9"));
  expect_refused({"cluster.nic.scale=-1"}, HasSubstr("expected a number from 1e-9 to 1e9"));
  expect_refused({"cluster.nic.scale=inf"}, HasSubstr("expected a number from 1e-9 to 1e9"));
  expect_refused({"cluster.nic.rate=2"}, HasSubstr("cluster.nic"));
  expect_refused({"collectives[REDUCE_SCATTER].timeScale=2"},
                 AllOf(HasSubstr("found REDUCE_SCATTER"), HasSubstr("ALL_GATHER, ALL_REDUCE, ALL_TO_ALL")));
  expect_refused({"collectives[ALL_TO_ALL].scale=2"},
                 AllOf(HasSubstr("collectives[ALL_TO_ALL].scale: found an unknown field"),
                       HasSubstr("or collectives[NAME].timeScale")));
  expect_refused({"collectives.timeScale=2"}, HasSubstr("expected collectives[NUMBER] or collectives[NAME]"));
  expect_refused({"kernels[GEMM].timeScale=2"}, HasSubstr("EXPERT_GEMM"));
  expect_refused({"collectives[99].timeScale=2"}, HasSubstr("collectives[99], expected an item from 0 to"));
  expect_refused({"collectives[-1].timeScale=2"}, HasSubstr("expected an item from 0 to"));
  expect_refused({"collectives[ALL_TO_ALL].alphaBeta=2"}, HasSubstr("an object"));
  expect_refused({"collectives[ALL_TO_ALL].alphaBeta.betaSPerFlop=2"}, HasSubstr("betaSPerByte"));
  expect_refused({"collectives[4].efficiency.peakBytesPerS=2"},
                 AllOf(HasSubstr("an entry without efficiency"), HasSubstr("alphaBeta.betaSPerByte")));
  expect_refused({"collectives[ALL_REDUCE].alphaBeta.alphaS=2"},  // Stands beside a curve.
                 AllOf(HasSubstr("does not plan by alphaBeta"), HasSubstr("logLog.points[0].timeS")));
  expect_refused({"collectives[0].efficiency.points[4].bytes=2"}, HasSubstr("expected an item from 0 to 3"));
  expect_refused({"collectives[0].efficiency.points[ALL].bytes=2"}, HasSubstr("the number of an item"));
  expect_refused({"collectives[ALL_TO_ALL].alphaBeta[0].alphaS=2"}, HasSubstr("which is no list"));
  expect_refused({"layer[0].batch=2"}, HasSubstr("which is no list"));
  expect_refused({"routing.tokensPerExpert[0]=2"}, HasSubstr("routing"));  // The workload has no histogram.
  expect_refused({"collectives[ALL_TO_ALL].alphaBeta.alphaS=slow"},
                 HasSubstr("alphaBeta.alphaS: found the string \"slow\", expected a number"));
  expect_refused({"collectives[01].timeScale=2"}, HasSubstr("found collectives[01], expected an item from 0 to"));
  expect_refused({".layer=1"}, HasSubstr("--sweep: .layer: found an empty name"));
  expect_refused({"collectives[0].fit.points=3"}, HasSubstr("found an entry without fit"));
  expect_refused({"layer.gate=größe"}, HasSubstr("größe"));
  expect_refused({"layer.gate=\xff"}, HasSubstr("layer.gate: found bytes that are no UTF-8"));
  expect_refused(
      {"kernels[1].alphaBeta.alphaS=1", "kernels[EXPERT_GEMM].alphaBeta.alphaS=2"},
      HasSubstr("found kernels[1].alphaBeta.alphaS and kernels[EXPERT_GEMM].alphaBeta.alphaS, which set the same"));
  expect_refused({"layer.batch=1", "maxChunks=1", "layer.batch=2"}, HasSubstr("found layer.batch twice"));
}

TEST(SweepTest, ACostModelThatCannotBeIsARowWithTheReason) {
  const auto sweep =
      SweepOf({"kernels[EXPERT_GEMM].alphaBeta.betaSPerFlop=-1,1e-14", "kernels[EXPERT_GEMM].timeScale=1,2"});
  ASSERT_TRUE(sweep.ok()) << sweep.status().message();
  const std::vector<SweepRow> rows = RowsOf(*sweep, 1);
  EXPECT_THAT(rows[0].reason, AllOf(HasSubstr("kernels[1].alphaBeta.betaS"), HasSubstr("-1")));
  EXPECT_TRUE(rows[1].refused);
  ASSERT_TRUE(rows[2].best && rows[3].best);
  EXPECT_LT(rows[2].best->predicted_time_s, rows[3].best->predicted_time_s);
}

TEST(SweepTest, ANameIsEveryEntryThatHasTheRestOfThePath) {
  Profile profile = ExampleProfile();
  CollectiveModel slower = profile.collectives[0];  // Never asked for, and so without effect of its own.
  slower.key.contention = Contention::kWithCopy;
  profile.collectives.push_back(slower);
  const auto swept = [&](const std::vector<std::string>& axes) {
    const auto sweep = Sweep::Make(ToProto(ExampleWorkload()), profile, axes);
    EXPECT_TRUE(sweep.ok()) << sweep.status().message();
    return *sweep;
  };
  const std::string last = StrCat("collectives[", profile.collectives.size() - 1, "]");
  const Sweep of_all = swept({"collectives[ALL_TO_ALL].efficiency.peakBytesPerS=1e9"});
  const Sweep one_by_one =
      swept({"collectives[0].efficiency.peakBytesPerS=1e9", StrCat(last, ".efficiency.peakBytesPerS=1e9")});
  EXPECT_EQ(RowsOf(of_all)[0].best, RowsOf(one_by_one)[0].best);
  EXPECT_THAT(of_all.notes(),
              ElementsAre("collectives[ALL_TO_ALL].efficiency.peakBytesPerS: collectives[4] does not plan "
                          "by it and stays"));
  EXPECT_THAT(one_by_one.notes(), ::testing::IsEmpty());
}

TEST(SweepTest, AnItemOfAListIsNamedByItsNumber) {
  v1::Workload workload = ToProto(ExampleWorkload());
  workload.mutable_layer()->set_top_k(1);  // Of two experts: with both, loads are even.
  workload.mutable_layer()->set_capacity_factor(2);
  workload.mutable_routing()->mutable_tokens_per_expert()->Resize(workload.layer().experts(), 1);
  const auto sweep = [&](const char* axis) { return Sweep::Make(workload, ExampleProfile(), {axis}); };
  EXPECT_THAT(sweep("routing.tokensPerExpert[1]=few").status().message(),
              HasSubstr("routing.tokensPerExpert[1]: found the string \"few\""));
  const auto skewed = sweep("routing.tokensPerExpert[1]=1,30");
  ASSERT_TRUE(skewed.ok()) << skewed.status().message();
  const std::vector<SweepRow> rows = RowsOf(*skewed);
  ASSERT_TRUE(rows[0].best && rows[1].best);
  EXPECT_NE(rows[0].best->predicted_time_s, rows[1].best->predicted_time_s);
}

TEST(SweepTest, AMillionRowsIsTheLimit) {
  const auto count = [](const char* path, int values) {
    std::string axis = StrCat(path, "=1");
    for (int i = 1; i < values; ++i) axis += ",1";
    return axis;
  };
  EXPECT_TRUE(SweepOf({count("maxChunks", 1000), count("layer.batch", 1000)}).ok());
  const auto more = SweepOf({count("maxChunks", 1000), count("layer.batch", 1001), count("layer.topK", 1000000)});
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.status().message(), HasSubstr("found at least 1001000 combinations, expected at most 1000000"));
  EXPECT_FALSE(SweepOf({count("maxChunks", 1000001)}).ok());
}

TEST(OrderedRowsTest, WorkersWaitForTheReaderAndResultsComeInOrder) {
  OrderedRows rows(/*rows=*/3, /*window=*/2);
  ASSERT_EQ(rows.Take(), 0);
  ASSERT_EQ(rows.Take(), 1);
  std::atomic<bool> third = false;
  std::jthread worker([&] {
    EXPECT_EQ(rows.Take(), 2);
    third = true;
    EXPECT_EQ(rows.Take(), std::nullopt);
    rows.Put(2, SweepRow{.reason = "2"});
  });
  rows.Put(1, SweepRow{.reason = "1"});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(third);
  rows.Put(0, SweepRow{.reason = "0"});
  for (const char* reason : {"0", "1", "2"}) EXPECT_EQ(rows.Next().value()->reason, reason);
  EXPECT_TRUE(third);
}

}  // namespace
}  // namespace moeplan::planner
