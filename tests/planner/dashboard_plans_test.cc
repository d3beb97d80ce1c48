// What a dashboard asks of the planner: ListRuns, GetRun, Sweep, ExplainRules, ExplainPlan, ImportModel, RankLayouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "handlers_fixture.h"
#include "models/cost/operation.h"
#include "models/model/hf_config.h"
#include "models/text.h"
#include "planner/client/call_method.h"
#include "planner/layout/lancet_rows.h"
#include "planner/layout/rank_layouts.h"
#include "planner/search/plan_layer.h"
#include "planner/service/calls/method.h"
#include "planner/service/handlers/explain_plan.h"
#include "planner/service/handlers/explain_rules.h"
#include "planner/service/handlers/import_model.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/rank_layouts.h"
#include "planner/service/handlers/runs.h"
#include "planner/service/handlers/sweep.h"
#include "planner/service/plan_log.h"
#include "proto/convert/layouts.h"
#include "proto/convert/workload.h"

namespace moeplan::service {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class DashboardPlansTest : public HandlersTest {
 protected:
  void SetUp() override {
    HandlersTest::SetUp();
    Put(ExamplePutProfile("a"));
  }

  v1::PlanResponse Answer() {
    const auto answer = Plan(environment(), ExamplePlanRequest(), {});
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return *answer;
  }

  RunId Save(const v1::PlanResponse& answer, RunRecord run) {
    run.plan = *store_->SavePlan(RecordOf(answer));
    return *store_->SaveRun(run);
  }

