// Runs that jobs report, what is found by them, and jobs that watch their plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>

#include "handlers_fixture.h"
#include "planner/client/plan_watch.h"
#include "planner/service/access/token.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/watch_plan.h"
#include "planner/service/plan_log.h"
#include "service_fixture.h"
#include "tests/planner/told.h"

namespace moeplan::service {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::SizeIs;

// The example's profile with all-to-alls that take `factor` times as long.
v1::PutProfileRequest WithSlowAllToAlls(const std::string& request_id, double factor) {
  v1::PutProfileRequest request = ExamplePutProfile(request_id);
  for (auto& entry : *request.mutable_profile()->mutable_collectives()) {
    if (entry.collective() != v1::Collective::ALL_TO_ALL &&
        entry.collective() != v1::Collective::ALL_TO_ALL_ALL_GATHER) {
      continue;
    }
    if (entry.has_alpha_beta()) {
      entry.mutable_alpha_beta()->set_alpha_s(factor * entry.alpha_beta().alpha_s());
      entry.mutable_alpha_beta()->set_beta_s_per_byte(factor * entry.alpha_beta().beta_s_per_byte());
    }
    if (entry.has_efficiency()) {
      entry.mutable_efficiency()->set_peak_bytes_per_s(entry.efficiency().peak_bytes_per_s() / factor);
    }
    if (!entry.has_log_log()) continue;
    for (auto& point : *entry.mutable_log_log()->mutable_points()) point.set_time_s(factor * point.time_s());
  }
  return request;
}

// ---- Reports
// ---------------------------------------------------------------------------------------------------------

class ReportTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    ServerOptions options = Options();
    options.drift = {.between_reports_s = 5, .now = [this] { return now_.load(); }};
    server_ = Started(std::move(options));
    client_ = ClientOf(*server_);
    ASSERT_TRUE(client_->PutProfile(ExamplePutProfile("a")).ok());
    const auto plan = client_->Plan(ExamplePlanRequest());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_ = *plan;
  }

  // A run whose all-to-alls take `factor` times what was predicted.
  v1::ReportRunRequest Report(const std::string& request_id, double factor = 1) const {
    v1::ReportRunRequest request;
    request.set_request_id(request_id);
    *request.mutable_plan() = plan_;
    v1::RankTimeline& rank = *request.add_ranks();
    *rank.mutable_timeline() = plan_.best().timeline();
    for (v1::TaskTiming& task : *rank.mutable_timeline()) {
      if (task.kind() != v1::Task::ALL_TO_ALL) continue;
      task.set_end_s(task.start_s() + factor * (task.end_s() - task.start_s()));
    }
    return request;
  }
  std::vector<RunRecord> Runs() const {
    auto store = Store::OpenReadOnly(db());
    EXPECT_TRUE(store.ok());
    // Of the plan as it was answered, and of what of it a job reports.
    std::vector<RunRecord> all;
    for (const std::int64_t plan : {1, 2}) {
      const auto runs = store->RunsOf({plan});
      if (runs.ok()) all.insert(all.end(), runs->begin(), runs->end());
    }
    return all;
  }
  // Whether a drift was found by one more step, five seconds after the one before.
  bool Step(double factor) {
    now_ = now_.load() + seconds(5);
    const auto answer = client_->ReportRun(Report(StrCat("step ", ++steps_), factor));
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    bool drifted = false;
    for (const v1::CostRatio& cost : answer->costs()) drifted = drifted || cost.drifted();
    return drifted;
  }

  std::atomic<std::chrono::steady_clock::time_point> now_{std::chrono::steady_clock::time_point(seconds(1000))};
  std::unique_ptr<Server> server_;
  std::unique_ptr<client::PlannerClient> client_;
  v1::PlanResponse plan_;
  int steps_ = 0;
};

