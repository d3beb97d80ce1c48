#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "handlers_fixture.h"
#include "models/fit/fit.h"
#include "planner/search/plan_layer.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/profiles.h"
#include "planner/service/handlers/put_profile.h"
#include "planner/service/handlers/put_samples.h"
#include "planner/service/plan_log.h"
#include "proto/convert/plan.h"
#include "proto/convert/samples.h"
#include "proto/convert/workload.h"

namespace moeplan::service {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// ---- Plan.

TEST_F(HandlersTest, PlanTakesTheProfileThatIsNamed) {
  v1::PutProfileRequest put = ExamplePutProfile("first");
  Put(put);
  put.set_request_id("second");
  put.mutable_profile()->set_name("other");
  Put(put);
  v1::PlanRequest request = ExamplePlanRequest();
  EXPECT_EQ(Plan(environment(), request, {})->profile_name(), "other");  // The newest of all.
  request.set_profile_name("two-nodes-of-eight");
  const auto named = Plan(environment(), request, {});
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->profile_name(), "two-nodes-of-eight");
  EXPECT_EQ(named->profile_version(), 1);
  request.set_profile_version(2);
  EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kNotFound, "no version 2 of profile"));
  request.set_profile_version(0);
  EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kInvalidInput, "profileVersion: found 0"));
}

TEST_F(HandlersTest, APlanWithAnOfferedProfileNeedsNoStoredOne) {
  v1::PlanRequest request = ExamplePlanRequest();
  *request.mutable_profile() = ContractMessage<v1::Profile>("profile.example.json");
  request.mutable_profile()->set_version(7);  // As `profile show` prints it: here it comes from a file.
  const auto response = Plan(environment(), request, {});
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_EQ(response->profile_version(), 0);
  EXPECT_EQ(response->profile_name(), "two-nodes-of-eight");
  request.set_profile_name("x");
  EXPECT_THAT(Plan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "profileName: found beside profile"));
  request.clear_profile_name();
  request.mutable_profile()->mutable_collectives(0)->set_group_size(0);
  EXPECT_THAT(Plan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "profile: collectives[0].groupSize"));
}

TEST_F(HandlersTest, TopCutsTheCandidatesAndZeroIsRefused) {
  Put(ExamplePutProfile("a"));
  v1::PlanRequest request = ExamplePlanRequest();
  EXPECT_GT(Plan(environment(), request, {})->candidates_size(), 2);
  request.set_top(2);
  EXPECT_EQ(Plan(environment(), request, {})->candidates_size(), 2);
  request.set_top(0);
  EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kInvalidInput, "top: found 0"));
}

// An all-to-all, what needs it, and a weight gradient that does not.
v1::PlanRequest GraphRequest() {
  v1::PlanRequest request;
  const Status status = ParseJson(R"({"graph": {"instructions": [
      {"id": "a", "op": "ALL_TO_ALL", "phase": "BACKWARD", "timeS": 6, "outputs": ["x"]},
      {"id": "y", "op": "MATMUL", "phase": "BACKWARD", "timeS": 2, "inputs": ["x"]},
      {"id": "dw", "op": "MATMUL", "phase": "BACKWARD", "timeS": 5, "weightGradient": true}]}})",
                                  "request", request);
  EXPECT_TRUE(status.ok()) << status.message();
  return request;
}

TEST_F(HandlersTest, AGraphWithEveryTimeNeedsNoProfile) {
  const auto response = Plan(environment(), GraphRequest(), {});
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_EQ(response->rules().lancet().unscheduled_time_s(), 13);
  EXPECT_EQ(response->rules().lancet().time_s(), 8);
  EXPECT_THAT(response->rules().lancet().order(), ElementsAre("a", "dw", "y"));
  EXPECT_EQ(response->profile_name(), "");
  EXPECT_FALSE(response->has_workload());
  EXPECT_FALSE(response->has_search());
  v1::PlanRequest cut = GraphRequest();
  cut.set_top(1);
  EXPECT_THAT(Plan(environment(), cut, {}),
              IsError(StatusCode::kInvalidInput, "top: found a value, expected none beside graph"));
}

