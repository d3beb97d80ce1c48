// Questions about a whole job, as the service answers them: Advise, CompareDispatchers, ListNamed, and Step and
// RankLayouts of what is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stop_token>
#include <string>

#include "handlers_fixture.h"
#include "models/text.h"
#include "planner/layout/price_layout.h"
#include "planner/messages/advise.h"
#include "planner/service/calls/method.h"
#include "planner/service/handlers/advise.h"
#include "planner/service/handlers/rank_layouts.h"
#include "planner/service/handlers/step.h"
#include "planner/shipped/names.h"
#include "proto/convert/step.h"

namespace moeplan::service {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

class JobQuestionsTest : public HandlersTest {
 protected:
  v1::Advice AdviceTo(const v1::AdviseRequest& request) {
    const auto answer = Advise(environment(), request, {});
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? answer->result() : v1::Advice();
  }
  std::string Refused(const std::function<void(v1::AdviseRequest&)>& spoil);
};

v1::AdviseRequest Qwen() {
  v1::AdviseRequest request;
  request.set_model_name("qwen3-30b-a3b");
  request.set_hardware("h100-sxm:4x8");
  request.set_global_batch(256);
  request.set_sequence_length(4096);
  return request;
}

std::string JobQuestionsTest::Refused(const std::function<void(v1::AdviseRequest&)>& spoil) {
  v1::AdviseRequest request = Qwen();
  spoil(request);
  const auto answer = Advise(environment(), request, {});
  EXPECT_FALSE(answer.ok());
  return answer.status().message();
}

// Whatever the answer says is what Step says of its layout, too.
TEST_F(JobQuestionsTest, AdviceIsAStepOfItsLayout) {
  const auto answer = Advise(environment(), Qwen(), {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  const v1::Advice& advice = answer->result();
  EXPECT_EQ(answer->profile_version(), 0);
  EXPECT_EQ(answer->device_memory_bytes(), 80e9);
  EXPECT_EQ(advice.gpus(), 32);
  EXPECT_EQ(advice.model(), "qwen3-30b-a3b");
  EXPECT_TRUE(advice.mine_is_usual());
  EXPECT_GE(advice.gain(), 0.99);
  EXPECT_EQ(advice.export_().target(), "megatron");
  EXPECT_TRUE(advice.export_().violations().empty());
  EXPECT_THAT(advice.text(), HasSubstr("EP "));
  EXPECT_THAT(advice.step().overlap(), StartsWith("Exchanges of experts"));
  v1::StepRequest request;
  request.set_model_name("qwen3-30b-a3b");
  request.set_hardware("h100-sxm:4x8");
  request.set_gpus(32);
  request.set_global_batch(256);
  request.set_sequence_length(4096);
  *request.mutable_layout() = advice.layout();
  const auto step = Step(environment(), request, {});
  ASSERT_TRUE(step.ok()) << step.status().message();
  EXPECT_NEAR(step->result().step_time_s() / advice.step().step_time_s(), 1, 1e-9);
}

TEST_F(JobQuestionsTest, MyFlagsAreComparedAndMyStepSetsTheFactor) {
  v1::AdviseRequest request = Qwen();
  request.set_mine(
      "torchrun pretrain_gpt.py --expert-model-parallel-size 8 --micro-batch-size 1 --recompute-granularity full "
      "--recompute-method uniform --recompute-num-layers 1");
  request.set_measured_step_s(6);
  const v1::Advice advice = AdviceTo(request);
  EXPECT_FALSE(advice.mine_is_usual());
  EXPECT_EQ(advice.mine().layout().recompute(), v1::Recompute::FULL);
  EXPECT_FALSE(advice.mine_is_same());
  EXPECT_GT(advice.gain(), 1);
  EXPECT_NEAR(advice.software_factor(), 6 / advice.mine().step().step_time_s(), 1e-9);
  EXPECT_NEAR(advice.expected_step_time_s(), advice.software_factor() * advice.step().step_time_s(), 1e-9);
  EXPECT_THAT(advice.remove_arguments(), Contains(HasSubstr("--recompute-granularity")));
  // A later answer to the same question changes nothing.
  *request.mutable_against() = advice;
  const v1::Advice later = AdviceTo(request);
  ASSERT_TRUE(later.has_changed());
  EXPECT_TRUE(later.changed().costs().empty() && later.changed().decisions().empty());
}

// A dispatcher that was priced from other costs and is measured now is named, once.
TEST_F(JobQuestionsTest, WhatWasMeasuredSinceIsNamed) {
  v1::AdviseRequest request = Qwen();
  v1::Advice before = AdviceTo(request);
  before.mutable_step()->clear_warnings();
  before.mutable_step()->add_warnings("ALL_TO_ALL groupSize 16 ranksPerNode 8 dispatcher DEEPEP: not measured; priced");
  before.mutable_step()->add_warnings("ALL_TO_ALL groupSize 32 ranksPerNode 8: not measured near the sizes");
  const ModelConfig model = *planner::NamedModel("qwen3-30b-a3b");
  Profile profile = *planner::HardwareProfile("h100-sxm:4x8", 32, model);
  const auto changed = [&] {
    *request.mutable_against() = before;
    const auto answer = planner::AnswerAdvise(
        request, model, [&](const auto&, int) { return profile; }, 1);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer->result().changed().costs();
  };
  EXPECT_TRUE(changed().empty()) << "public figures are no measurement";
  CollectiveModel measured = profile.collectives.front();
  measured.key = {.group = {16, 8}, .dispatcher = Dispatcher::kDeepEp, .transport = Transport::kNvshmem};
  profile.collectives.push_back(measured);
  const auto costs = changed();
  ASSERT_EQ(costs.size(), 1);
  EXPECT_THAT(costs[0], StartsWith("ALL_TO_ALL groupSize 16 ranksPerNode 8 dispatcher DEEPEP transport NVSHMEM: "));
}

// In a running job all but what is computed again stays.
TEST_F(JobQuestionsTest, OnlyWhatARunningJobCanChangeChanges) {
  v1::AdviseRequest request = Qwen();
  request.set_live_only(true);
  request.set_mine(
      "--expert-model-parallel-size 8 --micro-batch-size 1 --recompute-granularity full --recompute-method uniform "
      "--recompute-num-layers 1 --use-distributed-optimizer --moe-token-dispatcher-type alltoall");
  const v1::Advice advice = AdviceTo(request);
  v1::StepLayout mine = advice.mine().layout(), best = advice.layout();
  EXPECT_GT(advice.gain(), 1.05) << "an H100 has the memory to keep more than full recomputation does";
  EXPECT_TRUE(best.recompute() == v1::Recompute::NONE || best.recompute_layers() > 0) << best.DebugString();
  for (v1::StepLayout* layout : {&mine, &best}) {
    layout->clear_recompute(), layout->clear_recompute_layers();
    layout->clear_schedule(), layout->clear_plan();
  }
  EXPECT_EQ(best.SerializeAsString(), mine.SerializeAsString());
  // Brute force finds nothing faster.
  const ModelConfig model = *planner::NamedModel("qwen3-30b-a3b");
  const Profile profile = *planner::HardwareProfile("h100-sxm:4x8", 32, model);
  for (int layers = 0; layers < 48; ++layers) {
    StepQuestion question;
    question.request.model = model;
    question.request.gpus = 32, question.request.global_batch = 256, question.request.sequence_length = 4096;
    v1::StepLayout other = advice.mine().layout();
    other.set_recompute_layers(layers);
    ASSERT_TRUE(ReadStepLayout(other, "layout", question).ok());
    const auto step = planner::PriceLayout(question, profile);
    ASSERT_TRUE(step.ok()) << step.status().message();
    constexpr double kRoom = 0.95, kTie = 1.01;
    const bool fits = step->layout.memory.total_bytes() <= kRoom * profile.cluster.device_memory_bytes;
    EXPECT_TRUE(!fits || kTie * step->layout.step_time_s > advice.step().step_time_s()) << layers;
  }
  EXPECT_THAT(Refused([](auto& one) { one.set_live_only(true); }), StartsWith("liveOnly: found it without `mine`"));
  EXPECT_THAT(Refused([](auto& one) {
                one.set_live_only(true), one.set_to("torchtitan"), one.set_mine("{\"expertParallel\": 8}");
              }),
              StartsWith("liveOnly: found it with torchtitan"));
  EXPECT_THAT(Refused([](auto& one) { one.set_live_only(true), one.set_mine("{\"expertParallel\": 1}"); }),
              HasSubstr("more than 95 % of a GPU's memory, whatever is computed again"));
  EXPECT_THAT(Refused([](auto& one) {
                one.set_live_only(true);
                one.set_mine("{\"expertParallel\": 8, \"schedule\": \"MONTA_O1\", \"recompute\": \"FULL\"}");
              }),
              HasSubstr("has no settings for the layout to change"));
}

TEST_F(JobQuestionsTest, HardwareIsPricedOnTheNetworkThatJoinsIt) {
  v1::StepRequest request;
  request.set_model_name("qwen3-30b-a3b");
  request.set_hardware("h100-sxm:4x8");
  request.set_gpus(32);
  request.set_global_batch(256);
  request.set_sequence_length(4096);
  request.mutable_layout()->set_expert_parallel(32);
  const auto step_s = [&] {
    const auto step = Step(environment(), request, {});
    EXPECT_TRUE(step.ok()) << step.status().message();
    return step.ok() ? step->result().step_time_s() : 0;
  };
  const double plain_s = step_s();
  request.mutable_network()->set_oversubscription(4);
  request.mutable_network()->set_nodes_per_leaf(4);
  EXPECT_EQ(step_s(), plain_s) << "one leaf joins all";
  request.mutable_network()->set_nodes_per_leaf(2);
  const double slow_s = step_s();
  EXPECT_GT(slow_s, 1.2 * plain_s);
  // The other questions read the same field.
  v1::RankLayoutsRequest rank;
  rank.set_model_name(request.model_name());
  rank.set_hardware(request.hardware());
  rank.set_gpus(32), rank.set_global_batch(256), rank.set_sequence_length(4096);
  const auto best_s = [&] {
    const auto ranked = RankLayouts(environment(), rank, {});
    EXPECT_TRUE(ranked.ok()) << ranked.status().message();
    return ranked.ok() ? ranked->result().layouts(0).step_time_s() : 0;
  };
  const double ranked_s = best_s();
  rank.mutable_network()->set_bytes_per_s(1e9);
  EXPECT_GT(best_s(), ranked_s);
  v1::CompareDispatchersRequest compare;
  compare.set_model_name(request.model_name());
  compare.set_hardware(request.hardware());
  compare.set_gpus(32), compare.set_global_batch(256), compare.set_sequence_length(4096);
  compare.set_axis("expertParallel=32");
  compare.add_dispatchers(v1::Dispatcher::ALL_TO_ALL);
  const auto compared_s = [&] {
    const auto compared = CompareDispatchers(environment(), compare, {});
    EXPECT_TRUE(compared.ok()) << compared.status().message();
    return compared.ok() ? compared->result().points(0).steps(0).step_time_s() : 0;
  };
  const double compared_plain_s = compared_s();
  *compare.mutable_network() = request.network();
  EXPECT_GT(compared_s(), 1.2 * compared_plain_s);
  v1::AdviseRequest advise = Qwen();
  advise.set_mine("{\"expertParallel\": 32}");
  const double mine_plain_s = AdviceTo(advise).mine().step().step_time_s();
  *advise.mutable_network() = request.network();
  EXPECT_GT(AdviceTo(advise).mine().step().step_time_s(), 1.2 * mine_plain_s);
}

TEST_F(JobQuestionsTest, WrongQuestionsAreRefusedByField) {
  EXPECT_THAT(Refused([](auto& one) { one.clear_model_name(); }), StartsWith("model: found nothing"));
  EXPECT_THAT(Refused([](auto& one) { one.set_model_name("qwen9"); }),
              AllOf(StartsWith("modelName: found 'qwen9'"), HasSubstr("deepseek-v3")));
  // A name is no file of the planner's machine.
  EXPECT_THAT(Refused([](auto& one) { one.set_model_name("/etc/passwd"); }), StartsWith("modelName: found"));
  EXPECT_THAT(Refused([](auto& one) { one.set_model_name("../models/qwen3-30b-a3b"); }), StartsWith("modelName: "));
  EXPECT_THAT(Refused([](auto& one) { one.set_hardware("h10"); }), StartsWith("hardware: found 'h10'"));
  EXPECT_THAT(Refused([](auto& one) { one.set_hardware("h100-sxm"); }), StartsWith("gpus: found 0"));
  EXPECT_THAT(Refused([](auto& one) { one.set_gpus(64); }), StartsWith("hardware: found 'h100-sxm:4x8'"));
  EXPECT_THAT(Refused([](auto& one) { one.set_to("nanotron"); }), StartsWith("to: found 'nanotron'"));
  EXPECT_THAT(Refused([](auto& one) { one.set_to("tutel"); }), HasSubstr("which is a layer"));
  EXPECT_THAT(Refused([](auto& one) { one.set_target_version("0.1"); }), StartsWith("targetVersion: found '0.1'"));
  EXPECT_THAT(Refused([](auto& one) { one.set_measured_step_s(3); }), StartsWith("measuredStepS: found it without"));
  EXPECT_THAT(
      Refused([](auto& one) { one.set_measured_step_s(std::numeric_limits<double>::infinity()), one.set_mine("{}"); }),
      StartsWith("measuredStepS: found inf"));
  EXPECT_THAT(Refused([](auto& one) { one.set_mine("{\"expertParallel\": 3}"); }), HasSubstr("expertParallel"));
  EXPECT_THAT(Refused([](auto& one) { one.set_mine(std::string(300'000, 'x')); }), StartsWith("mine: found 300000"));
  EXPECT_THAT(Refused([](auto& one) { one.clear_global_batch(); }), HasSubstr("globalBatch: found 0"));
  EXPECT_THAT(Refused([](auto& one) { one.clear_hardware(); }), HasSubstr("no profile"));
  EXPECT_THAT(Refused([](auto& one) { one.clear_hardware(), one.mutable_network(); }),
              StartsWith("network: found it without hardware, expected hardware beside it"));
  EXPECT_THAT(Refused([](auto& one) { one.mutable_network()->set_oversubscription(0.5); }),
              StartsWith("network.oversubscription: found 0.5, expected a number from 1"));
  EXPECT_THAT(Refused([](auto& one) { one.mutable_network()->set_oversubscription(4); }),
              StartsWith("network.oversubscription: found 4 without nodesPerLeaf, expected both"));
  EXPECT_THAT(Refused([](auto& one) { one.mutable_network()->set_nodes_per_leaf(-2); }),
              StartsWith("network.nodesPerLeaf: found -2"));
  std::stop_source left;
  left.request_stop();
  EXPECT_EQ(Advise(environment(), Qwen(), left.get_token()).status().code(), StatusCode::kCancelled);
}

TEST_F(JobQuestionsTest, DispatchersAreComparedAlongAnAxis) {
  v1::CompareDispatchersRequest request;
  request.set_model_name("qwen3-30b-a3b");
  request.set_hardware("h100-sxm");
  request.set_gpus(64);
  request.set_global_batch(512);
  request.set_sequence_length(4096);
  request.mutable_layout()->set_expert_parallel(16);
  request.mutable_layout()->set_recompute(v1::Recompute::FULL);
  request.set_axis("microBatch=1,2,4");
  request.add_dispatchers(v1::Dispatcher::ALL_TO_ALL);
  request.add_dispatchers(v1::Dispatcher::DEEPEP);
  request.add_dispatchers(v1::Dispatcher::DEEPEP);
  const auto answer = CompareDispatchers(environment(), request, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->result().path(), "microBatch");
  ASSERT_EQ(answer->result().points_size(), 3);
  EXPECT_EQ(answer->result().points(0).steps_size(), 2);
  const auto refused = [&](const std::string& axis) {
    request.set_axis(axis);
    return CompareDispatchers(environment(), request, {}).status().message();
  };
  EXPECT_THAT(refused("batch=1"), StartsWith("axis: found 'batch=1', expected one of microBatch="));
  EXPECT_THAT(refused("microBatch"), StartsWith("axis: found 'microBatch'"));
  EXPECT_THAT(refused("microBatch=1,two"), StartsWith("axis: found 'two', expected a number"));
  request.clear_gpus();
  EXPECT_THAT(refused("gpus=8,16"), StartsWith("gpus: found 0"));
  request.set_gpus(64);
  std::string many = "microBatch=1";
  for (int i = 2; i < 70; ++i) many += StrCat(",", i);
  EXPECT_THAT(refused(many), StartsWith("axis: found more than 64 values"));
}

TEST_F(JobQuestionsTest, WhatIsNamedCanBeAsked) {
  const auto named = ListNamed(environment(), {}, {});
  ASSERT_TRUE(named.ok());
  EXPECT_THAT(named->models(), Contains("mixtral-8x7b"));
  ASSERT_EQ(named->targets_size(), 4) << "a layer is no training system";
  for (const v1::NamedTarget& target : named->targets()) {
    EXPECT_EQ(target.takes_file(), target.name() == "deepspeed") << target.name();
    EXPECT_EQ(target.live().empty(), target.name() != "megatron" && target.name() != "bridge") << target.name();
  }
  for (const v1::NamedHardware& hardware : named->hardware()) {
    v1::RankLayoutsRequest request;
    request.set_model_name(named->models(0));
    request.set_hardware(hardware.name());
    request.set_gpus(64);
    request.set_global_batch(512);
    request.set_sequence_length(4096);
    request.set_top(1);
    const auto ranked = RankLayouts(environment(), request, {});
    EXPECT_TRUE(ranked.ok()) << hardware.name() << ": " << ranked.status().message();
  }
  EXPECT_EQ(FindMethod("/moeplan.v1.PlannerService/Advise")->role, Role::kPlan);
  EXPECT_EQ(FindMethod("/moeplan.v1.PlannerService/CompareDispatchers")->role, Role::kPlan);
  EXPECT_EQ(FindMethod("/moeplan.v1.PlannerService/ListNamed")->role, Role::kRead);
}

// A step under Lancet's passes is the service's as it is the command line's, which prices it by the same function, and
// a layout to compare with takes nothing over from the first.
TEST_F(JobQuestionsTest, AStepUnderLancetsPassesIsThatOfPriceLayout) {
  v1::StepRequest request;
  request.set_model_name("qwen3-30b-a3b");
  request.set_hardware("h100-sxm:4x8");
  request.set_gpus(32);
  request.set_global_batch(256);
  request.set_sequence_length(4096);
  request.mutable_layout()->set_expert_parallel(16);
  request.mutable_layout()->set_schedule(v1::Schedule::LANCET);
  *request.mutable_against() = request.layout();
  request.mutable_against()->clear_schedule();
  const auto answer = Step(environment(), request, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  StepQuestion question;
  question.request.model = *planner::NamedModel("qwen3-30b-a3b");
  question.request.gpus = 32;
  question.request.global_batch = 256;
  question.request.sequence_length = 4096;
  ASSERT_TRUE(ReadStepLayout(request.layout(), "layout", question).ok());
  const auto profile = planner::HardwareProfile("h100-sxm:4x8", 32, question.request.model);
  ASSERT_TRUE(profile.ok());
  const auto priced = planner::PriceLayout(question, *profile);
  ASSERT_TRUE(priced.ok()) << priced.status().message();
  const v1::StepResult& result = answer->result();
  EXPECT_EQ(result.step_time_s(), priced->layout.step_time_s);
  EXPECT_EQ(result.lancet().ranges_s(), priced->lancet->ranges_s);
  EXPECT_GT(result.lancet().weight_gradients_s(), 0);
  v1::StepRequest other = request;
  *other.mutable_layout() = request.against();
  other.clear_against();
  const auto alone = Step(environment(), other, {});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(result.against_step_time_s(), alone->result().step_time_s());
}

TEST_F(JobQuestionsTest, GpusAreThoseOfTheSourceWhereNoneAreNamed) {
  Put(ExamplePutProfile("a"));
  v1::StepRequest step;
  step.set_model_name("mixtral-8x7b");
  step.set_global_batch(64);
  step.set_sequence_length(4096);
  step.mutable_layout()->set_expert_parallel(8);
  v1::RankLayoutsRequest rank;
  rank.set_model_name("mixtral-8x7b");
  rank.set_global_batch(64);
  rank.set_sequence_length(4096);
  rank.set_top(1);
  const auto expect_sixteen = [&] {
    const auto one = Step(environment(), step, {});
    const auto ranked = RankLayouts(environment(), rank, {});
    ASSERT_TRUE(one.ok()) << one.status().message();
    ASSERT_TRUE(ranked.ok()) << ranked.status().message();
    EXPECT_NEAR(one->result().tokens_per_s() / one->result().tokens_per_s_per_gpu(), 16, 1e-9);
    const v1::Layout& best = ranked->result().layouts(0).layout();
    EXPECT_EQ(best.tensor_parallel() * best.context_parallel() * best.pipeline_parallel() * best.data_parallel(), 16);
  };
  step.set_hardware("h100-sxm:2x8"), rank.set_hardware("h100-sxm:2x8");
  expect_sixteen();
  step.clear_hardware(), rank.clear_hardware();
  step.set_profile_name("two-nodes-of-eight"), rank.set_profile_name("two-nodes-of-eight");
  expect_sixteen();
  step.set_hardware("h100-sxm"), step.clear_profile_name();
  EXPECT_THAT(Step(environment(), step, {}).status().message(), StartsWith("gpus: found 0"));
}

// The hardware stands in for what a profile lacks.
TEST_F(JobQuestionsTest, AProfileGoesBeforeTheHardware) {
  Put(ExamplePutProfile("a"));
  v1::StepRequest request;
  request.set_model_name("mixtral-8x7b");
  request.set_gpus(16);
  request.set_global_batch(64);
  request.set_sequence_length(4096);
  request.mutable_layout()->set_expert_parallel(8);
  request.set_hardware("h100-sxm");
  const auto alone = Step(environment(), request, {});
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  EXPECT_EQ(alone->profile_version(), 0);
  request.set_profile_name("two-nodes-of-eight");
  const auto both = Step(environment(), request, {});
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(both->profile_name(), "two-nodes-of-eight");
  EXPECT_EQ(both->profile_version(), 1);
  EXPECT_NE(both->result().step_time_s(), alone->result().step_time_s());
}

}  // namespace
}  // namespace moeplan::service