TEST_F(ReportTest, ARunIsHeldAgainstItsProfileAndKept) {
  const auto answer = client_->ReportRun(Report("r", 1.3));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_NEAR(answer->predicted_time_s(), plan_.best().predicted_time_s(), 1e-12);
  EXPECT_GT(answer->measured_time_s(), plan_.best().predicted_time_s());
  EXPECT_EQ(answer->profile_version(), 1);
  ASSERT_GT(answer->costs_size(), 2);
  for (const v1::CostRatio& cost : answer->costs()) {
    EXPECT_NEAR(cost.ratio(), cost.cost().starts_with("ALL_TO_ALL") ? 1.3 : 1.0, 1e-9) << cost.cost();
    EXPECT_FALSE(cost.drifted());
  }
  ASSERT_THAT(Runs(), SizeIs(1));
  EXPECT_EQ(Runs()[0].request_id, "r");
  EXPECT_EQ(Runs()[0].measured_time_s, answer->measured_time_s());
}

TEST_F(ReportTest, ARepeatedReportCountsOnceAndOneAMinuteIsKept) {
  ASSERT_TRUE(client_->ReportRun(Report("r")).ok());
  const auto again = client_->ReportRun(Report("r"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->costs_size(), 0);
  ASSERT_TRUE(client_->ReportRun(Report("another")).ok());
  EXPECT_THAT(Runs(), SizeIs(1));
}

TEST_F(ReportTest, TheBriefAnswerIsEnough) {
  v1::PlanRequest brief = ExamplePlanRequest();
  brief.set_view(v1::PlanRequest::BEST);
  v1::ReportRunRequest report = Report("r");
  *report.mutable_plan() = *client_->Plan(brief);
  EXPECT_TRUE(client_->ReportRun(report).ok());
}

TEST_F(ReportTest, WhatCannotBeIsRefusedWithItsField) {
  const auto refused = [&](const std::function<void(v1::ReportRunRequest&)>& spoil) {
    v1::ReportRunRequest request = Report("r");
    spoil(request);
    return client_->ReportRun(request).status();
  };
  const auto timing = [](v1::ReportRunRequest& request) -> v1::TaskTiming& {
    return *request.mutable_ranks(0)->mutable_timeline(2);
  };
  EXPECT_THAT(refused([](auto& request) { request.clear_request_id(); }),
              IsError(StatusCode::kInvalidInput, "requestId"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_plan()->clear_best(); }),
              IsError(StatusCode::kInvalidInput, "plan.best: found nothing"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_plan()->clear_workload(); }),
              IsError(StatusCode::kInvalidInput, "plan.workload: found nothing"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_plan()->set_profile_version(0); }),
              IsError(StatusCode::kInvalidInput, "plan.profileVersion: found 0"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_plan()->set_profile_name("nobody"); }),
              IsError(StatusCode::kNotFound, "nobody"));
  EXPECT_THAT(
      refused([](auto& request) { request.mutable_plan()->mutable_best()->set_schedule(v1::Schedule::UNSPECIFIED); }),
      IsError(StatusCode::kInvalidInput, "plan.best.schedule"));
  EXPECT_THAT(refused([](auto& request) { request.clear_ranks(); }),
              IsError(StatusCode::kInvalidInput, "ranks: found no measured task"));
  EXPECT_THAT(refused([&](auto& request) { timing(request).set_task("dreaming"); }),
              IsError(StatusCode::kInvalidInput, "ranks[0].timeline[2].task: found dreaming"));
  EXPECT_THAT(refused([&](auto& request) { timing(request).set_end_s(timing(request).start_s() - 1e-6); }),
              IsError(StatusCode::kInvalidInput, "ranks[0].timeline[2].endS"));
  EXPECT_THAT(refused([&](auto& request) { timing(request).set_end_s(std::numeric_limits<double>::quiet_NaN()); }),
              IsError(StatusCode::kInvalidInput, "ranks[0].timeline[2].endS"));
  EXPECT_THAT(refused([](auto& request) {
                for (int i = 0; i < 4096; ++i) request.add_ranks();
              }),
              IsError(StatusCode::kInvalidInput, "ranks: found 4097 ranks, expected at most 4096"));
  EXPECT_THAT(refused([&](auto& request) { timing(request).set_end_s(1e300); }),
              IsError(StatusCode::kInvalidInput, "ranks[0].timeline[2].endS: found 1e+300, expected at most"));
  // A graph of as many tasks would take all of the memory.
  EXPECT_THAT(refused([](auto& request) { request.mutable_plan()->mutable_best()->set_partition_degree(5'000'000); }),
              IsError(StatusCode::kInvalidInput, "plan.best.partitionDegree: found 5000000, expected at most 1024"));
  EXPECT_THAT(Runs(), SizeIs(0));
}

