#include "models/links/link_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "models/fit/fit.h"
#include "models/fit/statistics.h"
#include "tests/models/nearest_group.h"
#include "tests/models/synthetic_links.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::HasSubstr;

Profile With(std::vector<CollectiveModel> collectives) {
  Profile profile;
  profile.cluster = {.nodes = 8, .gpus_per_node = 8};
  profile.collectives = std::move(collectives);
  return profile;
}

CollectiveModel Curve(const CollectiveKey& key, std::vector<TimePoint> points) {
  return {key, MakeCostModel(LogLog{std::move(points)})};
}

CollectiveModel OfLine(const LinkLine& line, const CollectiveKey& key, double factor = 1) {
  std::vector<TimePoint> points;
  for (double bytes = 1024; bytes <= 67108864; bytes *= 4) {
    points.push_back({bytes, factor * TimeS(line, *LoadOf(key, line.use.route), bytes)});
  }
  return Curve(key, points);
}

const LinkLine kLine = {
    {GatherRoute::kDirect, true},
    {.start_s = 8e-6, .alpha_s = {1e-6, 5e-6}, .beta_s_per_byte = {5e-12, 4e-11}, .memory_s_per_byte = 1e-12}};

std::vector<CollectiveModel> OfLine(const LinkLine& line, const std::vector<GroupShape>& groups) {
  std::vector<CollectiveModel> entries;
  for (const GroupShape& group : groups) {
    for (const Collective collective : kPlainCollectives) {
      entries.push_back(OfLine(line, CollectiveOver(collective, group.size, group.ranks_per_node)));
    }
  }
  return entries;
}

double PredictS(const LinkModel& links, const CollectiveKey& key, double bytes) {
  return TimeS(links.Predict(key).value().model.model.curve, bytes, 1);
}

TEST(LinkModelTest, GroupsOfAnExactLineArePredictedExactly) {
  const LinkModel links(With(OfLine(kLine, {{2, 2}, {4, 4}, {8, 8}, {2, 1}, {4, 1}, {16, 8}})));
  for (const GroupShape& group : std::vector<GroupShape>{{64, 8}, {32, 8}, {8, 1}, {16, 4}, {6, 6}}) {
    for (const Collective collective : kPlainCollectives) {
      const CollectiveKey key = CollectiveOver(collective, group.size, group.ranks_per_node);
      for (const double bytes : {1024.0, 1048576.0, 67108864.0}) {
        const double true_s = TimeS(kLine, *LoadOf(key, kLine.use.route), bytes);
        EXPECT_NEAR(PredictS(links, key, bytes) / true_s, 1, 0.02) << Describe(key) << " " << bytes;
      }
    }
  }
}

TEST(LinkModelTest, LimitedCtasTeachNothingAndAreNotPredicted) {
  std::vector<CollectiveModel> entries = OfLine(kLine, {{2, 2}, {4, 4}, {8, 8}, {2, 1}, {4, 1}, {16, 8}});
  const LinkModel without(With(entries));
  for (size_t i = 0, count = entries.size(); i < count; ++i) {
    CollectiveModel limited = OfLine(kLine, entries[i].key, /*factor=*/10);
    limited.key.ctas = 8;
    entries.push_back(limited);
  }
  const LinkModel with(With(entries));
  CollectiveKey key = CollectiveOver(Collective::kAllToAll, 64, 8);
  EXPECT_EQ(PredictS(with, key, 1048576), PredictS(without, key, 1048576));
  key.ctas = 8;
  EXPECT_FALSE(with.Predict(key).has_value());
}

TEST(LinkModelTest, ABendGoesOverToGroupsThatReachAsFar) {
  // All curves between nodes are twice the line at 1 MiB, those inside are the line.
  std::vector<CollectiveModel> entries = OfLine(kLine, {{2, 2}, {4, 4}, {8, 8}, {2, 1}, {4, 1}, {16, 8}});
  constexpr double kBendBytes = 1048576;
  for (CollectiveModel& entry : entries) {
    if (!Spans(entry.key.group)) continue;
    for (TimePoint& point : std::get<LogLog>(entry.model.curve).points) {
      if (point.size == kBendBytes) point.time_s *= 2;
    }
  }
  const LinkModel links(With(std::move(entries)));
  const CollectiveKey between = CollectiveOver(Collective::kAllToAll, 8, 1);
  const CollectiveKey inside = CollectiveOver(Collective::kAllToAll, 6, 6);
  const auto over_line = [&](const CollectiveKey& key) {
    return PredictS(links, key, kBendBytes) / TimeS(kLine, *LoadOf(key, GatherRoute::kDirect), kBendBytes);
  };
  EXPECT_NEAR(over_line(between), 2, 0.1);
  EXPECT_NEAR(over_line(inside), 1, 0.05);
}

