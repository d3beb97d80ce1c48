// Which measurements a grid of workloads asks for, and what becomes of times that cannot be right; without ranks.
#include "agent/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "models/extension/extension.h"

namespace moeplan::agent {
namespace {

struct Cubed {
  static constexpr int kMatrices = 2;
  template <typename T>
  static T Hidden(T up, T) {
    return up * up * up;
  }
  template <typename T>
  static T UpSlope(T up, T) {
    return 3 * up * up;
  }
  template <typename T>
  static T GateUpSlope(T, T) {
    return 0;
  }
};

const StatusOr<ExpertKind> kCubed = RegisterExpert<Cubed>("CUBED");

TEST(CalibrateTest, ExpertsOfTwoKindsAreMeasuredEachOnItsOwn) {
  ASSERT_TRUE(kCubed.ok()) << kCubed.status().message();
  const Cluster cluster = {.nodes = 1, .gpus_per_node = 2};
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 64,
                    .model_dim = 32,
                    .hidden_dim = 32,
                    .experts = 2,
                    .top_k = 1,
                    .capacity_factor = 1,
                    .shared_hidden_dim = 16};
  workload.layout = {.expert_parallel = 2};
  workload.phase = Phase::kTraining;
  const Workload ffn = *ResolveWorkload(workload, cluster);
  workload.layer.expert_kind = *kCubed;
  const Workload own = *ResolveWorkload(workload, cluster);

  std::set<std::string> measured;
  for (const Measurement& measurement : MeasurementsOf({ffn, own}, cluster)) {
    const auto* kernel = std::get_if<KernelKey>(&measurement.need.key);
    if (kernel == nullptr || !CountsFlops(kernel->kernel)) continue;
    measured.emplace(Name(kernel->kernel));
    EXPECT_EQ(measurement.context.layer.expert_kind, ExpertKindOf(kernel->kernel)) << Name(kernel->kernel);
  }
  EXPECT_EQ(measured, (std::set<std::string>{"EXPERT_GEMM", "EXPERT_INPUT_GRADIENT", "EXPERT_WEIGHT_GRADIENT",
                                             "EXPERT_GEMM_CUBED", "EXPERT_INPUT_GRADIENT_CUBED",
                                             "EXPERT_WEIGHT_GRADIENT_CUBED"}));
}

TEST(CalibrateTest, LimitsOnCtasAskForCommunicationOnceMoreAndForNothingElse) {
  const Cluster cluster = {.nodes = 1, .gpus_per_node = 2};
  const std::vector<Measurement> plain = MeasurementsOfLayouts(cluster);
  const std::vector<Measurement> limited = WithCtaLimits(plain, {4, 16});
  size_t communication = 0;
  for (const Measurement& one : plain) {
    const bool beside = IsCommunication(ContentionOf(one.need.key));
    if (std::holds_alternative<CollectiveKey>(one.need.key) || beside) ++communication;
  }
  EXPECT_EQ(limited.size(), plain.size() + 2 * communication);
  std::set<std::pair<CostKey, double>> different;
  for (const Measurement& one : limited) different.emplace(one.need.key, one.need.size);
  EXPECT_EQ(different.size(), limited.size());
  std::set<int> limits;
  for (const Measurement& one : limited) {
    limits.insert(CtasOf(one.need.key));
    const auto* kernel = std::get_if<KernelKey>(&one.need.key);
    EXPECT_TRUE(kernel == nullptr || kernel->ctas == 0 || IsCommunication(kernel->contention));
  }
  EXPECT_EQ(limits, (std::set<int>{0, 4, 16}));
}

// Two ranks that answer at once, in the times that they are told: of a rank, for what is measured.
class ToldRanks final : public RankLinks {
 public:
  using Times = std::function<std::vector<double>(int rank, const v1::RankCommand::Measure& measure)>;

  explicit ToldRanks(Times times) : times_(std::move(times)) {}

  // What else a rank says of a kernel that is timed through libraries.
  std::function<void(int rank, v1::RankReply::Measured& measured)> of_libraries = [](int, v1::RankReply::Measured&) {};