TEST_F(ReportTest, WhatNobodyCanMeasureAgainIsListedWithTheReasonOnPages) {
  for (int i = 1; i < 25; ++i) EXPECT_FALSE(Step(1.5)) << i;
  EXPECT_TRUE(Step(1.5));
  const int found = client_->ListDrifts({})->drifts_size();  // One for each all-to-all of the plan.
  EXPECT_GT(found, 0);
  // For an hour the tests of what cannot be measured rest; then they begin anew.
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Step(1.5)) << i;
  now_ = now_.load() + std::chrono::hours(1);
  for (int i = 1; i < 25; ++i) EXPECT_FALSE(Step(1.5)) << i;
  EXPECT_TRUE(Step(1.5));
  now_ = now_.load() + std::chrono::hours(1);
  for (int i = 1; i < 25; ++i) EXPECT_FALSE(Step(1.5)) << i;
  EXPECT_TRUE(Step(1.5));
  EXPECT_EQ(client_->ListDrifts({})->drifts_size(), 3 * found);
  EXPECT_THAT(httplib::Client("http://" + server_->http_address()).Get("/metrics")->body,
              HasSubstr(StrCat("moeplan_drift_keys{profile=\"two-nodes-of-eight\"} ", found, "\n")));
  v1::ListDriftsRequest request;
  request.set_page_size(2);
  const auto page = client_->ListDrifts(request);
  ASSERT_TRUE(page.ok()) << page.status().message();
  ASSERT_EQ(page->drifts_size(), 2);
  const v1::Drift& drift = page->drifts(0);
  EXPECT_EQ(drift.state(), v1::Drift::FAILED);
  EXPECT_THAT(drift.detail(), HasSubstr("no agents have measured profile"));
  EXPECT_THAT(drift.cost(), HasSubstr("ALL_TO_ALL"));
  EXPECT_NEAR(drift.ratio(), 1.5, 1e-9);
  EXPECT_EQ(drift.runs(), 25);
  EXPECT_EQ(drift.profile_version(), 1);
  EXPECT_THAT(drift.found_at(), SizeIs(20));
  request.set_page_token(page->next_page_token());
  const auto rest = client_->ListDrifts(request);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(rest->drifts_size(), std::min(2, 3 * found - 2));
  EXPECT_EQ(rest->next_page_token().empty(), 3 * found <= 4);
  request.set_page_token("x");
  EXPECT_THAT(client_->ListDrifts(request).status(), IsError(StatusCode::kInvalidInput, "pageToken: found x"));
  request.set_page_size(1001);
  EXPECT_THAT(client_->ListDrifts(request).status(), IsError(StatusCode::kInvalidInput, "pageSize: found 1001"));
  request.Clear();
  request.set_profile_name("another");
  EXPECT_EQ(client_->ListDrifts(request)->drifts_size(), 0);
}

TEST_F(ReportTest, ReportsOfOneMomentCountOnce) {
  for (int i = 1; i <= 100; ++i) {
    const auto answer = client_->ReportRun(Report(StrCat("rank ", i), 1.5));
    ASSERT_TRUE(answer.ok());
    for (const v1::CostRatio& cost : answer->costs()) EXPECT_FALSE(cost.drifted());
  }
  for (int i = 2; i < 25; ++i) EXPECT_FALSE(Step(1.5)) << i;
  EXPECT_TRUE(Step(1.5));
}

TEST_F(ReportTest, ANewVersionBeginsAnew) {
  for (int i = 1; i < 25; ++i) EXPECT_FALSE(Step(1.5)) << i;
  ASSERT_TRUE(client_->PutProfile(WithSlowAllToAlls("b", 1.5)).ok());
  // What the job sees is what the new version says, though its plan is of the old one.
  for (int i = 1; i < 30; ++i) {
    now_ = now_.load() + seconds(5);
    const auto answer = client_->ReportRun(Report(StrCat("after ", i), 1.5));
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->profile_version(), 2);
    for (const v1::CostRatio& cost : answer->costs()) EXPECT_NEAR(cost.ratio(), 1, 1e-6) << cost.cost();
  }
  EXPECT_EQ(client_->ListDrifts({})->drifts_size(), 0);
}