TEST_F(HandlersTest, PassesOfAGraphCanBeLeftOut) {
  v1::PlanRequest request = GraphRequest();
  request.add_without(v1::LancetRule::WEIGHT_GRADIENTS);
  const auto response = Plan(environment(), request, {});
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_EQ(response->rules().lancet().time_s(), 13);
  EXPECT_THAT(response->rules().lancet().order(), ElementsAre("a", "y", "dw"));
  request.set_without(0, v1::LancetRule::PARTITION);
  EXPECT_EQ(Plan(environment(), request, {})->rules().lancet().time_s(), 8);
  request.set_without(0, v1::LancetRule::UNSPECIFIED);
  EXPECT_THAT(Plan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "without[0]: found 0, expected one of WEIGHT_GRADIENTS, PARTITION"));
  v1::PlanRequest of_layer = ExamplePlanRequest();
  of_layer.add_without(v1::LancetRule::PARTITION);
  EXPECT_THAT(Plan(environment(), of_layer, {}),
              IsError(StatusCode::kInvalidInput, "without: found a value, expected none beside workload"));
}

TEST_F(HandlersTest, AGraphIsPricedWithTheProfileOfTheRequest) {
  v1::PlanRequest request = GraphRequest();
  v1::Instruction& exchange = *request.mutable_graph()->mutable_instructions(0);
  exchange.clear_time_s();
  exchange.set_bytes(33554432);
  exchange.set_group_size(2);
  exchange.set_ranks_per_node(1);
  EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kNotFound, ""));
  Put(ExamplePutProfile("a"));
  const auto stored = Plan(environment(), request, {});
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  // Half of the bytes cross at 63 % of 25 GB/s: hidden behind dw, so that compute alone is left.
  const double exchange_s = 33554432 / 2 / (0.63 * 25e9);
  EXPECT_NEAR(stored->rules().lancet().unscheduled_time_s(), 7 + exchange_s, 1e-9);
  EXPECT_NEAR(stored->rules().lancet().time_s(), 7, 1e-9);
  EXPECT_EQ(stored->profile_version(), 1);
  *request.mutable_profile() = ContractMessage<v1::Profile>("profile.example.json");
  const auto offered = Plan(environment(), request, {});
  ASSERT_TRUE(offered.ok()) << offered.status().message();
  EXPECT_EQ(offered->rules().lancet().time_s(), stored->rules().lancet().time_s());
  EXPECT_EQ(offered->profile_version(), 0);
}

TEST_F(HandlersTest, ExtrapolatePredictsWhatTheProfileLacks) {
  v1::PlanRequest request = ExamplePlanRequest();
  v1::Profile& profile = *request.mutable_profile();
  profile = ContractMessage<v1::Profile>("profile.example.json");
  profile.mutable_collectives()->DeleteSubrange(3, 1);  // ALL_REDUCE, which only the baselines need.
  const auto without = Plan(environment(), request, {});
  EXPECT_FALSE(without->rules().has_parm());
  request.set_extrapolate(true);
  const auto response = Plan(environment(), request, {});
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_TRUE(response->rules().has_parm());
  EXPECT_THAT(response->warnings(), Contains(HasSubstr("ALL_REDUCE groupSize 8 ranksPerNode 8: not measured; "
                                                       "extrapolated from links, 90 % interval × ")));
  v1::PlanRequest graph = GraphRequest();
  graph.set_extrapolate(true);
  EXPECT_THAT(Plan(environment(), graph, {}),
              IsError(StatusCode::kInvalidInput, "extrapolate: found a value, expected none beside graph"));
}

TEST_F(HandlersTest, AWrongGraphIsRefusedByInstruction) {
  v1::PlanRequest request = GraphRequest();
  request.mutable_graph()->mutable_instructions(1)->set_id("a");
  EXPECT_THAT(Plan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "instructions[1] (a).id: found an id that instructions[0] (a) has"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Plan(environment(), GraphRequest(), stop.get_token()), IsError(StatusCode::kCancelled, ""));
}

TEST_F(HandlersTest, EitherALayerOrAGraphIsPlanned) {
  v1::PlanRequest request;
  EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kInvalidInput, "workload: found nothing"));
  request.mutable_graph();
  request.mutable_workload();
  EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kInvalidInput, "graph: found beside workload"));
}

TEST_F(HandlersTest, BudgetAndTimeLimitAreChecked) {
  Put(ExamplePutProfile("a"));
  v1::PlanRequest request = ExamplePlanRequest();
  request.set_budget_nodes(0);
  EXPECT_THAT(Plan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "budgetNodes: found 0, expected at least 1"));
  request.set_budget_nodes(std::numeric_limits<int>::max());
  EXPECT_THAT(Plan(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "budgetNodes: found 2147483647, expected at most 10000000"));
  request.set_budget_nodes(1);
  for (const double limit_s : {0.0, -1.0, std::nan(""), 1e9}) {
    request.set_time_limit_s(limit_s);
    EXPECT_THAT(Plan(environment(), request, {}), IsError(StatusCode::kInvalidInput, "timeLimitS: found"));
  }
  request.set_time_limit_s(3600);
  const auto answer = Plan(environment(), request, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->search().stop_reason(), v1::Search::PROVED_BEST);
}

