// All-to-all algorithms. First as pure functions, played in memory over every small shape of group and compared with
// what an all-to-all is: block r of everybody to rank r. Then as ranks run them, on every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "executor/all_to_all/phased_all_to_all.h"
#include "executor/host/host_stream.h"
#include "models/all_to_all/algorithm.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using testing::Program;
using testing::Rank;
using testing::Round;
using Bytes = std::vector<std::byte>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- What everybody sends.

// The blocks of a group; those of one sender are alike for `dump` consecutive receivers.
class Blocks {
 public:
  Blocks(int ranks, int dump, const std::function<int(int from, int to)>& bytes) : ranks_(ranks), dump_(dump) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) bytes_.push_back(bytes(from, to / dump * dump));
    }
  }

  int ranks() const { return ranks_; }
  int dump() const { return dump_; }
  size_t BytesOf(int from, int to) const { return bytes_[from * ranks_ + to]; }
  size_t largest() const { return std::ranges::max(bytes_); }

  Bytes SendOf(int rank) const {
    Bytes bytes;
    for (int to = 0; to < ranks_; to += dump_) Append(bytes, rank, to);
    return bytes;
  }
  Bytes ReceivedBy(int rank) const {
    Bytes bytes;
    for (int from = 0; from < ranks_; ++from) Append(bytes, from, rank);
    return bytes;
  }

 private:
  void Append(Bytes& bytes, int from, int to) const {
    std::mt19937 random(1000 * from + to / dump_);
    for (size_t i = 0; i < BytesOf(from, to); ++i) bytes.push_back(static_cast<std::byte>(random()));
  }

  int ranks_, dump_;
  std::vector<int> bytes_;
};

// ---- Played in memory.

struct PlayedRank {
  Bytes send, receive, scratch;

  Bytes& At(Place place) { return place == Place::kSend ? send : place == Place::kReceive ? receive : scratch; }
};

// The size of a block, asked only of what the contract says that `rank` may ask.
size_t AskedBytes(AllToAllAlgorithm algorithm, const Exchange& exchange, const Blocks& blocks, int from, int to) {
  const int per_node = exchange.group.ranks_per_node, rank = exchange.rank;
  const bool from_node = from / per_node == rank / per_node, to_node = to / per_node == rank / per_node;
  const bool leads = algorithm == AllToAllAlgorithm::kHier1d && rank % per_node == 0;
  const bool passes = algorithm == AllToAllAlgorithm::kHier2d && from_node && to % per_node == rank % per_node;
  EXPECT_TRUE(from == rank || to == rank || passes || (leads && (from_node || to_node)))
      << "rank " << rank << " asks what " << from << " has for " << to;
  return blocks.BytesOf(from, to);
}

class Played {
 public:
  Played(AllToAllAlgorithm algorithm, const GroupShape& group, const Blocks& blocks) : algorithm_(algorithm) {
    for (int rank = 0; rank < group.size; ++rank) {
      Exchange exchange = {.group = group, .rank = rank, .dump = blocks.dump(), .bytes = {}};
      exchange.bytes = [=, &blocks](int from, int to) { return AskedBytes(algorithm, exchange, blocks, from, to); };
      exchanges_.push_back(exchange);
      ranks_.push_back({.send = blocks.SendOf(rank),
                        .receive = Bytes(blocks.ReceivedBy(rank).size()),
                        .scratch = Bytes(ScratchBlocks(algorithm, group, rank) * blocks.largest())});
    }
  }

  // All messages of the phase leave before any arrives, or the other way round where nothing that is received is sent.
  void Play(int phase) {
    std::vector<PhaseList> phases(exchanges_.size());
    for (size_t rank = 0; rank < phases.size(); ++rank) ListPhase(algorithm_, exchanges_[rank], phase, phases[rank]);
    std::map<std::pair<int, int>, std::vector<Bytes>> sent;  // By (from, to).
    for (int from = 0; from < size(); ++from) {
      for (const Message& message : phases[from].sends()) {
        CheckTeam(phase, from, message.peer);
        const auto bytes = PartOf(from, message);
        sent[{from, message.peer}].push_back({bytes.begin(), bytes.end()});
        ++messages_[{phase, from, message.peer}];
      }
    }
    for (int to = 0; to < size(); ++to) Receive(to, phases[to], sent);
    for (const auto& [pair, left] : sent)
      EXPECT_TRUE(left.empty()) << pair.first << " sends in vain to " << pair.second;
  }

