// The planner's end of agents, by hand: no transport, and a clock that stands.
#include "planner/service/fleet/agent_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Outlet final : AgentOutlet {
  void Send(v1::AttachResponse message) override { sent.push_back(std::move(message)); }
  void End(const Status& why) override { ended = why; }

  std::vector<v1::AttachResponse> sent;
  std::optional<Status> ended;
};

class AgentHubTest : public testing::Test {
 protected:
  struct Connected {
    AgentNumber agent = 0;
    std::shared_ptr<Outlet> outlet = std::make_shared<Outlet>();
  };

  static v1::AgentRegistration Registration(int node, const std::string& instance) {
    v1::AgentRegistration agent;
    agent.set_name(StrCat("host-", node));
    agent.set_version(MOEPLAN_VERSION);
    agent.set_instance(instance);
    agent.set_cluster("c");
    agent.set_nodes(2);
    agent.set_node(node);
    agent.set_held_nodes(1);
    agent.set_ranks_per_node(2);
    agent.set_backend("host");
    return agent;
  }
  Connected Connect(int node, const std::string& instance = "one", const std::string& caller = "") {
    Connected connected;
    const auto agent = hub_.Attach(Registration(node, instance), caller, connected.outlet);
    EXPECT_TRUE(agent.ok()) << agent.status().message();
    if (agent.ok()) connected.agent = *agent;
    return connected;
  }
  static v1::AttachRequest Answer(int session, int rank, double time_s) {
    v1::AttachRequest message;
    message.mutable_answer()->set_session(session);
    message.mutable_answer()->set_rank(rank);
    message.mutable_answer()->mutable_reply()->mutable_measured()->add_time_s(time_s);
    return message;
  }
  void Pass(double time_s) {
    now_ += std::chrono::duration_cast<AgentRegistry::Moment::duration>(std::chrono::duration<double>(time_s));
  }

  AgentRegistry::Moment now_;
  std::vector<std::string> log_, claimed_;
  Status may_claim_;
  AgentHub hub_{{.registry = {.lost_after_s = 15},
                 .heartbeat_s = 5,
                 .log = [this](std::string_view line) { log_.emplace_back(line); },
                 .now = [this] { return now_; },
                 .may_claim = [this](const std::string&, const std::string&) { return may_claim_; },
                 .claim =
                     [this](const std::string& name, const std::string&) {
                       claimed_.push_back(name);
                       return OkStatus();
                     }}};
};

TEST_F(AgentHubTest, AnAgentIsWelcomedAndToldHowOftenToBeat) {
  const Connected agent = Connect(0);
  ASSERT_THAT(agent.outlet->sent, SizeIs(1));
  EXPECT_EQ(agent.outlet->sent[0].welcome().heartbeat_s(), 5);
  EXPECT_EQ(agent.outlet->sent[0].welcome().lost_after_s(), 15);
  hub_.Tick();
  ASSERT_THAT(agent.outlet->sent, SizeIs(2));
  EXPECT_TRUE(agent.outlet->sent[1].has_heartbeat());
}

TEST_F(AgentHubTest, CommandsGoToEachAgentForItsRanksAndAnswersComeBackByRank) {
  const Connected first = Connect(0), second = Connect(1);
  auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  EXPECT_EQ(ranks->links->nodes() * ranks->links->ranks_per_node(), 4);
  std::vector<v1::RankCommand> commands(4);
  for (int rank = 0; rank < 4; ++rank) commands[rank].mutable_start()->set_rank(rank);
  EXPECT_FALSE(ranks->links->Send(commands));
  EXPECT_FALSE(ranks->links->Send({commands.data(), 1}));
  ASSERT_THAT(second.outlet->sent, SizeIs(4));  // Welcome, start, one for each, one for all.
  const int session = second.outlet->sent[1].start_ranks().session();
  ASSERT_EQ(second.outlet->sent[2].order().commands_size(), 2);
  EXPECT_EQ(second.outlet->sent[2].order().commands(1).start().rank(), 3);
  EXPECT_EQ(second.outlet->sent[3].order().commands_size(), 1);

  EXPECT_THAT(ranks->links->Await(std::vector<bool>(4, true), {}), IsEmpty());
  EXPECT_TRUE(hub_.Receive(second.agent, Answer(session, 3, 0.5)).ok());
  EXPECT_TRUE(hub_.Receive(first.agent, Answer(session, 1, 0.25)).ok());
  EXPECT_THAT(ranks->links->Await(std::vector<bool>(4, true), {}), ElementsAre(1, 3));
  EXPECT_THAT(ranks->links->Await({true, false, true, true}, {}), ElementsAre(3));
  EXPECT_EQ(ranks->links->Receive(3)->measured().time_s(0), 0.5);
  EXPECT_EQ(ranks->links->Receive(3).status().code(), StatusCode::kUnavailable);

  ranks->links.reset();
  EXPECT_EQ(second.outlet->sent.back().stop_ranks().session(), session);
}