TEST(LinkModelTest, OneRankIsFreeAndWhatNothingReachesAbsent) {
  const LinkModel inside(With(OfLine(kLine, {{4, 4}, {8, 8}})));
  EXPECT_FALSE(inside.Predict(CollectiveOver(Collective::kAllToAll, 1, 1)));
  EXPECT_FALSE(inside.Predict(CollectiveOver(Collective::kAllToAll, 2, 1)));
  EXPECT_TRUE(inside.Predict(CollectiveOver(Collective::kAllToAll, 2, 2)));
  const LinkModel between(With(OfLine(kLine, {{2, 1}})));
  EXPECT_FALSE(between.Predict(CollectiveOver(Collective::kAllToAll, 4, 4)));
  EXPECT_FALSE(LinkModel(Profile()).Predict(CollectiveOver(Collective::kAllToAll, 4, 4)));
  EXPECT_FALSE(LinkModel(Profile()).line());
}

TEST(LinkModelTest, AnAlgorithmThatWasNeverMeasuredAsFarIsAbsent) {
  std::vector<CollectiveModel> entries = OfLine(kLine, {{8, 8}, {2, 1}, {16, 8}});
  CollectiveKey asked = CollectiveOver(Collective::kAllToAll, 32, 8);
  asked.algorithm = AllToAllAlgorithm::kHier2d;
  EXPECT_FALSE(LinkModel(With(entries)).Predict(asked));
  CollectiveKey measured = asked;
  measured.group.size = 16;
  entries.push_back(OfLine(kLine, measured));
  const LinkModel links(With(entries));
  const double true_s = TimeS(kLine, *LoadOf(asked, GatherRoute::kDirect), 1048576);
  EXPECT_NEAR(PredictS(links, asked, 1048576) / true_s, 1, 0.03);
}

TEST(LinkModelTest, ContendedEntriesAndGatheringAllToAllsTeachNothing) {
  std::vector<CollectiveModel> entries = OfLine(kLine, {{2, 2}, {8, 8}, {2, 1}, {4, 1}});
  const LinkModel plain(With(entries));
  CollectiveKey contended = CollectiveOver(Collective::kAllToAll, 2, 1);
  contended.contention = Contention::kWithCopy;
  entries.push_back(OfLine(kLine, contended, /*factor=*/9));
  CollectiveKey gathering = CollectiveOver(Collective::kAllToAllAllGather, 4, 1);
  gathering.gather_group_size = gathering.shards = 2;
  entries.push_back(Curve(gathering, {{1024, 1}, {1048576, 2}}));
  const LinkModel links(With(entries));
  EXPECT_EQ(*links.line(), *plain.line());
  CollectiveKey asked = CollectiveOver(Collective::kAllToAll, 8, 1);
  EXPECT_EQ(links.Predict(asked)->model, plain.Predict(asked)->model);
  asked.contention = Contention::kWithCopy;
  EXPECT_EQ(links.Predict(asked)->model.key.contention, Contention::kNone);
  EXPECT_FALSE(links.Predict(gathering));
}

TEST(LinkModelTest, TheSameElementSizeIsNearer) {
  std::vector<CollectiveModel> entries = OfLine(kLine, {{2, 2}, {8, 8}});
  for (const int bytes_per_element : {2, 4}) {
    CollectiveKey key = CollectiveOver(Collective::kAllToAll, 4, 1);
    key.bytes_per_element = bytes_per_element;
    entries.push_back(OfLine(kLine, key, /*factor=*/bytes_per_element));
  }
  const LinkModel links(With(std::move(entries)));
  CollectiveKey asked = CollectiveOver(Collective::kAllToAll, 8, 1);
  asked.bytes_per_element = 2;
  const double two_s = PredictS(links, asked, 1048576);
  asked.bytes_per_element = 4;
  const double four_s = PredictS(links, asked, 1048576);
  // Weights of 1 / (1 + 0.05) for the own size, one doubling away, and 1 / (4 + 0.05) for the other, factors 2 and 4.
  const double share = 1 / 1.05 / (1 / 1.05 + 1 / 4.05);
  EXPECT_NEAR(four_s / two_s, std::pow(2, 2 * share - 1), 1e-6);
}