  Bytes& ReceivedBy(int rank) { return ranks_[rank].receive; }
  int MessagesOf(int phase, int from, int to) { return messages_[{phase, from, to}]; }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  void Receive(int to, const PhaseList& phase, std::map<std::pair<int, int>, std::vector<Bytes>>& sent) {
    for (const Message& message : phase.receives()) {
      std::vector<Bytes>& from_peer = sent[{message.peer, to}];
      ASSERT_FALSE(from_peer.empty()) << to << " waits for " << message.peer;
      ASSERT_EQ(from_peer.front().size(), message.bytes) << message.peer << " to " << to;
      std::ranges::copy(from_peer.front(), PartOf(to, message).begin());
      from_peer.erase(from_peer.begin());
      for (const Message& read : phase.sends()) {
        const bool apart = read.place != message.place || read.offset + read.bytes <= message.offset ||
                           message.offset + message.bytes <= read.offset;
        EXPECT_TRUE(apart) << to << " sends what it receives in the same phase";
      }
    }
  }

  void CheckTeam(int phase, int from, int to) {
    const Exchange& exchange = exchanges_[from];
    const int per_node = exchange.group.ranks_per_node;
    EXPECT_TRUE(TakesPart(algorithm_, phase, exchange.group, from));
    switch (DefinitionOf(algorithm_).phases(exchange.group)[phase]) {
      case Team::kNode: EXPECT_EQ(from / per_node, to / per_node); break;
      case Team::kPlace: EXPECT_EQ(from % per_node, to % per_node); break;
      case Team::kGroup: EXPECT_NE(from / per_node, to / per_node); break;
    }
  }

  std::span<std::byte> PartOf(int rank, const Message& message) {
    Bytes& buffer = ranks_[rank].At(message.place);
    EXPECT_LE(message.offset + message.bytes, buffer.size()) << "rank " << rank;
    if (message.offset + message.bytes > buffer.size()) buffer.resize(message.offset + message.bytes);
    return std::span(buffer).subspan(message.offset, message.bytes);
  }

  const AllToAllAlgorithm algorithm_;
  std::vector<Exchange> exchanges_;
  std::vector<PlayedRank> ranks_;
  std::map<std::tuple<int, int, int>, int> messages_;  // By (phase, from, to).
};

void ExpectIsAnAllToAll(AllToAllAlgorithm algorithm, const GroupShape& group, const Blocks& blocks) {
  SCOPED_TRACE(
      StrCat(Name(algorithm), ", ", group.size, " ranks, ", group.ranks_per_node, " a node, dump ", blocks.dump()));
  const int phases = static_cast<int>(DefinitionOf(algorithm).phases(group).size());
  for (const bool backwards : {false, true}) {
    if (backwards && !DefinitionOf(algorithm).first_beside_others) continue;
    Played played(algorithm, group, blocks);
    for (int i = 0; i < phases; ++i) played.Play(backwards ? phases - 1 - i : i);
    for (int rank = 0; rank < group.size; ++rank) {
      EXPECT_TRUE(played.ReceivedBy(rank) == blocks.ReceivedBy(rank)) << "rank " << rank;
    }
  }
}

// Every group of 2 to 4 nodes with 2 to 4 ranks each, with every dump.
void ForEveryShape(const std::function<void(const GroupShape& group, int dump)>& check) {
  for (int nodes = 2; nodes <= 4; ++nodes) {
    for (int per_node = 2; per_node <= 4; ++per_node) {
      for (int dump = 1; dump <= nodes * per_node; ++dump) {
        if (nodes * per_node % dump == 0) check({nodes * per_node, per_node}, dump);
      }
    }
  }
}

TEST(AllToAllPhasesTest, EveryAlgorithmGivesEachRankItsBlocksInOrder) {
  ForEveryShape([](const GroupShape& group, int dump) {
    for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
      ExpectIsAnAllToAll(algorithm, group, Blocks(group.size, dump, [](int, int) { return 3; }));
    }
  });
}