  v1::Run RunOf(RunId id) {
    v1::GetRunRequest request;
    request.set_run(static_cast<int>(id.value));
    const auto run = GetRun(environment(), request, {});
    EXPECT_TRUE(run.ok()) << run.status().message();
    return run->run();
  }
};

// ---- ListRuns and GetRun.

std::string WithoutTimeline(v1::Plan plan) {
  plan.clear_order();
  plan.clear_timeline();
  return ToJson(plan);
}

TEST_F(DashboardPlansTest, ARunSaysWhatWasPredictedAndWhatRan) {
  const v1::PlanResponse answer = Answer();
  v1::RunReport report;
  report.set_schedule(answer.best().schedule());
  report.add_ranks()->set_rank(3);
  *report.mutable_ranks(0)->mutable_timeline() = answer.best().timeline();
  const RunId id = Save(answer, {.schedule = v1::Schedule::Family_Name(answer.best().schedule()),
                                 .predicted_time_s = 2e-3,
                                 .measured_time_s = 3e-3,
                                 .report = ToJson(report, JsonStyle::kCompact),
                                 .request_id = "step 7"});
  v1::GetRunRequest request;
  request.set_run(static_cast<int>(id.value));
  const auto found = GetRun(environment(), request, {});
  ASSERT_TRUE(found.ok()) << found.status().message();
  const v1::Run& run = found->run();
  EXPECT_EQ(run.run(), id.value);
  EXPECT_THAT(run.created_at(), SizeIs(20));
  EXPECT_EQ(run.profile_name(), "two-nodes-of-eight");
  EXPECT_EQ(run.profile_version(), 1);
  EXPECT_EQ(run.workload_name(), answer.workload().name());
  EXPECT_EQ(ToJson(run.plan()), WithoutTimeline(answer.best()));
  EXPECT_EQ(run.predicted_time_s(), 2e-3);
  EXPECT_EQ(run.measured_time_s(), 3e-3);
  EXPECT_EQ(run.request_id(), "step 7");
  EXPECT_EQ(ToJson(found->plan()), ToJson(answer));
  ASSERT_THAT(found->ranks(), SizeIs(1));
  EXPECT_EQ(found->ranks(0).rank(), 3);
  EXPECT_EQ(found->ranks(0).timeline_size(), answer.best().timeline_size());
  const auto listed = ListRuns(environment(), {}, {});
  ASSERT_THAT(listed->runs(), SizeIs(1));
  EXPECT_EQ(ToJson(listed->runs(0)), ToJson(run));
  request.set_run(99);
  EXPECT_THAT(GetRun(environment(), request, {}), IsError(StatusCode::kNotFound, "holds no run 99"));
  request.set_run(0);
  EXPECT_THAT(GetRun(environment(), request, {}), IsError(StatusCode::kInvalidInput, "run: found 0"));
}

TEST_F(DashboardPlansTest, AMeasuredCandidateIsFoundByItsKnobs) {
  const v1::PlanResponse answer = Answer();
  const v1::Plan& last = answer.candidates(answer.candidates_size() - 1);
  v1::MeasuredCandidate measured;
  measured.set_schedule(last.schedule());
  measured.set_chunks(last.chunks());
  measured.set_partition_degree(last.partition_degree());
  measured.set_all_to_all(last.all_to_all());
  measured.set_overlapped_gather(last.overlapped_gather());
  *measured.mutable_chunk_shares() = last.chunk_shares();
  measured.set_low_s(1e-3);
  RunRecord record = {.schedule = v1::Schedule::Family_Name(last.schedule()),
                      .report = ToJson(measured, JsonStyle::kCompact)};
  EXPECT_EQ(ToJson(RunOf(Save(answer, record)).plan()), WithoutTimeline(last));
  // One that was not answered says what it knows itself.
  measured.set_chunks(77);
  record.report = ToJson(measured, JsonStyle::kCompact);
  const v1::Plan other = RunOf(Save(answer, record)).plan();
  EXPECT_EQ(other.chunks(), 77);
  EXPECT_EQ(other.low_s(), 1e-3);
  EXPECT_EQ(other.schedule(), last.schedule());
}

TEST_F(DashboardPlansTest, WhatCannotBeReadFailsNoPage) {
  const v1::PlanResponse answer = Answer();
  const RunId no_report = Save(answer, {.schedule = "PARM_S2", .report = "{\"lost"});
  const PlanId no_plan = *store_->SavePlan({.profile_name = "elsewhere", .workload = "?", .answer = "?"});
  const RunId of_no_plan = *store_->SaveRun({.plan = no_plan, .schedule = "PIPELINE", .report = "{}"});
  const RunId of_no_schedule = *store_->SaveRun({.plan = no_plan, .schedule = "WALTZ"});
  EXPECT_EQ(ToJson(RunOf(no_report).plan(), JsonStyle::kCompact), [] {
    v1::Plan plan;
    plan.set_schedule(v1::Schedule::PARM_S2);
    return ToJson(plan, JsonStyle::kCompact);
  }());
  EXPECT_EQ(RunOf(of_no_plan).plan().schedule(), v1::Schedule::PIPELINE);
  EXPECT_EQ(RunOf(of_no_plan).profile_name(), "elsewhere");
  EXPECT_EQ(RunOf(of_no_plan).profile_version(), 0);
  EXPECT_EQ(RunOf(of_no_schedule).plan().schedule(), v1::Schedule::UNSPECIFIED);
  v1::ListRunsRequest request;
  EXPECT_THAT(ListRuns(environment(), request, {})->runs(), SizeIs(3));
  request.set_profile_name("elsewhere");
  request.set_page_size(1);
  const auto first = ListRuns(environment(), request, {});
  ASSERT_THAT(first->runs(), SizeIs(1));
  EXPECT_EQ(first->runs(0).run(), of_no_schedule.value);
  request.set_page_token(first->next_page_token());
  EXPECT_EQ(ListRuns(environment(), request, {})->runs(0).run(), of_no_plan.value);
}

// ---- Sweep.

v1::SweepRequest SweepOver(std::vector<std::string> axes) {
  v1::SweepRequest request;
  *request.mutable_workload() = ContractMessage<v1::Workload>("workload.example.json");
  request.mutable_axes()->Assign(axes.begin(), axes.end());
  return request;
}

TEST_F(DashboardPlansTest, APointIsWhatAPlanOfItsWorkloadSays) {
  const auto swept = Sweep(environment(), SweepOver({"layer.sequenceLength=1024,4096", "layer.topK=2,99"}), {});
  ASSERT_TRUE(swept.ok()) << swept.status().message();
  EXPECT_EQ(swept->profile_name(), "two-nodes-of-eight");
  EXPECT_EQ(swept->profile_version(), 1);
  EXPECT_THAT(swept->paths(), ElementsAre("layer.sequenceLength", "layer.topK"));
  ASSERT_THAT(swept->points(), SizeIs(4));
  const Profile profile = *store_->LoadProfile();
  for (const int at : {0, 2}) {  // The last axis fastest.
    const v1::SweepPoint& point = swept->points(at);
    v1::PlanRequest request = ExamplePlanRequest();
    request.mutable_workload()->mutable_layer()->set_sequence_length(at == 0 ? 1024 : 4096);
    request.mutable_workload()->mutable_layer()->set_top_k(2);
    const auto answer = Plan(environment(), request, {});
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(ToJson(point.row().best()), WithoutTimeline(answer->best()));
    EXPECT_EQ(point.row().fields().at("layer.topK").number_value(), 2);
    EXPECT_EQ(point.row().predicted_time_s(), answer->best().predicted_time_s());
    double baseline_s = 1e9;
    for (const v1::Plan& candidate : answer->candidates()) {
      if (candidate.schedule() == v1::Schedule::BASELINE || candidate.schedule() == v1::Schedule::BASELINE_TP)
        baseline_s = std::min(baseline_s, candidate.predicted_time_s());
    }
    EXPECT_EQ(point.baseline_time_s(), baseline_s);
    // What its tasks are priced from, by the time they take.
    v1::ExplainPlanRequest explaining;
    *explaining.mutable_workload() = answer->workload();
    *explaining.mutable_plan() = answer->best();
    const auto explained = ExplainPlan(environment(), explaining, {});
    ASSERT_TRUE(explained.ok()) << explained.status().message();
    std::map<std::string, double> spent_s;
    for (int i = 0; i < explained->tasks_size(); ++i) {
      const v1::TaskTiming& timing = explained->plan().timeline(i);
      if (!explained->tasks(i).cost().empty()) spent_s[explained->tasks(i).cost()] += timing.end_s() - timing.start_s();
    }
    EXPECT_EQ(static_cast<size_t>(point.costs_size()), spent_s.size());
    EXPECT_GT(point.costs_size(), 2);
    for (int i = 0; i < point.costs_size(); ++i) {
      ASSERT_TRUE(spent_s.contains(point.costs(i))) << point.costs(i);
      if (i > 0) {
        EXPECT_GE(spent_s[point.costs(i - 1)], spent_s[point.costs(i)] * (1 - 1e-9));
      }
    }
    // The explanation names the runner-up; its family is not the best's.
    ASSERT_TRUE(point.has_runner_up());
    EXPECT_NE(point.runner_up().schedule(), point.row().best().schedule());
    EXPECT_THAT(answer->explanation(),
                HasSubstr(StrCat("Runner-up: ", v1::Schedule::Family_Name(point.runner_up().schedule()))));
    EXPECT_THAT(point.runner_up().timeline(), IsEmpty());
    EXPECT_GE(point.runner_up().high_s(), point.runner_up().low_s());
    EXPECT_EQ(point.indistinct_s(), 0);  // Written by hand: its costs have no interval.
  }
  EXPECT_FALSE(swept->points(1).row().has_best());
  EXPECT_THAT(swept->points(1).row().reason(), HasSubstr("topK"));
  EXPECT_FALSE(swept->points(1).has_baseline_time_s());
}

const char* FormOf(const v1::CollectiveModel& entry) {
  return entry.has_efficiency() ? "efficiency" : entry.has_log_log() ? "logLog" : "alphaBeta";
}

// docs/decisions/0005: the error of the plan's own costs, and no more than 3 % of it.
TEST_F(DashboardPlansTest, APointSaysWhichTimesCannotBeToldApart) {
  const auto indistinct_share = [&](double error) {
    v1::PutProfileRequest uncertain = ExamplePutProfile(StrCat("uncertain ", error));
    for (v1::CollectiveModel& entry : *uncertain.mutable_profile()->mutable_collectives()) {
      entry.mutable_fit()->set_chosen(FormOf(entry));
      entry.mutable_fit()->set_interval_low_ratio(1 - error);
      entry.mutable_fit()->set_interval_high_ratio(1 + error);
    }
    Put(uncertain);
    const auto swept = Sweep(environment(), SweepOver({"layer.sequenceLength=4096"}), {});
    EXPECT_TRUE(swept.ok()) << swept.status().message();
    return swept->points(0).indistinct_s() / swept->points(0).row().predicted_time_s();
  };
  EXPECT_NEAR(indistinct_share(0.5), 0.03, 1e-12);
  const double share = indistinct_share(1e-3);
  EXPECT_GT(share, 1e-5);
  EXPECT_LT(share, 1e-3);
}

TEST_F(DashboardPlansTest, AnAxisThatIsWrongIsNamed) {
  const auto refused = [&](const std::vector<std::string>& axes) {
    const auto answer = Sweep(environment(), SweepOver(axes), {});
    EXPECT_EQ(answer.status().code(), StatusCode::kInvalidInput);
    return answer.status().message();
  };
  EXPECT_EQ(refused({}), "axes: found none, expected 1 to 4");
  EXPECT_THAT(refused({"maxChunks=1", "maxChunks=2", "maxChunks=3", "maxChunks=4", "maxChunks=5"}),
              HasSubstr("axes[4]: found 5 axes, expected at most 4"));
  EXPECT_THAT(refused({"maxChunks=1,2", "layer.bach=1"}),
              HasSubstr("axes[1]: found 'layer.bach=1', expected an axis that can be swept"));
  EXPECT_THAT(refused({"maxChunks=1,2", "maxChunks=3"}), HasSubstr("axes[1]: found 'maxChunks=3'"));
  EXPECT_THAT(refused({"maxChunks=x"}), HasSubstr("axes[0]: found 'maxChunks=x'"));
  std::string many = "layer.batch=1";
  for (int batch = 2; batch <= 65; ++batch) many += StrCat(",", batch);
  std::string chunks = "maxChunks=1";
  for (int count = 2; count <= 64; ++count) chunks += StrCat(",", count);  // 65 x 64 = 4160.
  EXPECT_THAT(refused({many, chunks}), HasSubstr("4160 combinations, expected at most 4096"));
  v1::SweepRequest request = SweepOver({"maxChunks=1"});
  request.mutable_workload()->mutable_layer()->set_batch(-1);
  EXPECT_TRUE(Sweep(environment(), request, {}).ok() == false ||
              !Sweep(environment(), request, {})->points(0).row().has_best());
  request.clear_workload();
  EXPECT_THAT(Sweep(environment(), request, {}), IsError(StatusCode::kInvalidInput, "workload: found nothing"));
}

TEST_F(DashboardPlansTest, ASweepWhoseCallerLeftEnds) {
  std::stop_source left;
  left.request_stop();
  EXPECT_THAT(Sweep(environment(), SweepOver({"layer.batch=1,2,4,8,16"}), left.get_token()),
              IsError(StatusCode::kCancelled, ""));
}

// ---- ExplainRules.

TEST_F(DashboardPlansTest, RulesOfPredictedCostsAreExplainedLikeThePlan) {
  v1::PlanRequest asked = ExamplePlanRequest();
  v1::Layout& layout = *asked.mutable_workload()->mutable_layout();
  layout.clear_data_parallel();
  layout.set_tensor_parallel(4);
  layout.set_expert_sharding_parallel(4);
  v1::ExplainRulesRequest request;
  *request.mutable_workload() = asked.workload();
  const auto lacking = ExplainRules(environment(), request, {});
  ASSERT_TRUE(lacking.ok()) << lacking.status().message();
  EXPECT_THAT(lacking->rules(0).skipped(), HasSubstr("the profile lacks"));
  asked.set_extrapolate(true);
  request.set_extrapolate(true);
  const auto answer = Plan(environment(), asked, {});
  const auto explained = ExplainRules(environment(), request, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_TRUE(explained.ok()) << explained.status().message();
  EXPECT_EQ(explained->rules(0).times(1).time_s(), answer->rules().parm().t_s1_s());
  const auto& terms = explained->rules(0).times(1).terms();
  EXPECT_TRUE(std::ranges::any_of(terms, [](const v1::RuleTerm& term) { return term.foretold(); }));
  EXPECT_TRUE(std::ranges::all_of(terms, [](const v1::RuleTerm& term) { return term.stand_in().empty(); }));
}

TEST_F(DashboardPlansTest, ATermOfAnUnmeasuredProductNamesTheMeasuredOne) {
  v1::ExplainRulesRequest request;
  *request.mutable_workload() = ContractMessage<v1::Workload>("workload.example.json");
  request.set_extrapolate(true);
  Profile profile = *store_->LoadProfile();
  const v1::Layer& layer = request.workload().layer();
  for (KernelModel& entry : profile.kernels) {
    if (!CountsFlops(entry.key.kernel)) continue;
    entry.key.model_dim = layer.model_dim();
    entry.key.hidden_dim = 2 * layer.hidden_dim();
  }
  ASSERT_TRUE(store_->SaveProfile(profile).ok());
  const auto explained = ExplainRules(environment(), request, {});
  ASSERT_TRUE(explained.ok()) << explained.status().message();
  int products = 0;
  for (const v1::ExplainedRule& rule : explained->rules()) {
    for (const v1::RuleTime& time : rule.times()) {
      for (const v1::RuleTerm& term : time.terms()) {
        if (!term.cost().starts_with("EXPERT_GEMM")) continue;
        ++products;
        EXPECT_TRUE(term.foretold());
        EXPECT_TRUE(std::ranges::any_of(profile.kernels, [&](const KernelModel& entry) {
          return Describe(entry.key) == term.stand_in();
        })) << term.stand_in();
      }
    }
  }
  EXPECT_GT(products, 0);
}

TEST_F(DashboardPlansTest, RuleTimesAreThoseOfThePlan) {
  const v1::PlanResponse answer = Answer();
  v1::ExplainRulesRequest request;
  *request.mutable_workload() = ContractMessage<v1::Workload>("workload.example.json");
  const auto explained = ExplainRules(environment(), request, {});
  ASSERT_TRUE(explained.ok()) << explained.status().message();
  EXPECT_EQ(explained->profile_version(), 1);
  ASSERT_THAT(explained->rules(), SizeIs(3));
  EXPECT_EQ(explained->rules(0).rule(), "parm");
  EXPECT_EQ(explained->rules(0).times(1).name(), "t_S1");
  EXPECT_EQ(explained->rules(0).times(1).time_s(), answer.rules().parm().t_s1_s());
  EXPECT_EQ(explained->rules(1).times(1).time_s(), answer.rules().monta().o1().time_s());
  EXPECT_EQ(explained->rules(2).times(0).time_s(), answer.rules().schemoe().opt_sche_time_s());
  // A term's cost is an entry of the profile.
  const v1::RuleTerm& term = explained->rules(0).times(0).terms(0);
  EXPECT_EQ(term.symbol(), "AG_ESP(N_ESP·x)");
  const Profile profile = *store_->LoadProfile();
  EXPECT_TRUE(std::ranges::any_of(profile.collectives, [&](const CollectiveModel& entry) {
    return Describe(entry.key) == term.cost();
  })) << term.cost();
  EXPECT_FALSE(term.foretold());
  request.mutable_workload()->mutable_layer()->set_top_k(99);
  EXPECT_THAT(ExplainRules(environment(), request, {}), IsError(StatusCode::kInvalidInput, "layer.topK: found 99"));
  request.clear_workload();
  EXPECT_THAT(ExplainRules(environment(), request, {}), IsError(StatusCode::kInvalidInput, "workload: found nothing"));
}

// ---- ExplainPlan.

v1::ExplainPlanRequest Explaining(const v1::PlanResponse& answer, const v1::Plan& plan) {
  v1::ExplainPlanRequest request;
  *request.mutable_workload() = answer.workload();
  *request.mutable_plan() = plan;
  request.mutable_plan()->clear_timeline();
  return request;
}

// Which task is listed first where two start together is not said.
std::map<std::string, std::string> ByTask(const v1::Plan& plan) {
  std::map<std::string, std::string> timings;
  for (const v1::TaskTiming& timing : plan.timeline()) timings[timing.task()] = ToJson(timing);
  return timings;
}

TEST_F(DashboardPlansTest, EveryTaskOfEveryCandidateNamesTheEntryThatItsTimeIsFrom) {
  const v1::PlanResponse answer = Answer();
  const Profile profile = *store_->LoadProfile();
  for (const v1::Plan& plan : answer.candidates()) {
    const auto explained = ExplainPlan(environment(), Explaining(answer, plan), {});
    ASSERT_TRUE(explained.ok()) << explained.status().message();
    EXPECT_EQ(explained->profile_name(), profile.name);
    EXPECT_EQ(explained->profile_version(), 1);
    EXPECT_EQ(ByTask(explained->plan()), ByTask(plan));
    EXPECT_EQ(WithoutTimeline(explained->plan()), WithoutTimeline(plan));
    ASSERT_EQ(explained->tasks_size(), plan.timeline_size());
    double now_s = 0;
    for (int i = 0; i < explained->tasks_size(); ++i) {
      const v1::TaskTiming& timing = explained->plan().timeline(i);
      const v1::ExplainedTask& task = explained->tasks(i);
      SCOPED_TRACE(timing.task());
      EXPECT_EQ(task.task(), timing.task());
      EXPECT_LE(task.alone_s(), (timing.end_s() - timing.start_s()) * (1 + 1e-9));
      EXPECT_FALSE(task.foretold());
      // By hand: the entry's own curve at that size.
      double time_s = 0;
      for (const CollectiveModel& entry : profile.collectives) {
        if (Describe(entry.key) == task.cost()) time_s = Price(entry.model, task.size(), BusFactorOf(entry.key)).time_s;
      }
      for (const KernelModel& entry : profile.kernels) {
        if (Describe(entry.key) == task.cost()) time_s = Price(entry.model, task.size(), 1).time_s;
      }
      EXPECT_NEAR(task.alone_s(), time_s, 1e-12);
      EXPECT_EQ(task.released_by().empty(), timing.start_s() == 0 && i == 0) << task.released_by();
      if (!task.critical()) continue;
      EXPECT_NEAR(timing.start_s(), now_s, 1e-12);
      now_s = timing.end_s();
    }
    EXPECT_NEAR(now_s, plan.predicted_time_s(), 1e-12);
  }
}

TEST_F(DashboardPlansTest, APlanOfAnotherVersionIsExplainedWithTheOneAskedFor) {
  const v1::PlanResponse answer = Answer();
  v1::PutProfileRequest slower = ExamplePutProfile("b");
  for (v1::CollectiveModel& entry : *slower.mutable_profile()->mutable_collectives()) {
    if (entry.has_alpha_beta()) entry.mutable_alpha_beta()->set_alpha_s(entry.alpha_beta().alpha_s() + 1e-3);
  }
  Put(slower);
  v1::ExplainPlanRequest request = Explaining(answer, answer.best());
  const auto newest = ExplainPlan(environment(), request, {});
  request.set_profile_version(1);
  const auto first = ExplainPlan(environment(), request, {});
  ASSERT_TRUE(newest.ok() && first.ok());
  EXPECT_EQ(newest->profile_version(), 2);
  EXPECT_EQ(first->plan().predicted_time_s(), answer.best().predicted_time_s());
  EXPECT_GT(newest->plan().predicted_time_s(), answer.best().predicted_time_s() + 1e-3);
}

v1::Plan FasterBaselineOf(const v1::PlanResponse& answer) {
  v1::Plan fastest;
  for (const v1::Plan& plan : answer.candidates()) {
    if (plan.schedule() != v1::Schedule::BASELINE && plan.schedule() != v1::Schedule::BASELINE_TP) continue;
    if (fastest.predicted_time_s() == 0 || plan.predicted_time_s() < fastest.predicted_time_s()) fastest = plan;
  }
  return fastest;
}

TEST_F(DashboardPlansTest, WithoutAPlanTheFasterBaselineIsExplained) {
  for (const double gradient_bytes : {0.0, 64e6}) {
    SCOPED_TRACE(gradient_bytes);
    v1::PlanRequest asked = ExamplePlanRequest();
    asked.mutable_workload()->set_gradient_bytes(gradient_bytes);
    if (gradient_bytes > 0) asked.mutable_workload()->set_phase(v1::Phase::BACKWARD);
    asked.set_extrapolate(gradient_bytes > 0);
    const auto answer = Plan(environment(), asked, {});
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    const v1::Plan baseline = FasterBaselineOf(*answer);
    EXPECT_EQ(baseline.gradients().slices_size() > 0, gradient_bytes > 0);
    v1::ExplainPlanRequest request = Explaining(*answer, baseline);
    request.clear_plan();
    const auto explained = ExplainPlan(environment(), request, {});
    ASSERT_TRUE(explained.ok()) << explained.status().message();
    EXPECT_EQ(ByTask(explained->plan()), ByTask(baseline));
    EXPECT_EQ(WithoutTimeline(explained->plan()), WithoutTimeline(baseline));
  }
}

TEST_F(DashboardPlansTest, ABaselineWhoseCostsTheProfileLacksIsPredicted) {
  v1::PlanRequest asked = ExamplePlanRequest();
  v1::Layout& layout = *asked.mutable_workload()->mutable_layout();
  layout.clear_data_parallel();
  layout.set_tensor_parallel(4);
  layout.set_expert_sharding_parallel(4);
  asked.set_extrapolate(true);
  const auto answer = Plan(environment(), asked, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  v1::ExplainPlanRequest request = Explaining(*answer, {});
  request.clear_plan();
  const auto explained = ExplainPlan(environment(), request, {});
  ASSERT_TRUE(explained.ok()) << explained.status().message();
  EXPECT_EQ(explained->plan().predicted_time_s(), FasterBaselineOf(*answer).predicted_time_s());
  EXPECT_FALSE(explained->warnings().empty());
}

TEST_F(DashboardPlansTest, WithoutABaselineThatFitsTheReasonIsSaid) {
  v1::PutProfileRequest small = ExamplePutProfile("small");
  small.mutable_profile()->mutable_cluster()->set_device_memory_bytes(1);
  Put(small);
  v1::ExplainPlanRequest request;
  *request.mutable_workload() = ExamplePlanRequest().workload();
  EXPECT_THAT(ExplainPlan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "no baseline is left: needs at least"));
}

TEST_F(DashboardPlansTest, TasksOfPredictedCostsSaySo) {
  v1::PlanRequest asked = ExamplePlanRequest();
  v1::Layout& layout = *asked.mutable_workload()->mutable_layout();
  layout.clear_data_parallel();
  layout.set_tensor_parallel(4);
  layout.set_expert_sharding_parallel(4);
  asked.set_extrapolate(true);
  const auto answer = Plan(environment(), asked, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  const auto plain = std::ranges::find(answer->candidates(), v1::AllToAll::DIRECT, &v1::Plan::all_to_all);
  ASSERT_NE(plain, answer->candidates().end());
  const auto explained = ExplainPlan(environment(), Explaining(*answer, *plain), {});
  ASSERT_TRUE(explained.ok()) << explained.status().message();
  EXPECT_EQ(explained->plan().predicted_time_s(), plain->predicted_time_s());
  const auto predicted = std::ranges::find_if(explained->tasks(), &v1::ExplainedTask::foretold);
  ASSERT_NE(predicted, explained->tasks().end());
  EXPECT_EQ(predicted->cost(), "");
  EXPECT_GT(predicted->alone_s(), 0);
  // The layer could ask for more that would be predicted, of other operations: not this plan.
  const auto of_no_task = [&](const std::string& warning) {
    return warning.find("extrapolated from links") != std::string::npos &&
           std::ranges::none_of(plain->timeline(), [&](const v1::TaskTiming& timing) {
             return warning.starts_with(v1::Task::Kind_Name(timing.kind()) + " ");
           });
  };
  EXPECT_FALSE(explained->warnings().empty());
  EXPECT_TRUE(std::ranges::none_of(explained->warnings(), of_no_task));
  EXPECT_TRUE(std::ranges::any_of(answer->warnings(), of_no_task));
}

TEST_F(DashboardPlansTest, APlanThatCannotBeExplainedIsRefusedByItsField) {
  const v1::PlanResponse answer = Answer();
  v1::ExplainPlanRequest request = Explaining(answer, answer.best());
  request.mutable_plan()->set_chunks(1 << 20);
  EXPECT_THAT(ExplainPlan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "plan.chunks: found 1048576"));
  *request.mutable_plan() = answer.best();
  request.mutable_plan()->clear_timeline();
  request.mutable_plan()->set_order(0, "no_such_task");
  EXPECT_THAT(ExplainPlan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "plan: order: found no task"));
  *request.mutable_plan() = answer.best();
  request.set_profile_version(9);
  EXPECT_THAT(ExplainPlan(environment(), request, {}), IsError(StatusCode::kNotFound, "9"));
  request.clear_workload();
  EXPECT_THAT(ExplainPlan(environment(), request, {}), IsError(StatusCode::kInvalidInput, "workload: found nothing"));
}

// ---- ImportModel and RankLayouts.

constexpr char kMixtral[] = R"({
  "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "num_local_experts": 8, "tie_word_embeddings": false, "vocab_size": 32000,
  "rope_theta": 1e6, "sliding_window": null, "architectures": ["MixtralForCausalLM"], "rope_scaling": {"factor": 1.5}})";