TEST_F(ReportTest, AKeptRunHasThePredictionOfTheVersionThatMadeItsPlan) {
  ASSERT_TRUE(client_->PutProfile(WithSlowAllToAlls("b", 1.5)).ok());
  const auto answer = client_->ReportRun(Report("r"));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->profile_version(), 2);
  EXPECT_GT(answer->predicted_time_s(), 1.01 * plan_.best().predicted_time_s());
  ASSERT_THAT(Runs(), SizeIs(1));
  EXPECT_NEAR(Runs()[0].predicted_time_s, plan_.best().predicted_time_s(), 1e-12);
}

TEST_F(HandlersTest, RunsOfAPlanAreKeptAMinuteApart) {
  Put(ExamplePutProfile("a"));
  const v1::PlanResponse answer = *Plan(environment(), ExamplePlanRequest(), {});
  PlanLog::Clock::time_point now{std::chrono::hours(1)};
  auto log = PlanLog::Open(db(), [&] { return now; });
  ASSERT_TRUE(log.ok());
  const auto keep = [&](const std::string& request_id) {
    return log->KeepRun(answer, {.schedule = "BASELINE", .request_id = request_id});
  };
  EXPECT_TRUE(keep("1"));
  now += seconds(59);
  EXPECT_TRUE(keep("2"));
  now += seconds(1);
  EXPECT_TRUE(keep("3"));
  EXPECT_FALSE(keep("3"));
  const auto runs = store_->RunsOf({1});
  ASSERT_TRUE(runs.ok());
  ASSERT_THAT(*runs, SizeIs(2));
  EXPECT_EQ(runs->at(1).request_id, "3");
}

// ---- Watches
// ---------------------------------------------------------------------------------------------------------

constexpr seconds kSoon(30);

class WatchTest : public ServiceTest {
 protected:
  static client::PlanWatchOptions OptionsOf(const Server& server, Told& told, double min_gain) {
    client::PlanWatchOptions options = {.planner = {.address = server.grpc_address()}, .first_pause_s = 0.05};
    told.Listen(options);
    *options.request.mutable_request() = ExamplePlanRequest();
    options.request.set_min_gain(min_gain);
    return options;
  }
};

TEST_F(WatchTest, AWatcherIsToldOfABetterPlanAndWhy) {
  const auto server = Started();
  const auto client = ClientOf(*server);
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("a")).ok());
  Told eager, calm;
  const client::PlanWatch eager_watch(OptionsOf(*server, eager, 0.01)), calm_watch(OptionsOf(*server, calm, 0.2));
  const auto first = eager.Next(kSoon);
  ASSERT_TRUE(first);
  EXPECT_THAT(first->why(), HasSubstr("the best plan of profile"));
  EXPECT_FALSE(first->has_held_time_s());
  EXPECT_EQ(first->plan().best().SerializeAsString(), client->Plan(ExamplePlanRequest())->best().SerializeAsString());
  ASSERT_TRUE(calm.Next(kSoon));

  // With all-to-alls four times as slow another plan takes 8 % less than the one that is held.
  ASSERT_TRUE(client->PutProfile(WithSlowAllToAlls("b", 4)).ok());
  const auto second = eager.Next(kSoon);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->plan().profile_version(), 2);
  EXPECT_NE(second->plan().best().partition_degree(), first->plan().best().partition_degree());
  EXPECT_NEAR(1 - second->plan().best().predicted_time_s() / second->held_time_s(), 0.082, 0.005);
  EXPECT_THAT(second->why(),
              HasSubstr("version 2: PARM_S2 in 2 partitions of sizes 5:3 takes 58.35 ms, the held PARM_S2 in 4"));
  EXPECT_THAT(second->why(), HasSubstr("63.54 ms; since version 1, ALL_TO_ALL_ALL_GATHER groupSize 16"));
  EXPECT_THAT(second->why(), HasSubstr("takes 4.00 times as long"));

  // Back again: now both hold the best, and both were reconsidered when the eager one was told. The calm one never was.
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("c")).ok());
  ASSERT_TRUE(eager.Next(kSoon));
  EXPECT_FALSE(calm.Next(seconds(0)));
}