  int nodes() const override { return 1; }
  int ranks_per_node() const override { return 2; }
  std::optional<Unsent> Send(std::span<const v1::RankCommand> commands) override {
    for (int rank = 0; rank < ranks(); ++rank) asked_[rank].push_back(commands[commands.size() == 1 ? 0 : rank]);
    return std::nullopt;
  }
  std::vector<int> Await(const std::vector<bool>& wanted, Moment) override { return {wanted[0] ? 0 : 1}; }
  StatusOr<v1::RankReply> Receive(int rank) override {
    const v1::RankCommand command = asked_[rank].front();
    asked_[rank].pop_front();
    v1::RankReply reply;
    if (command.has_start()) reply.mutable_started();
    if (command.has_connect()) reply.mutable_connected();
    if (!command.has_measure()) return reply;
    reply.mutable_measured();
    for (const double time_s : times_(rank, command.measure())) reply.mutable_measured()->add_time_s(time_s);
    of_libraries(rank, *reply.mutable_measured());
    return reply;
  }
  std::string EndOf(int) override { return ""; }
  int ProcessOf(int) const override { return 0; }

 private:
  const Times times_;
  std::deque<v1::RankCommand> asked_[2];
};

Measurement GatherOf(double bytes, Contention contention = Contention::kNone) {
  const CollectiveKey gather = {.collective = Collective::kAllGather, .group = {.size = 2, .ranks_per_node = 2}};
  return {.need = {.key = WithContention(gather, contention), .size = bytes}};
}

TEST(CalibrateTest, TimesThatCannotBeRightAreKeptAndDoNotCount) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const double wrong_s : {kNaN, kInfinity, -1.0, 0.0}) {
    for (const int wrong_rank : {0, 1}) {
      // One rank hides nothing of another: of NaN beside 1 s no maximum tells.
      const auto times = [&](int rank, const v1::RankCommand::Measure& measure) {
        const bool wrong = measure.what().bytes() == 1024 && (rank == wrong_rank || wrong_s == 0);
        return std::vector<double>(static_cast<size_t>(measure.repeats()), wrong ? wrong_s : 1e-3 * (1 + rank));
      };
      auto fleet = Fleet::Start(std::make_unique<ToldRanks>(times));
      ASSERT_TRUE(fleet.ok()) << fleet.status().message();
      std::map<double, std::vector<double>> kept;  // The first time of each visit, by size.
      const auto keep = [&](const Sample& sample) {
        kept[sample.size].push_back(sample.times_s.front());
        return OkStatus();
      };
      const auto samples = Calibrate(*fleet, {GatherOf(1024), GatherOf(2048)}, {.budget_s = 20, .keep = keep});
      ASSERT_TRUE(samples.ok()) << samples.status().message();
      ASSERT_EQ(samples->samples.size(), 1u);
      EXPECT_EQ(samples->samples[0].size, 2048);
      EXPECT_THAT(kept[2048], testing::ElementsAre(2e-3, 2e-3));  // Two repeats, then three: all the same.
      ASSERT_EQ(kept[1024].size(), 1u);                           // What has no time is not visited again.
      EXPECT_FALSE(std::isfinite(kept[1024][0]) && kept[1024][0] > 0) << kept[1024][0];
    }
  }
}

TEST(CalibrateTest, WhatIsSometimesWrongIsGivenUpAfterAFewVisits) {
  int visits = 0;
  const auto times = [&](int rank, const v1::RankCommand::Measure& measure) {
    visits += rank == 0;
    return std::vector<double>(static_cast<size_t>(measure.repeats()), visits == 1 ? 1e-3 : 0);
  };
  auto fleet = Fleet::Start(std::make_unique<ToldRanks>(times));
  ASSERT_TRUE(fleet.ok());
  const auto samples = Calibrate(*fleet, {GatherOf(1024)}, {.budget_s = 20});
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  EXPECT_EQ(samples->samples.at(0).times_s, (std::vector<double>{1e-3, 1e-3}));
  EXPECT_EQ(visits, 1 + 3);
}