v1::ImportModelRequest Import(const std::string& config) {
  const auto request = FromJson<v1::ImportModelRequest>(StrCat("{\"model\": ", config, "}"), "request");
  EXPECT_TRUE(request.ok()) << request.status().message();
  return *request;
}

TEST_F(DashboardPlansTest, AModelsLayerIsAWorkloadToPlan) {
  const auto imported = ImportModel(environment(), Import(kMixtral), {});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->layers(), 32);
  EXPECT_EQ(imported->moe_layers(), 32);
  const v1::Layer& layer = imported->workload().layer();
  EXPECT_EQ(layer.batch(), 1);
  EXPECT_EQ(layer.sequence_length(), 32768);
  EXPECT_EQ(layer.model_dim(), 4096);
  EXPECT_EQ(layer.hidden_dim(), 14336);
  EXPECT_EQ(layer.experts(), 8);
  EXPECT_EQ(layer.top_k(), 2);
  EXPECT_EQ(layer.expert_matrices(), 3);
  EXPECT_EQ(layer.capacity_factor(), 0);
  EXPECT_FALSE(layer.has_router());
  EXPECT_FALSE(imported->workload().has_layout());
  v1::PlanRequest plan;
  *plan.mutable_workload() = imported->workload();
  plan.mutable_workload()->mutable_layout()->set_expert_parallel(2);
  EXPECT_TRUE(WorkloadFromProto(plan.workload()).ok());
  const auto dense = ImportModel(
      environment(),
      Import(
          R"({"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 100})"),
      {});
  ASSERT_TRUE(dense.ok()) << dense.status().message();
  EXPECT_EQ(dense->layers(), 3);
  EXPECT_EQ(dense->moe_layers(), 0);
  EXPECT_FALSE(dense->has_workload());
  EXPECT_THAT(ImportModel(environment(), {}, {}), IsError(StatusCode::kInvalidInput, "model: found nothing"));
  EXPECT_THAT(ImportModel(environment(), Import(R"({"hidden_size": "wide"})"), {}),
              IsError(StatusCode::kInvalidInput, "model: "));
}