TEST_F(HandlersTest, OutOfTimeTheRulesStillAnswer) {
  Put(ExamplePutProfile("a"));
  v1::PlanRequest request = ExamplePlanRequest();
  request.set_time_limit_s(1e-9);
  const auto answer = Plan(environment(), request, {});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_TRUE(answer->rules().has_parm());
}

TEST_F(HandlersTest, ACancelledPlanStopsTheSearch) {
  Put(ExamplePutProfile("a"));
  std::stop_source stop;
  stop.request_stop();
  const auto response = Plan(environment(), ExamplePlanRequest(), stop.get_token());
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->search().stop_reason(), v1::Search::CANCELLED);
}

// ---- Listing.

TEST_F(HandlersTest, PagesListEveryVersionOnceNewestFirst) {
  for (int i = 0; i < 5; ++i) {
    v1::PutProfileRequest put = ExamplePutProfile("put " + std::to_string(i));
    put.mutable_profile()->set_name(i % 2 == 0 ? "even" : "odd");
    put.mutable_profile()->mutable_cluster()->set_device_memory_bytes(1e9 + i);
    Put(put);
  }
  const auto all_pages = [&](v1::ListProfilesRequest request) {
    std::vector<std::string> found;
    do {
      const auto page = ListProfiles(environment(), request, {});
      EXPECT_TRUE(page.ok()) << page.status().message();
      if (!page.ok()) break;
      for (const auto& profile : page->profiles()) {
        found.push_back(profile.name() + std::to_string(profile.version()));
        EXPECT_THAT(profile.created_at(), SizeIs(20));
      }
      EXPECT_LE(page->profiles_size(), request.page_size());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    return found;
  };
  v1::ListProfilesRequest request;
  request.set_page_size(2);
  EXPECT_THAT(all_pages(request), ElementsAre("even3", "odd2", "even2", "odd1", "even1"));
  request.set_profile_name("odd");
  request.set_page_size(1);
  EXPECT_THAT(all_pages(request), ElementsAre("odd2", "odd1"));
  request.set_newest(true);
  EXPECT_THAT(all_pages(request), ElementsAre("odd2"));
  request.clear_profile_name();
  EXPECT_THAT(all_pages(request), ElementsAre("even3", "odd2"));
  request.set_profile_name("none");
  EXPECT_THAT(all_pages(request), IsEmpty());
}

TEST_F(HandlersTest, PageSizeHasADefaultAndLimits) {
  v1::ListProfilesRequest request;
  EXPECT_TRUE(ListProfiles(environment(), request, {}).ok());
  request.set_page_size(-1);
  EXPECT_THAT(ListProfiles(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "pageSize: found -1, expected 1 to 1000"));
  request.set_page_size(1001);
  EXPECT_THAT(ListProfiles(environment(), request, {}), IsError(StatusCode::kInvalidInput, "found 1001"));
  request.set_page_size(1);
  request.set_page_token("not mine");
  EXPECT_THAT(ListProfiles(environment(), request, {}), IsError(StatusCode::kInvalidInput, "pageToken"));
}

TEST_F(HandlersTest, GetProfileGivesBackWhatWasPut) {
  const v1::PutProfileRequest put = ExamplePutProfile("a");
  Put(put);
  const auto got = GetProfile(environment(), {}, {});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->profile().version(), 1);
  EXPECT_THAT(got->profile().created_at(), SizeIs(20));
  v1::Profile unstamped = got->profile();
  unstamped.set_version(0);
  unstamped.clear_created_at();
  EXPECT_EQ(ToJson(unstamped), ToJson(ToProto(*ProfileFromProto(put.profile()))));
}

// ---- PutProfile.

TEST_F(HandlersTest, ARetriedPutProfileAnswersTheSameAndStoresNothing) {
  v1::PutProfileRequest first = ExamplePutProfile("a"), second = ExamplePutProfile("b");
  second.mutable_profile()->mutable_cluster()->set_device_memory_bytes(1e9);
  EXPECT_EQ(Put(first), 1);
  EXPECT_EQ(Put(second), 2);
  EXPECT_EQ(Put(first), 1);
  EXPECT_EQ(Put(second), 2);
  Reopen();
  EXPECT_EQ(Put(second), 2);  // Still the newest.
  EXPECT_EQ(Versions(), 2);
}

TEST_F(HandlersTest, AnOlderProfileCanBeMadeTheNewestAgain) {
  v1::PutProfileRequest second = ExamplePutProfile("b");
  second.mutable_profile()->mutable_cluster()->set_device_memory_bytes(1e9);
  Put(ExamplePutProfile("a"));
  Put(second);
  EXPECT_EQ(Put(ExamplePutProfile("back to a")), 3);
}