TEST(CalibrateTest, WhatRunsBesideMustHaveATime) {
  const auto times = [](int, const v1::RankCommand::Measure& measure) {
    return std::vector<double>(static_cast<size_t>(measure.repeats()), measure.what().has_kernel() ? 0 : 1e-3);
  };
  auto fleet = Fleet::Start(std::make_unique<ToldRanks>(times));
  ASSERT_TRUE(fleet.ok());
  const auto samples = Calibrate(*fleet, {GatherOf(1024, Contention::kWithCopy)}, {.budget_s = 20});
  ASSERT_FALSE(samples.ok());
  EXPECT_EQ(samples.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(samples.status().message(), testing::HasSubstr("found DEVICE_COPY measured as 0 s, expected"));
}

TEST(CalibrateTest, ARankThatAnswersTooFewTimesIsNamed) {
  const auto times = [](int rank, const v1::RankCommand::Measure& measure) {
    return std::vector<double>(static_cast<size_t>(measure.repeats() - rank), 1e-3);
  };
  auto fleet = Fleet::Start(std::make_unique<ToldRanks>(times));
  ASSERT_TRUE(fleet.ok());
  const auto samples = Calibrate(*fleet, {GatherOf(1024)}, {.budget_s = 20});
  ASSERT_FALSE(samples.ok());
  EXPECT_THAT(samples.status().message(), testing::HasSubstr("rank 1: found 1 times, expected 2"));
}

std::vector<double> SameTimes(int, const v1::RankCommand::Measure& measure) {
  return std::vector<double>(static_cast<size_t>(measure.repeats()), 1e-3);
}

Measurement NormOf(double bytes) {
  return {.need = {.key = KernelKey{.kernel = Kernel::kNorm}, .size = bytes}, .context = {}};
}

TEST(CalibrateTest, SamplesNameTheLibraryThatTheyAreOf) {
  auto ranks = std::make_unique<ToldRanks>(SameTimes);
  ranks->of_libraries = [](int, v1::RankReply::Measured& measured) { measured.set_library("torch 9"); };
  auto fleet = Fleet::Start(std::move(ranks));
  ASSERT_TRUE(fleet.ok());
  std::set<std::string> kept;
  const auto keep = [&](const Sample& sample) {
    kept.insert(sample.provenance.at("library"));
    return OkStatus();
  };
  const auto samples = Calibrate(*fleet, {NormOf(1024)}, {.budget_s = 20, .keep = keep});
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  EXPECT_EQ(samples->samples.at(0).provenance.at("library"), "torch 9");
  EXPECT_EQ(kept, std::set<std::string>{"torch 9"});
}

// Whichever rank it is that has no such library.
TEST(CalibrateTest, WhatALibraryLacksIsLeftOutWithItsReasonOnceAndTheRestIsMeasured) {
  for (const int lacking : {0, 1}) {
    int visits = 0;
    auto ranks = std::make_unique<ToldRanks>([&](int rank, const v1::RankCommand::Measure& measure) {
      const bool lacks = measure.what().kernel() == v1::Kernel::NORM;
      if (lacks && rank == lacking) ++visits;
      return lacks && rank == lacking ? std::vector<double>() : SameTimes(rank, measure);
    });
    int asked = 0;
    ranks->of_libraries = [&](int rank, v1::RankReply::Measured& measured) {
      if (measured.time_s_size() > 0 || rank != lacking) return;
      measured.set_left_out("no PyTorch at python3");
      ++asked;
    };
    auto fleet = Fleet::Start(std::move(ranks));
    ASSERT_TRUE(fleet.ok());
    std::vector<std::string> left_out;
    const auto samples =
        Calibrate(*fleet, {NormOf(1024), NormOf(4096), GatherOf(1024)},
                  {.budget_s = 20, .left_out = [&](const std::string& what) { left_out.push_back(what); }});
    ASSERT_TRUE(samples.ok()) << samples.status().message();
    ASSERT_EQ(samples->samples.size(), 1u);
    EXPECT_THAT(left_out,
                testing::ElementsAre("left out: NORM, and whatever else of a step has the same reason: no PyTorch at "
                                     "python3"));
    EXPECT_EQ(visits, 2);  // Once for each size.
    EXPECT_EQ(asked, 2);
  }
}

TEST(CalibrateTest, StepsAreMeasuredBesideLayoutsEachNeedOnce) {
  const Cluster cluster = {.nodes = 1, .gpus_per_node = 2};
  const std::vector<Measurement> plain = MeasurementsOfLayouts(cluster);
  const Need norm = NormOf(4096).need;
  const std::vector<Measurement> both = MeasurementsOfLayouts(cluster, {norm, plain.front().need});
  ASSERT_EQ(both.size(), plain.size() + 1);
  EXPECT_TRUE(std::ranges::any_of(both, [&](const Measurement& one) { return one.need == norm; }));
  EXPECT_TRUE(std::ranges::is_sorted(both, std::ranges::greater(), [](const auto& one) { return one.need.weight; }));
}

}  // namespace
}  // namespace moeplan::agent