TEST_F(AgentHubTest, AnAnswerForARankOfAnotherAgentIsRefused) {
  const Connected first = Connect(0), second = Connect(1);
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  const Status refused = hub_.Receive(first.agent, Answer(1, 2, 1));
  EXPECT_EQ(refused, InvalidInput("answer.rank: found 2, expected 0 to 1"));
}

TEST_F(AgentHubTest, AnswersOfAnEarlierSessionAreDropped) {
  const Connected first = Connect(0), second = Connect(1);
  ASSERT_TRUE(hub_.StartRanks("c").ok());  // And ended.
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  EXPECT_TRUE(hub_.Receive(first.agent, Answer(1, 0, 1)).ok());
  EXPECT_THAT(ranks->links->Await(std::vector<bool>(4, true), {}), IsEmpty());
  EXPECT_TRUE(hub_.Receive(first.agent, Answer(2, 0, 1)).ok());
  EXPECT_THAT(ranks->links->Await(std::vector<bool>(4, true), {}), ElementsAre(0));
}

TEST_F(AgentHubTest, AnAgentOfAnotherClusterHasNoSayInASession) {
  const Connected first = Connect(0), second = Connect(1);
  v1::AgentRegistration other = Registration(0, "one");
  other.set_cluster("d");
  const auto stranger = hub_.Attach(other, "", std::make_shared<Outlet>());
  ASSERT_TRUE(stranger.ok());
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  EXPECT_TRUE(hub_.Receive(*stranger, Answer(1, 0, 1)).ok());
  v1::AttachRequest lost;
  lost.mutable_ranks_lost()->set_session(1);
  lost.mutable_ranks_lost()->set_rank(-1);
  EXPECT_TRUE(hub_.Receive(*stranger, lost).ok());
  EXPECT_THAT(ranks->links->Await(std::vector<bool>(4, true), {}), IsEmpty());
}

TEST_F(AgentHubTest, RanksAreLostWithTheirAgentAndOnTheirOwn) {
  const Connected first = Connect(0), second = Connect(1);
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  v1::AttachRequest killed;
  killed.mutable_ranks_lost()->set_session(1);
  killed.mutable_ranks_lost()->set_rank(1);
  killed.mutable_ranks_lost()->set_how("killed by signal 9");
  EXPECT_TRUE(hub_.Receive(first.agent, killed).ok());
  EXPECT_EQ(ranks->links->EndOf(1), "killed by signal 9 at agent host-0 (cluster c, node 0)");
  EXPECT_EQ(ranks->links->EndOf(0), "");
  hub_.Detach(second.agent, OkStatus());
  EXPECT_THAT(ranks->links->Await(std::vector<bool>(4, true), {}), ElementsAre(1, 2, 3));
  EXPECT_EQ(ranks->links->EndOf(3), "lost with agent host-1 (cluster c, node 1): it has disconnected");
  EXPECT_EQ(ranks->links->Receive(3).status().code(), StatusCode::kPeerLost);
  const auto unsent = ranks->links->Send(std::vector<v1::RankCommand>(1));
  ASSERT_TRUE(unsent.has_value());
  EXPECT_EQ(unsent->rank, 1);
  EXPECT_EQ(unsent->reached, 0) << "rank 0 owes no answer";
  EXPECT_EQ(unsent->why, PeerLost("its process was killed by signal 9 at agent host-0 (cluster c, node 0)"));
  EXPECT_EQ(hub_.StartRanks("c").status(), Unavailable("cluster c: node 1 has no agent"));
}

TEST_F(AgentHubTest, WhoIsRefusedAPlaceTakesNoName) {
  const Connected first = Connect(0);
  for (const auto& spoil : std::vector<std::function<void(v1::AgentRegistration&)>>{
           [](auto& agent) { agent.set_version("0"); }, [](auto& agent) { agent.set_node(0); },
           [](auto& agent) { agent.set_ranks_per_node(3); }, [](auto& agent) { agent.set_cluster("not a name"); }}) {
    v1::AgentRegistration refused = Registration(1, "two");
    spoil(refused);
    EXPECT_FALSE(hub_.Attach(refused, "", std::make_shared<Outlet>()).ok());
  }
  EXPECT_THAT(claimed_, ElementsAre("host-0"));
}