TEST_F(DashboardPlansTest, ForeignJsonReadsBackAsItCame) {
  const v1::ImportModelRequest request = Import(kMixtral);
  const auto again = FromJson<v1::ImportModelRequest>(ToJson(request), "again");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(ToJson(*again), ToJson(request));
  EXPECT_EQ(request.model().fields().at("architectures").list_value().values(0).string_value(), "MixtralForCausalLM");
  EXPECT_EQ(request.model().fields().at("rope_scaling").struct_value().fields().at("factor").number_value(), 1.5);
  EXPECT_EQ(FromJson<v1::ImportModelRequest>(R"({"model": 3})", "request").status().message(),
            "request: model: found 3, expected an object");
}

v1::RankLayoutsRequest RankMixtral() {
  v1::RankLayoutsRequest request;
  *request.mutable_model() = Import(kMixtral).model();
  request.set_gpus(16);
  request.set_global_batch(16);
  request.set_sequence_length(1024);
  request.set_top(3);
  return request;
}

TEST_F(DashboardPlansTest, LayoutsAreRankedAsTheCommandDoes) {
  const auto ranked = RankLayouts(environment(), RankMixtral(), {});
  ASSERT_TRUE(ranked.ok()) << ranked.status().message();
  EXPECT_EQ(ranked->profile_version(), 1);
  EXPECT_LE(ranked->result().layouts_size(), 3);
  EXPECT_GT(ranked->result().enumerated(), 10);
  const Profile profile = *store_->LoadProfile();
  EXPECT_EQ(ranked->device_memory_bytes(), profile.cluster.device_memory_bytes);
  for (int i = 1; i < ranked->result().layouts_size(); ++i) {
    EXPECT_GE(ranked->result().layouts(i).step_time_s(), ranked->result().layouts(i - 1).step_time_s());
  }
  // Fewer bytes of states on a rank: the default stage is 1, not 0.
  v1::RankLayoutsRequest stage_1 = RankMixtral();
  stage_1.set_zero_stage(1);
  EXPECT_EQ(ToJson(RankLayouts(environment(), stage_1, {})->result()), ToJson(ranked->result()));
}

