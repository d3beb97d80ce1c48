// PutSamples, AppendSamples, FitProfile and ListRejectedSamples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <iostream>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "handlers_fixture.h"
#include "models/fit/fit.h"
#include "models/text.h"
#include "planner/service/handlers/fit_profile.h"
#include "planner/service/handlers/rejected_samples.h"
#include "planner/service/samples/withdraw.h"

namespace moeplan::service {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using SamplesTest = HandlersTest;

// ---- PutSamples.

TEST_F(SamplesTest, PutSamplesFitsAllSamplesOfTheName) {
  const v1::PutSamplesRequest first = GateSamples("a", 1e-3), second = GateSamples("b", 2e-3);
  const auto response = PutSamples(environment(), first, {});
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_EQ(response->profile_name(), "gates");
  EXPECT_EQ(response->profile_version(), 1);
  EXPECT_EQ(response->stored_samples(), 2);
  Put(GateSamples("elsewhere", 9e-3, "other name"));
  EXPECT_EQ(Put(second), 2);

  SampleSet both = *SamplesFromProto(first.samples());
  const SampleSet added = *SamplesFromProto(second.samples());
  both.samples.insert(both.samples.end(), added.samples.begin(), added.samples.end());
  Profile stored = *store_->LoadProfile({.name = "gates", .version = 2});
  stored.version = 0;
  stored.created_at.clear();
  EXPECT_EQ(stored, *FitProfile(both));
  EXPECT_NE(stored.kernels, FitProfile(added)->kernels);
}

TEST_F(SamplesTest, ARetriedPutSamplesAnswersTheSameAlsoAfterARestart) {
  const v1::PutSamplesRequest first = GateSamples("a", 1e-3), second = GateSamples("b", 2e-3);
  EXPECT_EQ(Put(first), 1);
  EXPECT_EQ(Put(second), 2);
  EXPECT_EQ(Put(first), 1);
  Reopen();
  EXPECT_EQ(Put(second), 2);
  EXPECT_EQ(Put(first), 1);
  EXPECT_EQ(Versions(), 2);
  EXPECT_THAT(*store_->SamplesOf({}), SizeIs(2));
}

TEST_F(SamplesTest, ARequestIdOfOtherSamplesIsRefused) {
  Put(GateSamples("a", 1e-3));
  EXPECT_THAT(PutSamples(environment(), GateSamples("a", 2e-3), {}),
              IsError(StatusCode::kInvalidInput, "request 'a': was stored before with other samples"));
}

TEST_F(SamplesTest, ARetryFinishesWhatACrashLeftHalfDone) {
  ASSERT_TRUE(Append(GateSamples("a", 1e-3)).ok());  // The crash came before the fit.
  EXPECT_EQ(Put(GateSamples("a", 1e-3)), 1);
  EXPECT_EQ(Put(GateSamples("a", 1e-3)), 1);
  EXPECT_EQ(Versions(), 1);
}

TEST_F(SamplesTest, ARetryAfterACrashFindsALaterVersionThatHoldsItsSamples) {
  ASSERT_TRUE(Append(GateSamples("a", 1e-3)).ok());
  EXPECT_EQ(Put(GateSamples("b", 2e-3)), 1);  // Fitted from both.
  EXPECT_EQ(Put(GateSamples("c", 3e-3)), 2);
  EXPECT_EQ(Put(GateSamples("a", 1e-3)), 2);
  EXPECT_EQ(Versions(), 2);
}

TEST_F(SamplesTest, SamplesOfAnotherClusterAreRefusedBeforeTheyAreStored) {
  Put(GateSamples("a", 1e-3));
  v1::PutSamplesRequest other = GateSamples("b", 2e-3);
  other.mutable_samples()->mutable_cluster()->set_nodes(2);
  EXPECT_THAT(PutSamples(environment(), other, {}),
              IsError(StatusCode::kInvalidInput, "samples.cluster: found nodes 2, gpusPerNode 1"));
  EXPECT_THAT(*store_->SamplesOf({}), SizeIs(1));
}

TEST_F(SamplesTest, RequestsThatAreNoSamplesAreRefusedByField) {
  v1::PutSamplesRequest request = GateSamples("a", 1e-3);
  request.mutable_samples()->mutable_samples(1)->set_ctas(-1);
  EXPECT_THAT(PutSamples(environment(), request, {}), IsError(StatusCode::kInvalidInput, "samples: samples[1]"));
  request.mutable_samples()->mutable_samples(1)->Clear();
  EXPECT_THAT(PutSamples(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "samples: samples[1]: found no operation"));
  request.mutable_samples()->clear_samples();
  EXPECT_THAT(PutSamples(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "samples.samples: found nothing"));
  EXPECT_EQ(store_->SamplesOf({}).status().code(), StatusCode::kNotFound);
}

// ---- What is set aside.

// GateSamples and a third of 64 KiB, 1e-4 s, with `wrong` done to it.
v1::PutSamplesRequest OneWrong(const std::string& request_id, const std::function<void(v1::Sample&)>& wrong) {
  v1::PutSamplesRequest request = GateSamples(request_id, 1e-3);
  v1::Sample& sample = *request.mutable_samples()->add_samples();
  sample.set_kernel(v1::Kernel::GATE);
  sample.set_bytes(65536);
  sample.add_time_s(1e-4);
  wrong(sample);
  return request;
}

std::vector<std::function<void(v1::Sample&)>> Wrongs() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<std::function<void(v1::Sample&)>> wrongs;
  for (const double time_s : {std::nan(""), kInfinity, -kInfinity, -1e-4, 0.0}) {
    wrongs.push_back([=](v1::Sample& sample) { sample.add_time_s(time_s); });
  }
  wrongs.push_back([](v1::Sample& sample) { sample.clear_time_s(); });
  wrongs.push_back([](v1::Sample& sample) { sample.set_bytes(std::nan("")); });
  wrongs.push_back([](v1::Sample& sample) {  // 49,152 bytes in 1e-4 s, 4.9e8 bytes/s, over a link of 1e8.
    sample.set_collective(v1::Collective::ALL_TO_ALL);
    sample.set_group_size(4);
    sample.set_ranks_per_node(4);
    (*sample.mutable_provenance())["linkBytesPerS"] = "1e8";
  });
  wrongs.push_back([](v1::Sample& sample) { (*sample.mutable_provenance())["agent"] = "stranger"; });
  return wrongs;
}