TEST(AllToAllPhasesTest, BlocksMayDifferAndMayBeEmpty) {
  std::mt19937_64 random(TestSeed());
  for (int draw = 0; draw < 10; ++draw) {
    ForEveryShape([&](const GroupShape& group, int dump) {
      const uint64_t seed = random();
      const auto bytes = [&](int from, int to) {
        return std::max(0, static_cast<int>(std::mt19937_64(seed + 100 * from + to)() % 9) - 3);
      };
      for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
        ExpectIsAnAllToAll(algorithm, group, Blocks(group.size, dump, bytes));
      }
    });
  }
}

TEST(AllToAllPhasesTest, FewerMessagesGoBetweenNodesTheMoreIsGathered) {
  const GroupShape group = {.size = 6, .ranks_per_node = 3};
  const Blocks blocks(6, 1, [](int, int) { return 1; });
  const auto between = [&](AllToAllAlgorithm algorithm) {
    Played played(algorithm, group, blocks);
    int messages = 0;
    for (int phase = 0; phase < static_cast<int>(DefinitionOf(algorithm).phases(group).size()); ++phase) {
      played.Play(phase);
      for (int from = 0; from < 3; ++from) {
        for (int to = 3; to < 6; ++to) messages += played.MessagesOf(phase, from, to);
      }
    }
    return messages;
  };
  // From the first node to the second: by its leader; by each of 3 places; from each of 3 ranks to each of 3.
  EXPECT_EQ(between(AllToAllAlgorithm::kHier1d), 1);
  EXPECT_EQ(between(AllToAllAlgorithm::kHier2d), 3);
  EXPECT_EQ(between(AllToAllAlgorithm::kPipe), 9);
}

TEST(AllToAllPhasesTest, ScratchHoldsWhatIsOnItsWay) {
  // 2 nodes of 3: HIER_2D passes on the 3 blocks that the own node has for the own place of the other. HIER_1D's leader
  // has all 3·3 blocks that leave its node and the 9 that come.
  const GroupShape group = {.size = 6, .ranks_per_node = 3};
  EXPECT_EQ(ScratchBlocks(AllToAllAlgorithm::kHier2d, group, 4), 3);
  EXPECT_EQ(ScratchBlocks(AllToAllAlgorithm::kHier1d, group, 3), 18);
  EXPECT_EQ(ScratchBlocks(AllToAllAlgorithm::kHier1d, group, 4), 0);
  EXPECT_EQ(ScratchBlocks(AllToAllAlgorithm::kPipe, group, 0), 0);
}

TEST(AllToAllPhasesTest, WithoutTwoLevelsEveryAlgorithmIsDirect) {
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    EXPECT_TRUE(AlgorithmAllowed(algorithm, {.size = 4, .ranks_per_node = 2}).ok());
    EXPECT_EQ(AlgorithmAllowed(algorithm, {.size = 4, .ranks_per_node = 4}).code(), StatusCode::kInfeasible);
    EXPECT_THAT(AlgorithmAllowed(algorithm, {.size = 4, .ranks_per_node = 1}).message(),
                HasSubstr("found 4 ranks, 1 a node"));
  }
  EXPECT_TRUE(AlgorithmAllowed(AllToAllAlgorithm::kDirect, {.size = 4, .ranks_per_node = 4}).ok());
}

// ---- On ranks.

struct OnRank {
  OnRank(const Rank& rank, const GroupShape& group)
      : rank(rank), teams(*AllToAllTeams::Make(rank.world, group, rank.rank)) {}

  const Rank rank;
  AllToAllTeams teams;
  Bytes send, receive, scratch;
  std::vector<int32_t> send_counts, receive_counts;
  std::unique_ptr<Stream> stream = rank.device.MakeStream("inter", StreamPriority::kNormal),
                          inside = rank.device.MakeStream("inside", StreamPriority::kNormal);
  std::unique_ptr<Event> started = rank.device.MakeEvent(), ended = rank.device.MakeEvent();
  std::unique_ptr<PhasedAllToAll> all_to_all;

  void Prepare(AllToAllAlgorithm algorithm, const GroupShape& group, const PeerRows& sent, const PeerRows& received) {
    const PhasedExchange exchange = {
        .algorithm = algorithm, .group = group, .rank = rank.rank, .send = sent, .recv = received, .scratch = scratch};
    auto prepared = PhasedAllToAll::Prepare(exchange, rank.device, teams, *inside);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    all_to_all = *std::move(prepared);
  }