TEST_F(DashboardPlansTest, LayoutsAreTriedUnderLancetsPassesAsTheCommandDoes) {
  v1::RankLayoutsRequest request = RankMixtral();
  request.set_lancet(true);
  const auto ranked = RankLayouts(environment(), request, {});
  ASSERT_TRUE(ranked.ok()) << ranked.status().message();
  // The command's way.
  LayoutRequest asked = {.gpus = 16, .global_batch = 16, .sequence_length = 1024, .zero_stage = 1, .top = 3};
  asked.model = *ModelFromHfConfig(kMixtral, "mixtral");
  const Profile profile = *store_->LoadProfile();
  auto expected = planner::RankLayouts(asked, profile);
  ASSERT_TRUE(expected.ok() && planner::TryLancet(asked, profile, /*threads=*/1, *expected).ok());
  EXPECT_EQ(ToJson(ranked->result()), ToJson(ToProto(*expected, asked)));
  EXPECT_THAT(ranked->result().warnings(), Contains(HasSubstr("Lancet's passes were tried for the 3 layouts listed")));
}

TEST_F(DashboardPlansTest, WrongLayoutsAreRefusedByField) {
  const auto refused = [&](const std::function<void(v1::RankLayoutsRequest&)>& spoil) {
    v1::RankLayoutsRequest request = RankMixtral();
    spoil(request);
    const auto answer = RankLayouts(environment(), request, {});
    EXPECT_EQ(answer.status().code(), StatusCode::kInvalidInput);
    return answer.status().message();
  };
  EXPECT_THAT(refused([](auto& one) { one.clear_model(); }), HasSubstr("model: found nothing"));
  EXPECT_THAT(refused([](auto& one) { one.set_gpus(-1); }), HasSubstr("gpus: found -1"));
  EXPECT_THAT(refused([](auto& one) { one.set_global_batch(-1); }), HasSubstr("globalBatch: found -1"));
  EXPECT_THAT(refused([](auto& one) { one.set_sequence_length(0); }), HasSubstr("sequenceLength: found 0"));
  EXPECT_THAT(refused([](auto& one) { one.set_zero_stage(4); }), HasSubstr("zeroStage: found 4"));
  EXPECT_THAT(refused([](auto& one) { one.set_top(1001); }), HasSubstr("top: found 1001"));
  EXPECT_THAT(refused([](auto& one) { one.set_top(101), one.set_lancet(true); }),
              HasSubstr("top: found 101, expected 1 to 100 with lancet"));
  std::stop_source left;
  left.request_stop();
  EXPECT_EQ(RankLayouts(environment(), RankMixtral(), left.get_token()).status().code(), StatusCode::kCancelled);
}

