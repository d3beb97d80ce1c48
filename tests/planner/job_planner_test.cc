#include "planner/client/job_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "models/text.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using testing::HasSubstr;

class JobPlannerTest : public ServiceTest {
 protected:
  client::JobPlannerOptions For(const std::string& address) {
    return {.planner = {.address = address, .deadline_s = 5},
            .cluster = {.nodes = 2, .gpus_per_node = 8},
            .folder = db().parent_path() / "kept",
            .retry_after_s = 10,
            .now = [this] { return now_; }};
  }
  std::unique_ptr<Server> StartedWithProfile(const ServerOptions& options) {
    auto server = Started(options);
    EXPECT_TRUE(ClientOf(*server)->PutProfile(ExamplePutProfile("a")).ok());
    return server;
  }
  std::unique_ptr<Server> StartedWithProfile() { return StartedWithProfile(Options()); }

  std::chrono::steady_clock::time_point now_;
};

TEST_F(JobPlannerTest, WithoutThePlannerTheKeptPlanIsUsedAndWithoutThatTheBaseline) {
  auto server = StartedWithProfile();
  const std::string address = server->grpc_address();
  client::JobPlanner planner(For(address));
  v1::PlanRequest known = ExamplePlanRequest(), unknown = ExamplePlanRequest();
  unknown.mutable_workload()->mutable_layer()->set_batch(2);
  const auto asked = planner.Plan(known);
  ASSERT_TRUE(asked.ok()) << asked.status().message();
  EXPECT_EQ(asked->origin, client::PlanOrigin::kPlanner);
  EXPECT_EQ(asked->why, "");
  server.reset();

  const auto kept = planner.Plan(known);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->origin, client::PlanOrigin::kKept);
  EXPECT_EQ(kept->answer.SerializeAsString(), asked->answer.SerializeAsString());
  EXPECT_EQ(kept->answered_at.size(), 20u);
  EXPECT_THAT(kept->why, HasSubstr(StrCat("no planner answers at ", address)));

  const auto baseline = planner.Plan(unknown);
  ASSERT_TRUE(baseline.ok()) << baseline.status().message();
  EXPECT_EQ(baseline->origin, client::PlanOrigin::kBaseline);
  EXPECT_EQ(baseline->answer.best().schedule(), v1::Schedule::BASELINE_TP) << "the example has ESP = MP";
  EXPECT_EQ(baseline->answer.workload().layer().batch(), 2);
  EXPECT_EQ(baseline->answer.best().chunks(), 1);

  // Another job of the same folder.
  EXPECT_EQ(client::JobPlanner(For(address)).Plan(known)->origin, client::PlanOrigin::kKept);
}

TEST_F(JobPlannerTest, AfterAFailureThePlannerIsLeftAloneForAWhileAndThenAsked) {
  auto server = StartedWithProfile();
  const std::string address = server->grpc_address();
  client::JobPlanner planner(For(address));
  ASSERT_EQ(planner.Plan(ExamplePlanRequest())->origin, client::PlanOrigin::kPlanner);
  server.reset();
  ASSERT_EQ(planner.Plan(ExamplePlanRequest())->origin, client::PlanOrigin::kKept);
  ServerOptions again = Options();
  again.grpc_address = address;
  server = StartedWithProfile(again);
  now_ += std::chrono::milliseconds(9999);
  EXPECT_EQ(planner.Plan(ExamplePlanRequest())->origin, client::PlanOrigin::kKept);
  now_ += std::chrono::milliseconds(1);
  EXPECT_EQ(planner.Plan(ExamplePlanRequest())->origin, client::PlanOrigin::kPlanner);
}

TEST_F(JobPlannerTest, AWrongQuestionIsAnErrorWithAndWithoutAPlanner) {
  v1::PlanRequest wrong = ExamplePlanRequest();
  wrong.mutable_workload()->mutable_layer()->set_top_k(-1);
  const auto server = StartedWithProfile();
  EXPECT_THAT(client::JobPlanner(For(server->grpc_address())).Plan(wrong),
              IsError(StatusCode::kInvalidInput, "layer.topK"));
  EXPECT_THAT(client::JobPlanner(For("127.0.0.1:1")).Plan(wrong), IsError(StatusCode::kInvalidInput, "layer.topK"));
}

TEST_F(JobPlannerTest, APlannerThatHangsCostsTheDeadlineOnce) {
  ServerOptions options = Options();
  options.workers = 1;
  options.store_busy_timeout = std::chrono::minutes(2);
  const auto server = Started(options);
  ASSERT_TRUE(ClientOf(*server)->PutProfile(ExamplePutProfile("a")).ok());
  auto held = std::make_unique<HeldStore>(db());
  while (server->calls_in_progress() > 0) std::this_thread::yield();  // What is answered still counts for a moment.
  std::jthread blocker([&] { (void)ClientOf(*server, 10)->PutSamples(GateSamples("b", 1e-3)); });
  while (server->calls_in_progress() == 0) std::this_thread::yield();
  client::JobPlannerOptions job = For(server->grpc_address());
  job.planner.deadline_s = 0.3;
  client::JobPlanner planner(job);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(planner.Plan(ExamplePlanRequest())->origin, client::PlanOrigin::kBaseline);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3)) << "twenty deadlines would be six";
  held.reset();
}

TEST_F(JobPlannerTest, ACertificateThatIsNotThereStopsNoJob) {
  client::JobPlannerOptions options = For("127.0.0.1:1");
  options.planner.tls_authority = "/no/such/ca.pem";
  const auto plan = client::JobPlanner(options).Plan(ExamplePlanRequest());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->origin, client::PlanOrigin::kBaseline);
  EXPECT_THAT(plan->why, HasSubstr("--tls-ca"));
}

TEST_F(JobPlannerTest, ADamagedFileIsNoPlan) {
  {
    const auto server = StartedWithProfile();
    ASSERT_TRUE(client::JobPlanner(For(server->grpc_address())).Plan(ExamplePlanRequest()).ok());
  }
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(db().parent_path() / "kept")) {
    std::ofstream(file.path()) << "{\"request\": {";
    ++files;
  }
  EXPECT_EQ(files, 1) << "no unfinished file is left";
  EXPECT_EQ(client::JobPlanner(For("127.0.0.1:1")).Plan(ExamplePlanRequest())->origin, client::PlanOrigin::kBaseline);
}

}  // namespace
}  // namespace moeplan::service