  void Enqueue() {
    rank.device.Label(*stream, "exchange");
    rank.device.Record(*started, *stream);
    all_to_all->Enqueue("exchange", *stream);
    rank.device.Record(*ended, *stream);
  }

  // Buffers for `blocks`; the runner sees blocks of `row_bytes` rows.
  void PrepareRegular(AllToAllAlgorithm algorithm, const GroupShape& group, const Blocks& blocks) {
    send = blocks.SendOf(rank.rank);
    receive = Bytes(blocks.ReceivedBy(rank.rank).size());
    scratch = Bytes(ScratchBlocks(algorithm, group, rank.rank) * blocks.largest());
    Prepare(algorithm, group,
            {send.data(), blocks.largest(), {.blocks = group.size / blocks.dump(), .rows_per_cell = 1}},
            {receive.data(), blocks.largest(), {.blocks = group.size, .rows_per_cell = 1}});
  }

  // Counts, in two cells a block, are written by the stream.
  void PrepareIrregular(AllToAllAlgorithm algorithm, const GroupShape& group, const Blocks& blocks) {
    send = blocks.SendOf(rank.rank);
    receive = Bytes(blocks.ReceivedBy(rank.rank).size());
    scratch = Bytes(ScratchBlocks(algorithm, group, rank.rank) * blocks.largest());
    const int sent_blocks = group.size / blocks.dump();
    send_counts.assign(2 * sent_blocks, 0);
    receive_counts.assign(2 * group.size, 0);
    Prepare(algorithm, group,
            {send.data(), 1, {.blocks = sent_blocks, .cells_per_block = 2, .counts = send_counts.data()}},
            {receive.data(), 1, {.blocks = group.size, .cells_per_block = 2, .counts = receive_counts.data()}});
  }

  void EnqueueCounts(const Blocks& blocks) {
    HostStream::Of(*stream).Enqueue([this, blocks] {
      const auto write = [](std::vector<int32_t>& counts, int block, size_t bytes) {
        counts[2 * block] = static_cast<int32_t>(bytes / 2);
        counts[2 * block + 1] = static_cast<int32_t>(bytes - bytes / 2);
      };
      for (int to = 0; to < blocks.ranks(); to += blocks.dump()) {
        write(send_counts, to / blocks.dump(), blocks.BytesOf(rank.rank, to));
      }
      for (int from = 0; from < blocks.ranks(); ++from) write(receive_counts, from, blocks.BytesOf(from, rank.rank));
      return OkStatus();
    });
  }
};

class AllToAllTest : public ::testing::TestWithParam<testing::Backend> {
 protected:
  // Random groups, algorithms, and a seed for sizes.
  void ForRandomJobs(
      const std::function<void(AllToAllAlgorithm, const GroupShape&, int dump, std::mt19937_64& random)>& check) {
    std::mt19937_64 random(TestSeed());
    const int draws = GetParam().name == "gloo" ? 9 : 60;
    for (int draw = 0; draw < draws && !HasFailure(); ++draw) {
      const int per_node = 2 + static_cast<int>(random() % 2), nodes = 2 + static_cast<int>(random() % 2);
      const AllToAllAlgorithm algorithm = IndirectAlgorithms()[draw % 3];
      const int dump = random() % 2 == 0 ? 1 : per_node;
      SCOPED_TRACE(StrCat("draw ", draw, ": ", Name(algorithm), ", ", nodes, " nodes of ", per_node, ", dump ", dump));
      check(algorithm, {nodes * per_node, per_node}, dump, random);
    }
  }

  void Run(int ranks, const Program& program) { GetParam().make_runner(/*seed=*/ranks)->Run(ranks, program); }
};

void ExpectReceived(OnRank& own, const Blocks& blocks, const Status& status) {
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(own.receive == blocks.ReceivedBy(own.rank.rank)) << "rank " << own.rank.rank;
  std::ranges::fill(own.receive, std::byte{});
}