TEST_F(SamplesTest, WhatCannotBeRightIsSetAsideAndTheRestIsFitted) {
  knows_agent_ = [](const std::string& agent) { return agent != "stranger"; };
  EXPECT_EQ(Put(GateSamples("sound", 1e-3, "sound")), 1);
  const std::vector<KernelModel> sound = store_->LoadProfile({.name = "sound"})->kernels;
  for (const auto& wrong : Wrongs()) {
    const std::string id = StrCat("wrong ", Versions());
    v1::PutSamplesRequest request = OneWrong(id, wrong);
    request.mutable_samples()->set_name(id);
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto response = PutSamples(environment(), request, {});
      ASSERT_TRUE(response.ok()) << response.status().message();
      EXPECT_EQ(response->stored_samples(), 2);
      EXPECT_EQ(response->rejected_samples(), 1);
      EXPECT_EQ(response->profile_version(), 1);
    }
    EXPECT_EQ(store_->LoadProfile({.name = id})->kernels, sound);
    v1::ListRejectedSamplesRequest list;
    list.set_profile_name(id);
    const auto listed = ListRejectedSamples(environment(), list, {});
    ASSERT_TRUE(listed.ok()) << listed.status().message();
    ASSERT_THAT(listed->rejected_samples(), SizeIs(1));  // Once, though it came twice.
    EXPECT_EQ(listed->rejected_samples(0).request_id(), id);
    EXPECT_THAT(listed->rejected_samples(0).reason(), HasSubstr("found"));
    std::cout << listed->rejected_samples(0).reason() << "\n";
  }
}