// That it is another's stays so, while a place may become free: an agent would try again for ever.
TEST_F(AgentHubTest, ANameOfAnotherIsRefusedBeforeItsPlace) {
  const Connected first = Connect(0);
  may_claim_ = PermissionDenied("another's");
  EXPECT_EQ(hub_.Attach(Registration(0, "two"), "", std::make_shared<Outlet>()).status().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(AgentHubTest, WhoComesToAHubThatEndsTakesNoName) {
  hub_.Shutdown();
  EXPECT_FALSE(hub_.Attach(Registration(0, "one"), "", std::make_shared<Outlet>()).ok());
  EXPECT_THAT(claimed_, IsEmpty());
}

TEST_F(AgentHubTest, WhatTheHubStatesIsToldByNobodyElse) {
  const Provenance of_hub = {{"launch", "agents"}, {"fleet", "c"}};
  EXPECT_THAT(WithFactsOfHub({{"launch", "own"}, {"nicBytesPerS", "1e30"}, {"gpu", "b"}}, of_hub),
              testing::UnorderedElementsAre(testing::Pair("launch", "agents"), testing::Pair("fleet", "c"),
                                            testing::Pair("gpu", "b")));
}

TEST_F(AgentHubTest, FactsOfAMachineAreNotTakenForThoseThatMoeplanReads) {
  v1::AgentRegistration agent = Registration(0, "one");
  agent.set_nodes(1);
  for (const char* const name : {"gpu", "agent", "linkBytesPerS", "nicBytesPerS", "launch", "fleet"}) {
    (*agent.mutable_hardware())[name] = "said";
  }
  ASSERT_TRUE(hub_.Attach(agent, "", std::make_shared<Outlet>()).ok());
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  EXPECT_THAT(ranks->provenance,
              testing::UnorderedElementsAre(testing::Pair("gpu", "said"), testing::Pair("launch", "agents"),
                                            testing::Pair("fleet", "c")));
}

TEST_F(AgentHubTest, AClusterHasOneSessionAtATime) {
  const Connected first = Connect(0), second = Connect(1);
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  EXPECT_THAT(hub_.StartRanks("c"), IsError(StatusCode::kUnavailable, "at work for another session"));
}

TEST_F(AgentHubTest, ASilentAgentIsGivenUpByTheClockThatDoesNotJump) {
  const Connected first = Connect(0), second = Connect(1);
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  Pass(10);
  v1::AttachRequest beat;
  *beat.mutable_heartbeat() = HeartbeatNow();
  EXPECT_TRUE(hub_.Receive(second.agent, beat).ok());
  Pass(6);
  hub_.Tick();
  ASSERT_TRUE(first.outlet->ended.has_value());
  EXPECT_EQ(first.outlet->ended->message(), "nothing was heard of the agent for 15 s");
  EXPECT_FALSE(second.outlet->ended.has_value());
  EXPECT_THAT(ranks->links->EndOf(0), HasSubstr("nothing was heard of the agent for 15 s"));
  EXPECT_EQ(hub_.Missing("c"), "cluster c: node 0 has no agent");
  EXPECT_THAT(log_.back(), HasSubstr("agent host-0 (cluster c, node 0) is lost"));
}

TEST_F(AgentHubTest, AnAgentThatConnectsAnewEndsItsOldConnectionAndItsRanks) {
  const Connected before = Connect(0), second = Connect(1);
  const auto ranks = hub_.StartRanks("c");
  ASSERT_TRUE(ranks.ok());
  const Connected after = Connect(0);
  ASSERT_TRUE(before.outlet->ended.has_value());
  EXPECT_THAT(ranks->links->EndOf(1), HasSubstr("the agent has connected anew"));
  EXPECT_EQ(ranks->links->EndOf(2), "");
  hub_.Detach(before.agent, OkStatus());  // Late news.
  EXPECT_EQ(hub_.Missing("c"), "");
}

TEST_F(AgentHubTest, AClockThatJumpsIsSaid) {
  const Connected agent = Connect(0);
  v1::AttachRequest beat;
  beat.mutable_heartbeat()->set_wall_s(1000);
  EXPECT_TRUE(hub_.Receive(agent.agent, beat).ok());
  beat.mutable_heartbeat()->set_wall_s(4600);
  EXPECT_TRUE(hub_.Receive(agent.agent, beat).ok());
  EXPECT_EQ(log_.back(),
            "agent host-0 (cluster c, node 0): its wall clock jumped by 3600 s; nothing here depends on it");
  EXPECT_EQ(hub_.List({})->agents(0).clock_jumps(), 1);
}

TEST_F(AgentHubTest, AShutdownEndsAllAndTakesNoMore) {
  const Connected agent = Connect(0);
  hub_.Shutdown();
  EXPECT_EQ(agent.outlet->ended->message(), "the planner shuts down");
  EXPECT_THAT(hub_.Attach(Registration(1, "x"), "", std::make_shared<Outlet>()),
              IsError(StatusCode::kUnavailable, "shuts down"));
}

}  // namespace
}  // namespace moeplan::service
