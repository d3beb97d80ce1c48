#include "agent/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/rank_session.h"
#include "executor/backends.h"
#include "executor/launch/frames.h"

namespace moeplan::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::MatchesRegex;
using ::testing::Pair;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  Pipe(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends) close(end);
  }
  int ends[2] = {-1, -1};  // Read, write.
};

// Ranks that have answered Start and Connect before they are asked.
class ScriptedLaunch final : public executor::Launch {
 public:
  explicit ScriptedLaunch(const std::vector<std::string>& host_of_rank)
      : commands_(host_of_rank.size()), replies_(host_of_rank.size()) {
    for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
      v1::RankReply started;
      (*started.mutable_started()->mutable_provenance())["hostname"] = host_of_rank[rank];
      EXPECT_TRUE(executor::WriteFrame(replies_[rank].ends[1], started.SerializeAsString()).ok());
      EXPECT_TRUE(executor::WriteFrame(replies_[rank].ends[1], v1::RankReply().SerializeAsString()).ok());
    }
  }

  // The same on one host, where each rank says what its links do: inside its node, and over the network.
  explicit ScriptedLaunch(const std::vector<std::pair<double, double>>& rates)
      : commands_(rates.size()), replies_(rates.size()) {
    for (size_t rank = 0; rank < rates.size(); ++rank) {
      v1::RankReply started;
      started.mutable_started()->set_node_link_bytes_per_s(rates[rank].first);
      started.mutable_started()->set_network_bytes_per_s(rates[rank].second);
      EXPECT_TRUE(executor::WriteFrame(replies_[rank].ends[1], started.SerializeAsString()).ok());
      EXPECT_TRUE(executor::WriteFrame(replies_[rank].ends[1], v1::RankReply().SerializeAsString()).ok());
    }
  }

  int nodes() const override { return 1; }
  int ranks_per_node() const override { return static_cast<int>(replies_.size()); }
  int WriteFd(int rank) const override { return commands_[rank].ends[1]; }
  int ReadFd(int rank) const override { return replies_[rank].ends[0]; }
  void Answer(int rank, const v1::RankReply& reply = {}) {
    EXPECT_TRUE(executor::WriteFrame(replies_[rank].ends[1], reply.SerializeAsString()).ok());
  }
  std::string EndOf(int) override { return ""; }
  int ProcessOf(int) const override { return 0; }

 private:
  std::vector<Pipe> commands_, replies_;
};

Provenance ProvenanceOf(const std::vector<std::string>& host_of_rank, const FleetOptions& options = {}) {
  const auto fleet = Fleet::Start(std::make_unique<ScriptedLaunch>(host_of_rank), options);
  EXPECT_TRUE(fleet.ok()) << fleet.status().message();
  return fleet.ok() ? fleet->provenance() : Provenance{};
}

TEST(FleetTest, RanksOnSeveralHostsAreAllNamedEachOnce) {
  EXPECT_THAT(ProvenanceOf({"b", "a", "b", "a"}), ElementsAre(Pair("hostname", "b"), Pair("hosts", "b, a")));
  EXPECT_THAT(ProvenanceOf({"b", "b"}), ElementsAre(Pair("hostname", "b")));
}

TEST(FleetTest, WhatTheCallerKnowsOfTheLaunchIsProvenanceToo) {
  EXPECT_THAT(ProvenanceOf({"a"}, {.provenance = {{"launch", "local"}}}),
              ElementsAre(Pair("hostname", "a"), Pair("launch", "local")));
}

TEST(FleetTest, TheRatesOfLinksAreThoseOfTheFastestRankWhereAllAreKnown) {
  using Rates = std::vector<std::pair<double, double>>;
  const auto cluster_of = [](const Rates& rates, const FleetOptions& options = {}) {
    const auto fleet = Fleet::Start(std::make_unique<ScriptedLaunch>(rates), options);
    EXPECT_TRUE(fleet.ok()) << fleet.status().message();
    return fleet.ok() ? std::pair(fleet->cluster().node_link_bytes_per_s, fleet->cluster().network_bytes_per_s)
                      : std::pair(-1.0, -1.0);
  };
  EXPECT_EQ(cluster_of({{4e11, 5e10}, {3e11, 6e10}}), std::pair(4e11, 6e10));
  EXPECT_EQ(cluster_of({{4e11, 5e10}, {0, 6e10}}), std::pair(0.0, 6e10));
  EXPECT_EQ(cluster_of({{4e11, 1e300}, {4e11, 1e300}}), std::pair(4e11, 0.0)) << "of no machine";
  EXPECT_EQ(cluster_of({{0, 0}}, {.network_bytes_per_s = 2.5e7}), std::pair(0.0, 2.5e7));
}