TEST_F(SamplesTest, AnAgentThatIsKnownMayBringSamples) {
  v1::PutSamplesRequest request =
      OneWrong("a", [](v1::Sample& sample) { (*sample.mutable_provenance())["agent"] = "node 1"; });
  EXPECT_EQ(PutSamples(environment(), request, {})->rejected_samples(), 0);  // All are known by default.
  knows_agent_ = [](const std::string& agent) { return agent == "node 1"; };
  request.set_request_id("b");
  EXPECT_EQ(PutSamples(environment(), request, {})->rejected_samples(), 0);
  knows_agent_ = [](const std::string& agent) { return agent == "node 2"; };
  request.set_request_id("c");
  EXPECT_EQ(PutSamples(environment(), request, {})->rejected_samples(), 1);
  request.set_request_id("b");  // A retry answers as before, whoever is known by now.
  EXPECT_EQ(PutSamples(environment(), request, {})->rejected_samples(), 0);
}

TEST_F(SamplesTest, ARequestWithoutASoundSampleChangesNoProfile) {
  EXPECT_EQ(Put(GateSamples("a", 1e-3)), 1);
  v1::PutSamplesRequest request = GateSamples("b", 1e-3);
  for (v1::Sample& sample : *request.mutable_samples()->mutable_samples()) sample.add_time_s(0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto response = PutSamples(environment(), request, {});
    ASSERT_TRUE(response.ok()) << response.status().message();
    EXPECT_EQ(response->stored_samples(), 0);
    EXPECT_EQ(response->rejected_samples(), 2);
    EXPECT_EQ(response->profile_version(), 0);
  }
  EXPECT_EQ(Versions(), 1);
}

// ---- AppendSamples and FitProfile.

v1::AppendSamplesRequest AppendOf(const v1::PutSamplesRequest& put, const std::string& calibration = "") {
  v1::AppendSamplesRequest request;
  request.set_request_id(put.request_id());
  *request.mutable_samples() = put.samples();
  request.set_calibration(calibration);
  return request;
}

v1::FitProfileRequest FitOf(const std::string& request_id, const std::string& name = "gates") {
  v1::FitProfileRequest request;
  request.set_request_id(request_id);
  request.set_profile_name(name);
  return request;
}