TEST_F(HandlersTest, ARequestIdOfAnotherProfileIsRefused) {
  v1::PutProfileRequest request = ExamplePutProfile("a");
  Put(request);
  request.mutable_profile()->mutable_cluster()->set_device_memory_bytes(1e9);
  EXPECT_THAT(PutProfile(environment(), request, {}),
              IsError(StatusCode::kInvalidInput, "request 'a': brought another profile"));
  EXPECT_EQ(Versions(), 1);
}

TEST_F(HandlersTest, PutsNeedARequestIdAndAName) {
  EXPECT_THAT(PutProfile(environment(), ExamplePutProfile(""), {}),
              IsError(StatusCode::kInvalidInput, "requestId: found 0 bytes, expected 1 to 128"));
  EXPECT_THAT(PutSamples(environment(), GateSamples(std::string(129, 'x'), 1e-3), {}),
              IsError(StatusCode::kInvalidInput, "requestId: found 129 bytes"));
  EXPECT_EQ(Put(GateSamples(std::string(128, 'x'), 1e-3)), 1);
  v1::PutProfileRequest profile = ExamplePutProfile("a");
  profile.mutable_profile()->clear_name();
  EXPECT_THAT(PutProfile(environment(), profile, {}), IsError(StatusCode::kInvalidInput, "profile.name"));
  EXPECT_THAT(PutSamples(environment(), GateSamples("b", 1e-3, ""), {}),
              IsError(StatusCode::kInvalidInput, "samples.name"));
}

TEST_F(HandlersTest, APutWhoseCallerLeftStoresNothing) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(PutProfile(environment(), ExamplePutProfile("a"), stop.get_token()),
              IsError(StatusCode::kCancelled, "caller left"));
  EXPECT_THAT(PutSamples(environment(), GateSamples("b", 1e-3), stop.get_token()),
              IsError(StatusCode::kCancelled, "caller left"));
  EXPECT_EQ(Versions(), 0);
  EXPECT_EQ(store_->SamplesOf({}).status().code(), StatusCode::kNotFound);
}

TEST_F(HandlersTest, AStoreForReadingPlansButTakesNothing) {
  Put(ExamplePutProfile("a"));
  auto read_only = Store::OpenReadOnly(db());
  ASSERT_TRUE(read_only.ok());
  SampleWriter sample_writer(*read_only);
  const Environment environment = {.store = *read_only, .puts = *puts_, .sample_writer = sample_writer};
  EXPECT_TRUE(Plan(environment, ExamplePlanRequest(), {}).ok());
  EXPECT_THAT(PutSamples(environment, GateSamples("b", 1e-3), {}),
              IsError(StatusCode::kPermissionDenied, "opened for reading only"));
  v1::PutProfileRequest other = ExamplePutProfile("c");
  other.mutable_profile()->set_name("other");
  EXPECT_THAT(PutProfile(environment, other, {}), IsError(StatusCode::kPermissionDenied, "opened for reading only"));
}

// ---- Keeping plans.

TEST_F(HandlersTest, AKeptPlanIsKeptOnceAndReadsBack) {
  Put(ExamplePutProfile("a"));
  const v1::PlanResponse answer = *Plan(environment(), ExamplePlanRequest(), {});
  auto log = PlanLog::Open(db());
  ASSERT_TRUE(log.ok());
  EXPECT_TRUE(log->Keep(answer).ok());
  EXPECT_TRUE(log->Keep(answer).ok());
  const auto kept = store_->LoadPlan({1});
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ(kept->profile_name, "two-nodes-of-eight");
  EXPECT_EQ(kept->profile_version, 1);
  EXPECT_EQ(kept->answer, ToJson(answer, JsonStyle::kCompact));
  EXPECT_EQ(kept->workload, ToJson(answer.workload(), JsonStyle::kCompact));
  EXPECT_EQ(store_->LoadPlan({2}).status().code(), StatusCode::kNotFound);
}

TEST_F(HandlersTest, APlanThatCouldNotBeKeptIsKeptTheNextTime) {
  Put(ExamplePutProfile("a"));
  const v1::PlanResponse answer = *Plan(environment(), ExamplePlanRequest(), {});
  auto log = PlanLog::Open(db());
  ASSERT_TRUE(log.ok());
  {
    const HeldStore held(db());
    EXPECT_EQ(log->Keep(answer).status().code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(log->Keep(answer).ok());
  EXPECT_TRUE(store_->LoadPlan({1}).ok());
}

}  // namespace
}  // namespace moeplan::service