TEST_F(WatchTest, APlannerThatShutsDownSaysSoAndTheNextOneIsFound) {
  auto server = Started();
  const std::string address = server->grpc_address();
  ASSERT_TRUE(ClientOf(*server)->PutProfile(ExamplePutProfile("a")).ok());
  Told told;
  const client::PlanWatch watch(OptionsOf(*server, told, 0.01));
  ASSERT_TRUE(told.Next(kSoon));
  const auto began = std::chrono::steady_clock::now();
  server->Shutdown(seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(30)) << "it waited for the watcher";
  EXPECT_THAT(told.AwaitAway(kSoon), IsError(StatusCode::kUnavailable, ""));
  // What is stored while it is away is told by the next one.
  ServerOptions options = Options();
  options.grpc_address = address;
  server.reset();
  {
    auto store = Store::Open(db());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(store->SaveProfile(*ProfileFromProto(WithSlowAllToAlls("b", 4).profile())).ok());
  }
  const auto next = Started(std::move(options));
  const auto second = told.Next(kSoon);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->plan().profile_version(), 2);
  EXPECT_GT(second->held_time_s(), 0);
}

TEST_F(WatchTest, WithoutAProfileTheWatchEndsWithWhatToDo) {
  const auto server = Started();
  Told told;
  const client::PlanWatch watch(OptionsOf(*server, told, 0.01));
  EXPECT_THAT(told.AwaitAway(kSoon), IsError(StatusCode::kNotFound, "profile"));
}

TEST_F(WatchTest, WhoeverMayNotPlanMayNotWatch) {
  const auto server = Started();
  {
    auto store = Store::Open(db());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(store->AddToken({.name = "eyes", .role = "read", .sha256 = HexDigestOf("secret")}).ok());
  }
  Told told;
  client::PlanWatchOptions options = OptionsOf(*server, told, 0.01);
  options.planner.token = "secret";
  // Tokens count within a tenth of a second; until then there is no profile.
  options.first_pause_s = 0.2;
  const client::PlanWatch watch(std::move(options));
  const auto until = std::chrono::steady_clock::now() + seconds(30);
  while (told.AwaitAway(kSoon).code() != StatusCode::kPermissionDenied && std::chrono::steady_clock::now() < until)
    continue;
  EXPECT_THAT(told.AwaitAway(kSoon), IsError(StatusCode::kPermissionDenied, "needs the role plan"));
}

TEST(ValidateWatchTest, NamesTheFieldThatCannotBeWatched) {
  v1::WatchPlanRequest good;
  *good.mutable_request() = ExamplePlanRequest();
  EXPECT_TRUE(ValidateWatch(good).ok());
  const auto refused = [&](const std::function<void(v1::WatchPlanRequest&)>& spoil) {
    v1::WatchPlanRequest request = good;
    spoil(request);
    return ValidateWatch(request);
  };
  EXPECT_THAT(refused([](auto& request) { request.clear_request(); }),
              IsError(StatusCode::kInvalidInput, "request.workload"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_request()->mutable_graph(); }),
              IsError(StatusCode::kInvalidInput, "request.graph"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_request()->mutable_profile(); }),
              IsError(StatusCode::kInvalidInput, "request.profile:"));
  EXPECT_THAT(refused([](auto& request) { request.mutable_request()->set_profile_version(1); }),
              IsError(StatusCode::kInvalidInput, "request.profileVersion"));
  for (const double gain : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(refused([&](auto& request) { request.set_min_gain(gain); }),
                IsError(StatusCode::kInvalidInput, "minGain"));
  }
  EXPECT_THAT(refused([](auto& request) { request.mutable_held(); }),
              IsError(StatusCode::kInvalidInput, "held.workload"));
}

}  // namespace
}  // namespace moeplan::service