TEST_P(AllToAllTest, GivesEachRankItsBlocksAgainAndAgain) {
  ForRandomJobs([&](AllToAllAlgorithm algorithm, const GroupShape& group, int dump, std::mt19937_64& random) {
    const int bytes = static_cast<int>(random() % 9);
    const Blocks blocks(group.size, dump, [=](int, int) { return bytes; });
    Run(group.size, [=](const Rank& rank) {
      const auto own = std::make_shared<OnRank>(rank, group);
      own->PrepareRegular(algorithm, group, blocks);
      return std::vector<Round>(
          2, {[=] { own->Enqueue(); }, [=](const Status& status) { ExpectReceived(*own, blocks, status); }});
    });
  });
}

TEST_P(AllToAllTest, SizesThatComeWithTheStreamGoAheadOfTheData) {
  ForRandomJobs([&](AllToAllAlgorithm algorithm, const GroupShape& group, int dump, std::mt19937_64& random) {
    const uint64_t seed = random();
    const Blocks blocks(group.size, dump, [=](int from, int to) {
      return std::max(0, static_cast<int>(std::mt19937_64(seed + 100 * from + to)() % 12) - 3);
    });
    Run(group.size, [=](const Rank& rank) {
      const auto own = std::make_shared<OnRank>(rank, group);
      own->PrepareIrregular(algorithm, group, blocks);
      const auto queue = [=] {
        own->EnqueueCounts(blocks);
        own->Enqueue();
      };
      return std::vector<Round>(2, {queue, [=](const Status& status) { ExpectReceived(*own, blocks, status); }});
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, AllToAllTest, ::testing::ValuesIn(testing::Backends()),
                         [](const auto& test) { return test.param.name; });

// ---- On a clock whose links take a second inside nodes, and two between them.

std::vector<double> TimesOf(AllToAllAlgorithm algorithm, const TaskTime& task_time) {
  constexpr GroupShape kGroup = {.size = 4, .ranks_per_node = 2};
  const Blocks blocks(kGroup.size, 1, [](int, int) { return 5; });
  std::vector<double> times(kGroup.size);
  testing::MakeVirtualRunner(task_time)->Run(kGroup.size, [&](const Rank& rank) {
    const auto own = std::make_shared<OnRank>(rank, kGroup);
    own->PrepareRegular(algorithm, kGroup, blocks);
    const auto check = [=, &times](const Status& status) {
      ExpectReceived(*own, blocks, status);
      times[own->rank.rank] = own->rank.device.TimeS(*own->ended) - own->rank.device.TimeS(*own->started);
    };
    return std::vector<Round>{{[=] { own->Enqueue(); }, check}};
  });
  return times;
}

TEST(PipeTest, TakesAsLongAsTheSlowerOfBothLinks) {
  const auto slow_between = [](int, std::string_view task) { return task.ends_with(kInsideNodes) ? 1.0 : 2.0; };
  EXPECT_THAT(TimesOf(AllToAllAlgorithm::kPipe, slow_between), ElementsAre(2, 2, 2, 2));
  const auto slow_inside = [](int, std::string_view task) { return task.ends_with(kInsideNodes) ? 3.0 : 2.0; };
  EXPECT_THAT(TimesOf(AllToAllAlgorithm::kPipe, slow_inside), ElementsAre(3, 3, 3, 3));
}

TEST(PipeTest, NamesTheTaskAndTheLinkThatItWaitsOn) {
  constexpr GroupShape kGroup = {.size = 4, .ranks_per_node = 2};
  const Blocks blocks(kGroup.size, 1, [](int, int) { return 5; });
  testing::MakeVirtualRunner([](int, std::string_view) { return 1.0; })->Run(kGroup.size, [&](const Rank& rank) {
    const auto own = std::make_shared<OnRank>(rank, kGroup);
    own->PrepareRegular(AllToAllAlgorithm::kPipe, kGroup, blocks);
    const auto queue = [=] {
      if (own->rank.rank != 3) own->Enqueue();  // Rank 3 never comes.
    };
    const auto check = [=](const Status& status) {
      if (own->rank.rank == 3) return;
      EXPECT_THAT(status.message(), HasSubstr("task exchange (inside nodes) waits for"));
    };
    return std::vector<Round>{{queue, check}};
  });
}

}  // namespace
}  // namespace moeplan::executor
