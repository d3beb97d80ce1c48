#include "planner/service/fleet/agent_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "models/text.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Seconds since the test began; the registry looks at no clock.
AgentRegistry::Moment At(double time_s) {
  return AgentRegistry::Moment(
      std::chrono::duration_cast<AgentRegistry::Moment::duration>(std::chrono::duration<double>(time_s)));
}

v1::AgentRegistration AgentOn(int node, const std::string& instance, int nodes = 2) {
  v1::AgentRegistration agent;
  agent.set_name(StrCat("host-", node));
  agent.set_version("1.0.0");
  agent.set_instance(instance);
  agent.set_cluster("c");
  agent.set_nodes(nodes);
  agent.set_node(node);
  agent.set_held_nodes(1);
  agent.set_ranks_per_node(4);
  agent.set_backend("host");
  return agent;
}

class AgentRegistryTest : public testing::Test {
 protected:
  AgentNumber Register(const v1::AgentRegistration& agent, double time_s = 0) {
    const auto registered = registry_.Register(agent, caller_, At(time_s));
    EXPECT_TRUE(registered.ok()) << registered.status().message();
    return registered.ok() ? registered->agent : 0;
  }
  v1::AgentStatus StatusOf(int node, double time_s = 0) const {
    const auto listed = registry_.List({}, At(time_s));
    EXPECT_TRUE(listed.ok());
    for (const v1::AgentStatus& status : listed->agents()) {
      if (status.registration().node() == node) return status;
    }
    return {};
  }
  std::optional<double> Beat(AgentNumber agent, double wall_s, double steady_s) {
    v1::Heartbeat heartbeat;
    heartbeat.set_wall_s(wall_s);
    heartbeat.set_steady_s(steady_s);
    return registry_.Heartbeat(agent, heartbeat);
  }

  std::string caller_;
  AgentRegistry registry_{{.version = "1.0.0", .lost_after_s = 15, .clock_jump_s = 2, .most_agents = 3}};
};

TEST_F(AgentRegistryTest, AClusterIsWholeWhenEveryNodeHasALiveAgent) {
  EXPECT_EQ(registry_.Missing("c"), "cluster c: no node has an agent");
  (void)Register(AgentOn(1, "b"));
  EXPECT_EQ(registry_.Missing("c"), "cluster c: node 0 has no agent");
  const AgentNumber first = Register(AgentOn(0, "a"));
  EXPECT_EQ(registry_.Missing("c"), "");
  registry_.Lose(first, "it has disconnected");
  EXPECT_EQ(registry_.Missing("c"), "cluster c: node 0 has no agent");
  EXPECT_EQ(StatusOf(0).state(), v1::AgentStatus::LOST);
  EXPECT_EQ(StatusOf(0).lost_because(), "it has disconnected");
}

TEST_F(AgentRegistryTest, AnAgentMayHoldSeveralNodes) {
  v1::AgentRegistration agent = AgentOn(1, "a", /*nodes=*/4);
  agent.set_held_nodes(2);
  (void)Register(agent);
  EXPECT_EQ(registry_.Missing("c"), "cluster c: nodes 0, 3 have no agent");
  EXPECT_THAT(registry_.Register(AgentOn(2, "b", 4), caller_, At(0)), IsError(StatusCode::kUnavailable, "host-2"));
}

TEST_F(AgentRegistryTest, ASecondLiveAgentOfANodeIsRefusedAndBothAreNamed) {
  (void)Register(AgentOn(0, "one"));
  v1::AgentRegistration second = AgentOn(0, "two");
  second.set_name("other");
  EXPECT_THAT(registry_.Register(second, caller_, At(1)), IsError(StatusCode::kUnavailable,
                                                                  "cluster c: found agent other (node 0) beside agent "
                                                                  "host-0 (node 0), which is live"));
}

TEST_F(AgentRegistryTest, AnotherCallerTakesNoPlaceThoughItKnowsTheInstance) {
  caller_ = "token west";
  const AgentNumber agent = Register(AgentOn(0, "one"));
  caller_ = "token thief";
  EXPECT_THAT(registry_.Register(AgentOn(0, "one"), caller_, At(1)),
              IsError(StatusCode::kUnavailable, "beside agent host-0 (node 0), which is live"));
  caller_ = "";
  EXPECT_FALSE(registry_.Register(AgentOn(0, "one"), caller_, At(1)).ok());
  EXPECT_NE(registry_.Find(agent), nullptr);
  caller_ = "token west";
  EXPECT_NE(Register(AgentOn(0, "one")), agent);
}