TEST_F(SamplesTest, WhatIsAppendedIsFittedWhenAsked) {
  for (const char* id : {"a", "b"}) {
    const auto appended = AppendSamples(environment(), AppendOf(GateSamples(id, 1e-3), "monday"), {});
    ASSERT_TRUE(appended.ok()) << appended.status().message();
    EXPECT_EQ(appended->stored_samples(), 2);
    EXPECT_EQ(appended->rejected_samples(), 0);
  }
  EXPECT_EQ(Versions(), 0);
  EXPECT_THAT(*store_->SamplesOf({.calibration = "monday"}), SizeIs(1));
  const auto fitted = FitProfile(environment(), FitOf("fit 1"), {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  EXPECT_EQ(fitted->profile_name(), "gates");
  EXPECT_EQ(fitted->profile_version(), 1);
  Profile stored = *store_->LoadProfile({.name = "gates"});
  EXPECT_EQ(stored.kernels, FitProfile(store_->SamplesOf({})->at(0).samples)->kernels);
}

// Of a profile with very many curves: a caller's deadline may be shorter than the fit.
TEST_F(SamplesTest, AFitThatIsCutGoesOnWhereItWas) {
  constexpr int kCurves = 3000;
  v1::AppendSamplesRequest append = AppendOf(GateSamples("a", 1e-3));
  const v1::Sample pattern = append.samples().samples(0);
  append.mutable_samples()->clear_samples();
  for (int curve = 0; curve < kCurves; ++curve) {
    for (int i = 0; i < 8; ++i) {
      v1::Sample& sample = *append.mutable_samples()->add_samples() = pattern;
      sample.set_model_dim(curve + 1);
      sample.set_bytes(1024 << i);
    }
  }
  const auto appended = AppendSamples(environment(), append, {});
  ASSERT_TRUE(appended.ok()) << appended.status().message();
  ASSERT_EQ(appended->stored_samples(), 8 * kCurves);
  std::stop_source left;
  std::jthread caller([&] {
    while (puts_->fits().fitted() == 0) std::this_thread::yield();
    left.request_stop();
  });
  EXPECT_EQ(FitProfile(environment(), FitOf("1"), left.get_token()).status().code(), StatusCode::kCancelled);
  caller.join();
  EXPECT_LT(puts_->fits().fitted(), kCurves);
  EXPECT_EQ(Versions(), 0);
  const auto fitted = FitProfile(environment(), FitOf("1"), {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  EXPECT_EQ(puts_->fits().fitted(), kCurves) << "each curve once";
  EXPECT_EQ(store_->LoadProfile({.name = "gates"})->kernels, FitProfile(store_->SamplesOf({})->at(0).samples)->kernels);
}

TEST_F(SamplesTest, PutsOfOneProfileDoNotWaitForOthersAndNoLongerThanTheirCallers) {
  std::optional<StatusOr<Puts::Turn>> slow = puts_->TakeTurn("gates", {});
  ASSERT_TRUE((*slow).ok());
  EXPECT_EQ(Put(GateSamples("a", 1e-3, "other name")), 1);
  std::stop_source left;
  auto waiting = std::async(
      std::launch::async, [&] { return PutSamples(environment(), GateSamples("b", 1e-3), left.get_token()).status(); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  left.request_stop();
  EXPECT_EQ(waiting.get().code(), StatusCode::kCancelled);
  EXPECT_EQ(store_->SamplesOf({.profile_name = "gates"}).status().code(), StatusCode::kNotFound);
  slow.reset();
  EXPECT_EQ(Put(GateSamples("c", 1e-3)), 1);
}

TEST_F(SamplesTest, AFitIsAsSafeToRetryAsAnAppend) {
  ASSERT_TRUE(AppendSamples(environment(), AppendOf(GateSamples("a", 1e-3)), {}).ok());
  ASSERT_TRUE(AppendSamples(environment(), AppendOf(GateSamples("a", 1e-3)), {}).ok());
  EXPECT_EQ(FitProfile(environment(), FitOf("1"), {})->profile_version(), 1);
  ASSERT_TRUE(AppendSamples(environment(), AppendOf(GateSamples("b", 2e-3)), {}).ok());
  EXPECT_EQ(FitProfile(environment(), FitOf("1"), {})->profile_version(), 1);
  EXPECT_EQ(FitProfile(environment(), FitOf("2"), {})->profile_version(), 2);
  Reopen();
  EXPECT_EQ(FitProfile(environment(), FitOf("1"), {})->profile_version(), 1);
  EXPECT_EQ(FitProfile(environment(), FitOf("3"), {})->profile_version(), 2);  // Nothing new to say.
  EXPECT_EQ(Versions(), 2);
  ASSERT_TRUE(AppendSamples(environment(), AppendOf(GateSamples("c", 2e-3, "other")), {}).ok());
  EXPECT_THAT(FitProfile(environment(), FitOf("1", "other"), {}),
              IsError(StatusCode::kInvalidInput, "brought another profile before"));
}

// With a version each: the samples of a put in an earlier calibration do not change what it became.
TEST_F(SamplesTest, AnAppendToAnEarlierCalibrationLeavesTheVersionsOfPuts) {
  ASSERT_TRUE(AppendSamples(environment(), AppendOf(GateSamples("a", 1e-3), "early"), {}).ok());
  EXPECT_EQ(Put(GateSamples("b", 2e-3)), 1);
  ASSERT_TRUE(AppendSamples(environment(), AppendOf(GateSamples("c", 3e-3), "early"), {}).ok());
  EXPECT_EQ(Put(GateSamples("d", 4e-3)), 2);
  EXPECT_EQ(Put(GateSamples("b", 2e-3)), 1);
}

TEST_F(SamplesTest, WrongAppendsAndFitsAreRefusedByField) {
  EXPECT_THAT(AppendSamples(environment(), AppendOf(GateSamples("", 1e-3)), {}),
              IsError(StatusCode::kInvalidInput, "requestId: found 0 bytes"));
  EXPECT_THAT(AppendSamples(environment(), AppendOf(GateSamples("a", 1e-3), std::string(129, 'x')), {}),
              IsError(StatusCode::kInvalidInput, "calibration: found 129 bytes, expected at most 128"));
  EXPECT_THAT(FitProfile(environment(), FitOf(""), {}), IsError(StatusCode::kInvalidInput, "requestId"));
  EXPECT_THAT(FitProfile(environment(), FitOf("1", ""), {}),
              IsError(StatusCode::kInvalidInput, "profileName: found nothing"));
  EXPECT_THAT(FitProfile(environment(), FitOf("1"), {}), IsError(StatusCode::kNotFound, "no such samples"));
}

TEST_F(SamplesTest, SamplesOfMixedClustersAreNotFitted) {
  SampleBatch first = {.request_id = "a", .samples = *SamplesFromProto(GateSamples("a", 1e-3).samples())};
  SampleBatch second = first;
  second.request_id = "b";
  second.samples.cluster.nodes = 2;
  const std::vector both = {first, second};
  ASSERT_TRUE(store_->AppendSamples(both).ok());  // As two `calibrate` of one name leave them.
  EXPECT_THAT(FitProfile(environment(), FitOf("1"), {}),
              IsError(StatusCode::kInvalidInput, "calibration 'b' to be of another cluster"));
}

// ---- Samples that no machine takes.

// A request with a sample that was finite and above 0, and broke every later fit of its name.
v1::PutSamplesRequest Attack(const std::string& id, double size, double time_s) {
  v1::PutSamplesRequest request = GateSamples(id, 1e-3);
  v1::Sample& sample = *request.mutable_samples()->mutable_samples(0);
  sample.set_bytes(size);
  sample.clear_time_s();
  sample.add_time_s(time_s);
  return request;
}

TEST_F(SamplesTest, AnAttackWithTimesOfNoMachineBreaksNoProfile) {
  EXPECT_EQ(Put(GateSamples("before", 1e-3)), 1);
  int number = 0;
  for (const auto& [size, time_s] : {std::pair(1e6, 1e-300), std::pair(1e6, 1e300), std::pair(1e6, 5e-324),
                                     std::pair(1e300, 1.0), std::pair(1e-300, 1.0), std::pair(1e18, 1e-9)}) {
    const std::string id = StrCat("attack ", ++number);
    const auto put = PutSamples(environment(), Attack(id, size, time_s), {});
    ASSERT_TRUE(put.ok()) << put.status().message();
    EXPECT_EQ(put->rejected_samples(), 1);
    EXPECT_EQ(put->stored_samples(), 1);
    const auto appended = AppendSamples(environment(), AppendOf(Attack(id + "b", size, time_s)), {});
    ASSERT_TRUE(appended.ok()) << appended.status().message();
    EXPECT_EQ(appended->rejected_samples(), 1);
  }
  EXPECT_GT(Put(GateSamples("after", 1e-3)), 1);
}

TEST_F(SamplesTest, AnAttackWithAClusterOfNoMachineBreaksNoProfile) {
  EXPECT_EQ(Put(GateSamples("before", 1e-3)), 1);
  struct Fact {
    double peak_flops_per_s, memory_bytes;
    const char* field;
  };
  for (const Fact& fact :
       {Fact{0, 1, "samples.cluster.deviceMemoryBytes: found 1"}, Fact{0, 1e300, "samples.cluster.deviceMemoryBytes"},
        Fact{1e300, 0, "samples.cluster.peakFlopsPerS"}, Fact{1e-300, 0, "samples.cluster.peakFlopsPerS"}}) {
    v1::PutSamplesRequest attack = GateSamples("attack", 1e-3);
    attack.mutable_samples()->mutable_cluster()->set_peak_flops_per_s(fact.peak_flops_per_s);
    attack.mutable_samples()->mutable_cluster()->set_device_memory_bytes(fact.memory_bytes);
    EXPECT_THAT(PutSamples(environment(), attack, {}), IsError(StatusCode::kInvalidInput, fact.field));
    EXPECT_THAT(AppendSamples(environment(), AppendOf(attack), {}), IsError(StatusCode::kInvalidInput, fact.field));
  }
  v1::PutSamplesRequest attack = GateSamples("attack", 1e-3);
  attack.mutable_samples()->mutable_cluster()->set_network_bytes_per_s(0.5);
  EXPECT_THAT(PutSamples(environment(), attack, {}),
              IsError(StatusCode::kInvalidInput, "samples.cluster.networkBytesPerS: found 0.5"));
  EXPECT_EQ(store_->LoadProfile({.name = "gates"})->cluster.device_memory_bytes, 0);
}

TEST_F(SamplesTest, AFitKeepsTheFastestRatesThatAnyOfItsSamplesKnow) {
  v1::PutSamplesRequest unknown = GateSamples("a", 1e-3), fast = GateSamples("b", 1e-3), slow = GateSamples("c", 1e-3);
  fast.mutable_samples()->mutable_cluster()->set_network_bytes_per_s(5e10);
  slow.mutable_samples()->mutable_cluster()->set_network_bytes_per_s(4e10);
  slow.mutable_samples()->mutable_cluster()->set_node_link_bytes_per_s(4.5e11);
  Put(unknown);
  Put(fast);
  Put(slow);
  const Cluster cluster = store_->LoadProfile({.name = "gates"})->cluster;
  EXPECT_EQ(cluster.network_bytes_per_s, 5e10);
  EXPECT_EQ(cluster.node_link_bytes_per_s, 4.5e11);
}

TEST_F(SamplesTest, AFitForgetsFactsOfNoMachine) {
  SampleBatch batch = {.request_id = "attack", .samples = *SamplesFromProto(GateSamples("", 1e-3).samples())};
  batch.samples.cluster.peak_flops_per_s = 1e300;
  batch.samples.cluster.device_memory_bytes = 1;
  ASSERT_TRUE(store_->AppendSamples({&batch, 1}).ok());
  const auto fitted = FitProfile(environment(), FitOf("1"), {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  const Cluster cluster = store_->LoadProfile({.name = "gates"})->cluster;
  EXPECT_EQ(cluster.device_memory_bytes, 0);
  EXPECT_LT(cluster.peak_flops_per_s, 1e18);
}

TEST_F(SamplesTest, ANameThatHoldsSuchSamplesFitsAgain) {
  // A moeplan without bounds could have stored these: the store keeps any finite number above 0.
  ASSERT_TRUE(Append(GateSamples("sound", 1e-3)).ok());
  int number = 0;
  for (const double time_s : {1e-300, 1e300, 5e-324}) {
    SampleBatch batch = {.request_id = StrCat("attack ", ++number),
                         .samples = *SamplesFromProto(GateSamples("", 1e-3).samples())};
    for (Sample& sample : batch.samples.samples) sample.times_s = {time_s, 2 * time_s};
    ASSERT_TRUE(store_->AppendSamples({&batch, 1}).ok());
  }
  const auto fitted = FitProfile(environment(), FitOf("1"), {});
  ASSERT_TRUE(fitted.ok()) << fitted.status().message();
  const SampleSet sound = *SamplesFromProto(GateSamples("", 1e-3).samples());
  EXPECT_EQ(store_->LoadProfile({.name = "gates"})->kernels, FitProfile(sound)->kernels);
}

TEST_F(SamplesTest, ANameWithNothingElseSaysHowToTakeThemOut) {
  SampleBatch batch = {.request_id = "attack", .samples = *SamplesFromProto(GateSamples("", 1e-3).samples())};
  for (Sample& sample : batch.samples.samples) sample.times_s = {1e300};
  ASSERT_TRUE(store_->AppendSamples({&batch, 1}).ok());
  EXPECT_THAT(FitProfile(environment(), FitOf("1"), {}),
              IsError(StatusCode::kInfeasible, "`moeplan profile withdraw` takes them out"));
  const auto withdrawn = Withdraw(*store_, {.profile_name = "gates", .request_id = "attack"});
  ASSERT_TRUE(withdrawn.ok()) << withdrawn.status().message();
  EXPECT_EQ(withdrawn->samples, 2);
  EXPECT_EQ(withdrawn->version, std::nullopt);
}

TEST_F(SamplesTest, WithdrawnSamplesAreInNoLaterFit) {
  EXPECT_EQ(Put(GateSamples("good", 1e-3)), 1);
  EXPECT_EQ(Put(GateSamples("bad", 9e-3)), 2);
  const auto withdrawn = Withdraw(*store_, {.profile_name = "gates", .request_id = "bad"});
  ASSERT_TRUE(withdrawn.ok()) << withdrawn.status().message();
  ASSERT_TRUE(withdrawn->version.has_value());
  EXPECT_EQ(withdrawn->version->version, 3);
  EXPECT_EQ(store_->LoadProfile({.name = "gates"})->kernels,
            store_->LoadProfile({.name = "gates", .version = 1})->kernels);
  EXPECT_EQ(FitProfile(environment(), FitOf("1"), {})->profile_version(), 3);  // Nothing new to say.
}

// ---- The writer.

SampleBatch BatchNumber(int number) {
  return {.request_id = StrCat("r", number),
          .calibration = "monday",
          .samples = *SamplesFromProto(GateSamples("", 1e-3).samples())};
}

TEST_F(SamplesTest, ManyCallersShareTheWriter) {
  constexpr int kCallers = 16, kBatches = 20;
  std::vector<std::future<int>> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.push_back(std::async(std::launch::async, [this, caller] {
      int stored = 0;
      for (int i = 0; i < kBatches; ++i) {
        const auto outcome = sample_writer_->Append(BatchNumber(caller * kBatches + i));
        if (outcome.ok()) stored += outcome->stored_samples;
      }
      return stored;
    }));
  }
  for (auto& caller : callers) EXPECT_EQ(caller.get(), 2 * kBatches);
  EXPECT_THAT(store_->SamplesOf({})->at(0).samples.samples, SizeIs(2 * kCallers * kBatches));
}

TEST_F(SamplesTest, OthersGetToWriteWhileManyAppend) {
  std::atomic<bool> stop = false;
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 16; ++caller) {
    callers.emplace_back([this, caller, &stop] {
      for (int i = 0; !stop; ++i) EXPECT_TRUE(sample_writer_->Append(BatchNumber(caller + 16 * i)).ok());
    });
  }
  auto other = Store::Open(db());  // As another process would.
  ASSERT_TRUE(other.ok()) << other.status().message();
  double longest_s = 0;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(other->SaveProfile({.name = "other", .cluster = {.nodes = 1, .gpus_per_node = 1}}).ok());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    longest_s = std::max(longest_s, took.count());
  }
  stop = true;
  std::cout << "the longest of 20 saves beside appends took " << longest_s << " s\n";
}

TEST_F(SamplesTest, ABatchThatFindsTheQueueFullIsRefusedAtOnce) {
  SampleWriter writer(*store_, /*queue_capacity=*/1);
  std::vector<std::future<StatusOr<BatchOutcome>>> waiting;
  {
    const HeldStore held(db());  // Nothing is committed meanwhile: one batch is being stored, one waits.
    for (int i = 0; i < 3; ++i) {
      waiting.push_back(std::async(std::launch::async, [&writer, i] { return writer.Append(BatchNumber(i)); }));
    }
    std::future<StatusOr<BatchOutcome>>* refused = nullptr;
    while (refused == nullptr) {
      for (auto& one : waiting) {
        if (one.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready) refused = &one;
      }
    }
    EXPECT_THAT(refused->get(), IsError(StatusCode::kUnavailable, "too many calls waiting"));
  }
  // The others are stored; the second is refused, too, where it came before the writer had taken the first.
  std::vector<Status> others;
  for (auto& one : waiting) {
    if (one.valid()) others.push_back(one.get().status());
  }
  EXPECT_THAT(others, SizeIs(2));
  EXPECT_THAT(others, testing::Contains(OkStatus()));
}

}  // namespace
}  // namespace moeplan::service