TEST(LinkModelTest, TimesNeverFallAndSizesStayInTheMeasuredRange) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    std::vector<CollectiveModel> entries;
    double low = 1e30, high = 0;
    for (const GroupShape& group : std::vector<GroupShape>{{2, 2}, {8, 8}, {2, 1}, {16, 8}}) {
      std::vector<TimePoint> points;
      double bytes = 1;
      for (size_t i = 0, count = 1 + random() % 60; i < count; ++i) {
        bytes *= 1.1 + static_cast<double>(random() % 8);
        points.push_back({bytes, std::exp2(-static_cast<double>(random() % 20))});
      }
      if (Spans(group)) low = std::min(low, points.front().size), high = std::max(high, points.back().size);
      entries.push_back(Curve(CollectiveOver(Collective::kAllToAll, group.size, group.ranks_per_node), points));
    }
    const LinkModel links(With(std::move(entries)));
    const auto prediction = links.Predict(CollectiveOver(Collective::kAllToAll, 64, 8));
    ASSERT_TRUE(prediction);
    const CostModel& model = prediction->model.model;
    ASSERT_TRUE(ValidateCurve(model.curve, "predicted").ok());
    EXPECT_EQ(model.size_low, low);
    EXPECT_EQ(model.size_high, high);
    const auto& points = std::get<LogLog>(model.curve).points;
    EXPECT_LE(points.size(), LinkModel::kMostPoints);
    EXPECT_TRUE(std::ranges::is_sorted(points, {}, &TimePoint::time_s));
    EXPECT_EQ(links.Predict(prediction->model.key)->model, prediction->model);
  }
}

TEST(LinkModelTest, AProfileOfManyThousandCurvesIsLearntFromInSeconds) {
  std::vector<CollectiveModel> entries;
  for (int size = 2; size < 20002; ++size) {
    entries.push_back(OfLine(kLine, CollectiveOver(Collective::kAllGather, size, std::min(size, 8))));
  }
  const auto begin = std::chrono::steady_clock::now();
  const LinkModel links(With(std::move(entries)));
  const CollectiveKey asked = CollectiveOver(Collective::kAllGather, 32768, 8);
  EXPECT_NEAR(PredictS(links, asked, 1048576) / TimeS(kLine, *LoadOf(asked, GatherRoute::kDirect), 1048576), 1, 0.05);
  // Less than a second; without the bounds 14.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(LinkModelTest, IntervalsAreWiderThanThoseMeasuredAndGrowWithTheWay) {
  std::mt19937_64 random(TestSeed());
  SyntheticCluster cluster(kLine, {.noise = 0.02, .curve_spread = 0.05}, random());
  SampleSet samples = {.cluster = {.nodes = 8, .gpus_per_node = 8}};
  for (const GroupShape& group : std::vector<GroupShape>{{2, 2}, {8, 8}, {2, 1}, {4, 1}, {16, 8}}) {
    for (const Collective collective : kPlainCollectives) {
      cluster.Measure(CollectiveOver(collective, group.size, group.ranks_per_node), cluster.DrawCurveFactor(), samples);
    }
  }
  const Profile profile = *FitProfile(samples);
  double widest_measured = 1;
  for (const CollectiveModel& entry : profile.collectives) {
    if (Spans(entry.key.group)) widest_measured = std::max(widest_measured, entry.model.fit->interval_high_ratio);
  }
  const LinkModel links(profile);
  double last = widest_measured;
  for (const int size : {32, 64, 128}) {
    const auto prediction = links.Predict(CollectiveOver(Collective::kAllGather, size, 8));
    const FitQuality& quality = *prediction->model.model.fit;
    EXPECT_GE(quality.interval_high_ratio, last);
    EXPECT_DOUBLE_EQ(quality.interval_low_ratio, 1 / quality.interval_high_ratio);
    EXPECT_TRUE(prediction->tested);
    last = quality.interval_high_ratio;
  }
}