// A rank may stop between the last collective of a command, which its peers finish, and its answer.
TEST(FleetTest, ARankThatStaysSilentAfterItsPeersIsNamedWithWhatWasAskedSoonAfterThem) {
  auto launch = std::make_unique<ScriptedLaunch>(std::vector<std::string>{"a", "a", "a"});
  ScriptedLaunch& ranks = *launch;
  auto fleet = Fleet::Start(std::move(launch), {.collective_deadline_s = 0.05});
  ASSERT_TRUE(fleet.ok()) << fleet.status().message();
  ranks.Answer(0);
  ranks.Answer(2);
  const Status late = fleet->CallInStep({}, "measure ALL_TO_ALL of 65536 bytes", /*timeout_s=*/600).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(),
            "rank 1 did not answer within 0.05 s of the first rank that did: measure ALL_TO_ALL of 65536 bytes");
}

v1::RankReply Late(const std::string& message) {
  v1::RankReply reply;
  reply.mutable_error()->set_code(static_cast<int>(StatusCode::kDeadlineExceeded));
  reply.mutable_error()->set_message(message);
  return reply;
}

// Rank 1 hangs; rank 2 waits for it and rank 0 for rank 2.
TEST(FleetTest, TheRankThatHangsIsNamedRatherThanTheOneItHoldsUp) {
  auto launch = std::make_unique<ScriptedLaunch>(std::vector<std::string>{"a", "a", "a"});
  ScriptedLaunch& ranks = *launch;
  auto fleet = Fleet::Start(std::move(launch));
  ASSERT_TRUE(fleet.ok()) << fleet.status().message();
  ranks.Answer(0, Late("rank 2 did not answer in time"));
  ranks.Answer(2, Late("rank 1 did not answer in time"));
  const Status late = fleet->CallInStep({}, "run PARM_S2", /*timeout_s=*/600).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "run PARM_S2: no answer from rank 1 (rank 0: rank 2 did not answer in time)");
}

TEST(RankSessionTest, ARankSaysWhereItRunsAndWhatItIsBuiltOf) {
  v1::RankCommand command;
  command.mutable_start()->set_nodes(1);
  command.mutable_start()->set_ranks_per_node(1);
  command.mutable_start()->set_deadline_s(5);
  command.mutable_start()->set_backend("host");
  const v1::RankReply reply = RankSession::Make("127.0.0.1", executor::FindBackend)->Handle(command);
  ASSERT_TRUE(reply.has_started()) << reply.error().message();
  const auto& sent = reply.started().provenance();
  const Provenance facts(sent.begin(), sent.end());
  EXPECT_THAT(facts, IsSupersetOf({Key("backend"), Key("hostname"), Key("kernel"), Key("processors")}));
  EXPECT_THAT(facts, IsSupersetOf({Pair("moeplan", MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")),
                                   Pair("compiler", MatchesRegex("(GCC|Clang) [0-9]+\\..*")),
                                   Pair("gloo", MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")),
                                   Pair("gemm", MatchesRegex("(OpenBLAS|Eigen) [0-9]+\\..*"))}));
}

TEST(RankSessionTest, AnUnknownBackendIsRefusedByName) {
  v1::RankCommand command;
  command.mutable_start()->set_nodes(1);
  command.mutable_start()->set_ranks_per_node(1);
  command.mutable_start()->set_backend("abacus");
  const v1::RankReply reply = RankSession::Make("127.0.0.1", executor::FindBackend)->Handle(command);
  EXPECT_EQ(reply.error().code(), static_cast<int>(StatusCode::kInvalidInput));
  EXPECT_EQ(reply.error().message(), "backend: found abacus, expected host or cuda");
}

}  // namespace
}  // namespace moeplan::agent