// ---- All of them, asked as clients do.

TEST_F(DashboardPlansTest, EveryMethodIsServedUnderItsRole) {
  const auto server = Started();
  const auto answers = [&](const std::string& method, const std::string& json) {
    std::string answer;
    const Status status = client::CallMethod({.address = server->grpc_address(), .deadline_s = 60}, method, json,
                                             [&](const google::protobuf::Message& message, bool) {
                                               answer = ToJson(message, JsonStyle::kCompact);
                                               return true;
                                             });
    EXPECT_TRUE(status.ok()) << method << ": " << status.message();
    return answer;
  };
  const std::string workload = ToJson(ExamplePlanRequest().workload(), JsonStyle::kCompact);
  EXPECT_THAT(answers("ListClusters", "{}"), HasSubstr("two-nodes-of-eight"));
  EXPECT_THAT(answers("GetLinks", "{}"), HasSubstr("INTER_NODE"));
  EXPECT_THAT(answers("GetCurve", "{}"), HasSubstr("formula"));
  EXPECT_THAT(answers("ListRuns", "{}"), HasSubstr("runs"));
  EXPECT_THAT(answers("ExplainRules", StrCat("{\"workload\": ", workload, "}")), HasSubstr("t_S1"));
  EXPECT_THAT(answers("Sweep", StrCat("{\"axes\": [\"maxChunks=1,2\"], \"workload\": ", workload, "}")),
              testing::AllOf(HasSubstr("baselineTimeS"), HasSubstr("{\"maxChunks\":2}")));
  EXPECT_THAT(
      answers("Step", StrCat("{\"gpus\": 16, \"globalBatch\": 16, \"sequenceLength\": 64, \"model\": ", kMixtral, "}")),
      HasSubstr("exposedS"));
  const std::string beside = StrCat("{\"gpus\": 16, \"globalBatch\": 16, \"sequenceLength\": 64, \"model\": ", kMixtral,
                                    ", \"layout\": {\"expertParallel\": 8}, \"against\": {\"expertParallel\": 4}}");
  EXPECT_THAT(answers("Step", beside), testing::AllOf(HasSubstr("\"gain\":"), HasSubstr("\"gainLow\":")));
  EXPECT_EQ(answers("ListMeasuredSteps", "{}"), "{}");
  EXPECT_THAT(answers("ImportModel", StrCat("{\"model\": ", kMixtral, "}")), HasSubstr("14336"));
  const auto role_of = [](const std::string& path) { return FindMethod("/moeplan.v1." + path)->role; };
  for (const char* path : {"ProfileService/ListClusters", "ProfileService/GetLinks", "ProfileService/GetCurve",
                           "ProfileService/ListSamples", "PlannerService/ListRuns", "PlannerService/GetRun",
                           "PlannerService/ListMeasuredSteps"}) {
    EXPECT_EQ(role_of(path), Role::kRead) << path;
  }
  for (const char* path : {"PlannerService/ExplainRules", "PlannerService/Sweep", "PlannerService/RankLayouts",
                           "PlannerService/ImportModel"}) {
    EXPECT_EQ(role_of(path), Role::kPlan) << path;
  }
}

}  // namespace
}  // namespace moeplan::service