TEST(LinkModelTest, WhatCouldNotBeTestedSaysSo) {
  const LinkModel links(With({OfLine(kLine, CollectiveOver(Collective::kAllToAll, 2, 1))}));
  const auto prediction = links.Predict(CollectiveOver(Collective::kAllToAll, 4, 1));
  EXPECT_FALSE(prediction->tested);
  EXPECT_DOUBLE_EQ(prediction->model.model.fit->interval_high_ratio, LinkModel::kUntestedRatio);
  // Four doublings away: the root of 4 times as much of its logarithm.
  const auto far = links.Predict(CollectiveOver(Collective::kAllToAll, 32, 1));
  EXPECT_NEAR(far->model.model.fit->interval_high_ratio, std::pow(LinkModel::kUntestedRatio, 2), 1e-9);
  EXPECT_THAT(Describe(*prediction), HasSubstr("ALL_TO_ALL groupSize 4 ranksPerNode 1: not measured; extrapolated from "
                                               "links, 90 % interval × 0.5 to 2, assumed"));
}

// Many clusters whose links are random, whose curves bend and have factors of their own, measured with noise and
// outliers on few groups; asked: other group sizes, more nodes, and a collective that was never measured so far.
TEST(LinkModelTest, HeldOutGroupsArePredictedAndLieInTheIntervals) {
  std::mt19937_64 random(TestSeed());
  std::vector<double> errors, nearest_errors, high_ratios;
  int covered = 0;
  constexpr int kClusters = 60;
  for (int round = 0; round < kClusters; ++round) {
    SyntheticCluster cluster(RandomLinks(random),
                             {.noise = 0.03, .outlier_share = 0.1, .curve_spread = 0.05, .bend = 0.3}, random());
    SampleSet samples = {.cluster = {.nodes = 32, .gpus_per_node = 8}};
    for (const GroupShape& group : std::vector<GroupShape>{{2, 2}, {8, 8}, {2, 1}, {8, 1}, {16, 8}, {32, 8}}) {
      for (const Collective collective : kPlainCollectives) {
        if (collective == Collective::kAllReduce && Spans(group)) continue;
        cluster.Measure(CollectiveOver(collective, group.size, group.ranks_per_node), cluster.DrawCurveFactor(),
                        samples);
      }
    }
    const Profile profile = *FitProfile(samples);
    const LinkModel links(profile);
    for (const GroupShape& group : std::vector<GroupShape>{{4, 4}, {4, 1}, {16, 1}, {64, 8}, {128, 8}, {32, 4}}) {
      for (const Collective collective : kPlainCollectives) {
        const CollectiveKey key = CollectiveOver(collective, group.size, group.ranks_per_node);
        const double factor = cluster.DrawCurveFactor();
        const auto prediction = links.Predict(key);
        ASSERT_TRUE(prediction) << Describe(key);
        high_ratios.push_back(prediction->model.model.fit->interval_high_ratio);
        for (double bytes = 1024; bytes <= 67108864; bytes *= 4) {
          const double true_s = cluster.TrueTimeS(key, bytes, factor);
          const PricedTime price = Price(prediction->model.model, bytes, 1);
          errors.push_back(std::abs(std::log(price.time_s / true_s)));
          nearest_errors.push_back(std::abs(std::log(NearestGroupTimeS(profile, key, bytes) / true_s)));
          covered += price.low_s <= true_s && true_s <= price.high_s;
        }
      }
    }
  }
  const double coverage = static_cast<double>(covered) / static_cast<double>(errors.size());
  std::printf(
      "%d clusters, log error at the median and 90 %%: links %.3f %.3f, nearest group %.3f %.3f; interval × %.2f "
      "at the median covers %.3f\n",
      kClusters, Median(errors), Quantile(errors, 0.9), Median(nearest_errors), Quantile(nearest_errors, 0.9),
      Median(high_ratios), coverage);
  EXPECT_LE(Median(errors), 0.08);
  EXPECT_LT(Median(errors), Median(nearest_errors) / 2);
  EXPECT_GE(coverage, 0.85);
}

TEST(LinkModelTest, NoLineOfAModelIsFasterThanTheWires) {
  Profile profile = With(OfLine(kLine, {{2, 2}, {4, 4}, {8, 8}, {2, 1}, {4, 1}, {16, 8}}));
  const double beta = LinkModel(profile).line()->costs.beta_s_per_byte[1];
  profile.cluster.network_bytes_per_s = 0.8 / beta;
  EXPECT_DOUBLE_EQ(LinkModel(profile).line()->costs.beta_s_per_byte[1], beta / 0.8);
}

}  // namespace
}  // namespace moeplan