TEST_F(AgentRegistryTest, AnotherCallerTakesNoPlaceBySayingThatItHoldsSeveralNodes) {
  caller_ = "token west";
  const AgentNumber agent = Register(AgentOn(1, "one"));
  caller_ = "token thief";
  Register(AgentOn(0, "two"));
  v1::AgentRegistration wide = AgentOn(0, "two");
  wide.set_held_nodes(2);
  EXPECT_THAT(registry_.Register(wide, caller_, At(1)),
              IsError(StatusCode::kUnavailable, "beside agent host-1 (node 1), which is live"));
  ASSERT_NE(registry_.Find(agent), nullptr);
  EXPECT_TRUE(registry_.Find(agent)->live);
}

TEST_F(AgentRegistryTest, NobodyIsToldAnInstance) {
  (void)Register(AgentOn(0, "secret"));
  EXPECT_EQ(StatusOf(0).registration().instance(), "");
  const auto refused = registry_.Register(AgentOn(0, "other"), caller_, At(1));
  EXPECT_EQ(refused.status().message().find("secret"), std::string::npos) << refused.status().message();
}

TEST_F(AgentRegistryTest, ARestartedAgentTakesThePlaceOfItsDeadPredecessor) {
  const AgentNumber dead = Register(AgentOn(0, "one"));
  registry_.Lose(dead, "gone");
  const auto registered = registry_.Register(AgentOn(0, "two"), caller_, At(1));
  ASSERT_TRUE(registered.ok()) << registered.status().message();
  EXPECT_EQ(registered->replaced, 0);
  EXPECT_EQ(registry_.Find(dead), nullptr);
}

TEST_F(AgentRegistryTest, AnAgentThatConnectsAgainTakesItsOwnPlace) {
  const AgentNumber before = Register(AgentOn(0, "one"));
  const auto registered = registry_.Register(AgentOn(0, "one"), caller_, At(1));
  ASSERT_TRUE(registered.ok()) << registered.status().message();
  EXPECT_EQ(registered->replaced, before);
  EXPECT_NE(registered->agent, before);
  registry_.Lose(before, "late news of the old connection");
  EXPECT_EQ(StatusOf(0).state(), v1::AgentStatus::LIVE);
}

TEST_F(AgentRegistryTest, AnotherVersionIsRefusedWithBoth) {
  v1::AgentRegistration agent = AgentOn(0, "a");
  agent.set_version("0.9.0");
  EXPECT_THAT(registry_.Register(agent, caller_, At(0)),
              IsError(StatusCode::kInfeasible, "agent host-0 is of version 0.9.0 and this planner of version 1.0.0"));
}

TEST_F(AgentRegistryTest, AgentsOfAClusterAgreeOnItsShape) {
  const AgentNumber first = Register(AgentOn(0, "a"));
  v1::AgentRegistration other = AgentOn(1, "b");
  other.set_ranks_per_node(8);
  EXPECT_THAT(registry_.Register(other, caller_, At(0)),
              IsError(StatusCode::kUnavailable,
                      "found 2 nodes of 8 ranks on backend host at agent host-1, expected 2 "
                      "nodes of 4 ranks on backend host as at the live agent host-0"));
  registry_.Lose(first, "gone");
  (void)Register(other);  // Nobody live says otherwise.
}

TEST_F(AgentRegistryTest, SilenceIsCountedFromTheLastThingHeard) {
  const AgentNumber first = Register(AgentOn(0, "a"), /*time_s=*/0);
  const AgentNumber second = Register(AgentOn(1, "b"), /*time_s=*/10);
  EXPECT_THAT(registry_.Silent(At(15)), ElementsAre());
  EXPECT_THAT(registry_.Silent(At(15.1)), ElementsAre(first));
  registry_.Heard(first, At(15));
  EXPECT_THAT(registry_.Silent(At(25.1)), ElementsAre(second));
  EXPECT_DOUBLE_EQ(StatusOf(0, 25).silent_s(), 10);
  registry_.Lose(second, "silent");
  EXPECT_THAT(registry_.Silent(At(26)), ElementsAre());
}

TEST_F(AgentRegistryTest, AWallClockThatLeavesTheSteadyOneJumped) {
  const AgentNumber agent = Register(AgentOn(0, "a"));
  EXPECT_EQ(Beat(agent, 1000, 50), std::nullopt);
  EXPECT_EQ(Beat(agent, 1005.5, 55), std::nullopt) << "half a second is drift";
  // An hour forward between heartbeats that are 5 s apart, whenever they came in.
  EXPECT_EQ(Beat(agent, 4610.5, 60), std::optional(3600.0));
  EXPECT_EQ(Beat(agent, 4615.5, 65), std::nullopt);
  EXPECT_EQ(Beat(agent, 1015.5, 65), std::optional(-3600.0));
  EXPECT_EQ(StatusOf(0).clock_jumps(), 2);
  EXPECT_DOUBLE_EQ(StatusOf(0).last_clock_jump_s(), -3600);
  EXPECT_EQ(StatusOf(0).state(), v1::AgentStatus::LIVE);
  EXPECT_EQ(Beat(agent, std::numeric_limits<double>::infinity(), 70), std::nullopt);
}

TEST_F(AgentRegistryTest, JumpsAreRememberedWhenTheAgentConnectsAgain) {
  const AgentNumber before = Register(AgentOn(0, "a"));
  (void)Beat(before, 1000, 50);
  registry_.Lose(before, "gone");
  const AgentNumber after = Register(AgentOn(0, "a"));
  EXPECT_EQ(Beat(after, 1105, 55), std::optional(100.0));
}

TEST_F(AgentRegistryTest, TheOldestLostAgentMakesRoom) {
  const AgentNumber lost = Register(AgentOn(0, "a", /*nodes=*/9), 1);
  registry_.Lose(lost, "gone");
  for (const int node : {1, 2, 3}) (void)Register(AgentOn(node, "x", 9), 2);
  EXPECT_EQ(registry_.Find(lost), nullptr);
  EXPECT_THAT(registry_.Register(AgentOn(4, "x", 9), caller_, At(3)),
              IsError(StatusCode::kUnavailable, "has 3 agents"));
}

TEST_F(AgentRegistryTest, PagesGoOnWhereTheyEnded) {
  for (const int node : {2, 0, 1}) (void)Register(AgentOn(node, "x", 3));
  v1::ListAgentsRequest request;
  request.set_page_size(2);
  const auto first = registry_.List(request, At(0));
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(first->agents_size(), 2);
  request.set_page_token(first->next_page_token());
  const auto second = registry_.List(request, At(0));
  ASSERT_TRUE(second.ok());
  ASSERT_EQ(second->agents_size(), 1);
  EXPECT_EQ(second->agents(0).registration().node(), 2);
  EXPECT_EQ(second->next_page_token(), "");
  request.set_page_token("x");
  EXPECT_THAT(registry_.List(request, At(0)), IsError(StatusCode::kInvalidInput, "pageToken: found x"));
  request.set_page_size(1001);
  EXPECT_THAT(registry_.List(request, At(0)), IsError(StatusCode::kInvalidInput, "pageSize: found 1001"));
}

TEST(ValidateRegistrationTest, EveryFieldIsNamed) {
  const auto complaint = [](const auto& change) {
    v1::AgentRegistration agent = AgentOn(0, "a");
    change(agent);
    return ValidateRegistration(agent);
  };
  using A = v1::AgentRegistration;
  const auto is = [](const std::string& text) { return IsError(StatusCode::kInvalidInput, text); };
  const auto status = [](Status s) { return StatusOr<int>(std::move(s)); };
  EXPECT_TRUE(complaint([](A&) {}).ok());
  EXPECT_THAT(status(complaint([](A& a) { a.set_name("a b"); })), is("name: found 'a b'"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_cluster(std::string(65, 'x')); })), is("cluster: found"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_instance(""); })), is("instance: found ''"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_nodes(5000); })), is("nodes: found 5000"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_node(2); })), is("node: found 2, expected 0 to 1"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_held_nodes(3); })), is("heldNodes: found 3, expected 1 to 2"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_ranks_per_node(0); })), is("ranksPerNode: found 0"));
  EXPECT_THAT(status(complaint([](A& a) { a.set_nic_bytes_per_s(std::nan("")); })), is("nicBytesPerS: found nan"));
  EXPECT_THAT(status(complaint([](A& a) { (*a.mutable_hardware())["x"] = std::string(300, 'y'); })),
              is("hardware.x: found a longer text"));
}

}  // namespace
}  // namespace moeplan::service
