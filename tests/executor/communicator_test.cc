// What every communicator must do, each operation against a plain reference over random sizes. Ranks make their own
// data from (seed, rank), so that each can work out what the others sent.
#include "executor/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <random>
#include <vector>

#include "executor/host/elements.h"
#include "executor/host/host_stream.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using testing::Program;
using testing::Rank;
using testing::Round;
// From where a backend's device reaches them (tests/gpu/cuda_backend.cc); else from the heap.
using Bytes = std::pmr::vector<std::byte>;
using ::testing::HasSubstr;

// ---- Data.

// `count` random bytes that belong to (seed, what).
Bytes RandomBytes(uint64_t seed, int what, size_t count) {
  std::seed_seq mixed{seed, static_cast<uint64_t>(what)};
  std::mt19937 random(mixed);
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

// `count` random elements of moderate size, rounded to `type`.
std::vector<float> RandomElements(uint64_t seed, int what, size_t count, ElementType type) {
  std::seed_seq mixed{seed, static_cast<uint64_t>(what)};
  std::mt19937 random(mixed);
  std::vector<float> elements(count);
  for (float& element : elements) {
    element = std::uniform_real_distribution(-4.0F, 4.0F)(random);
    if (type == ElementType::kBfloat16) element = RoundToBfloat16(element);
  }
  return elements;
}

Bytes Stored(const std::vector<float>& elements, ElementType type) {
  Bytes bytes(elements.size() * BytesOf(type));
  Store(elements.data(), type, elements.size(), bytes.data());
  return bytes;
}

// The sum as the contract says it: in float, in the order of `terms`, rounded once.
std::vector<float> Sum(const std::vector<std::vector<float>>& terms, ElementType type) {
  std::vector<float> sum(terms[0].size(), 0.0F);
  for (const auto& term : terms) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }
  if (type == ElementType::kBfloat16) std::ranges::transform(sum, sum.begin(), &RoundToBfloat16);
  return sum;
}

void Append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

// ---- The suite.

// What a rank works on, for as long as its rounds last.
struct OnRank {
  explicit OnRank(const Rank& rank) : rank(rank.rank), device(rank.device), world(rank.world) {}

  // The stream, with a fresh label for the operation queued next.
  Stream& Label() {
    device.Label(*stream, "tested");
    return *stream;
  }

  int rank;
  Device& device;
  Communicator& world;
  std::unique_ptr<Stream> stream = device.MakeStream("inter", StreamPriority::kNormal);
  std::unique_ptr<Communicator> group, other_group;  // Where a test splits.
  Bytes send, recv, partial, expected;
  std::pmr::vector<int32_t> send_counts, recv_counts;
};
using OnEachRank = std::function<void(OnRank&)>;

Program OneRound(OnEachRank prepare, OnEachRank queue, std::function<void(OnRank&, const Status&)> check) {
  return [=](const Rank& rank) {
    const auto own = std::make_shared<OnRank>(rank);
    prepare(*own);
    return std::vector{Round{[=] { queue(*own); }, [=](const Status& status) { check(*own, status); }}};
  };
}

void NothingToPrepare(OnRank&) {}

void ExpectReceived(OnRank& own, const Status& status) {
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(own.recv == own.expected) << "rank " << own.rank;
}

class CommunicatorTest : public ::testing::TestWithParam<testing::Backend> {
 protected:
  // Calls `draw` with a number up to 6 and a seed for data, again and again.
  void ForRandomJobs(const std::function<void(int size, uint64_t seed, std::mt19937_64& random)>& draw) {
    std::mt19937_64 random(TestSeed());
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
      const int size = 1 + static_cast<int>(random() % 6);
      SCOPED_TRACE(StrCat("draw ", i, ", size ", size));
      draw(size, random(), random);
    }
  }

  // `queue` fills in `send` and `expected` and starts what fills `recv`.
  void ExpectReceivedOn(int ranks, const OnEachRank& queue, const OnEachRank& prepare = NothingToPrepare) {
    Run(ranks, OneRound(prepare, queue, ExpectReceived));
  }

  void Run(int ranks, const Program& program) { GetParam().make_runner(/*seed=*/ranks)->Run(ranks, program); }
};

int Below(std::mt19937_64& random, int limit) { return static_cast<int>(random() % limit); }
int AnyOf(std::mt19937_64& random, std::initializer_list<int> values) {
  return values.begin()[random() % values.size()];
}
ElementType AnyType(std::mt19937_64& random) {
  return random() % 2 == 0 ? ElementType::kFloat32 : ElementType::kBfloat16;
}

// Block `to` of what `from` sends.
Bytes Block(uint64_t seed, int from, int to, size_t bytes) { return RandomBytes(seed, 1000 * from + to, bytes); }

TEST_P(CommunicatorTest, AllToAllGivesEachRankItsBlock) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const CellLayout cells = {
        .blocks = ranks, .cells_per_block = 1 + Below(random, 3), .rows_per_cell = Below(random, 4)};
    const size_t row_bytes = 1 + Below(random, 9);
    const size_t block_bytes = RowsOfBlock(cells, 0) * row_bytes;
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      for (int to = 0; to < ranks; ++to) Append(own.send, Block(seed, own.rank, to, block_bytes));
      for (int from = 0; from < ranks; ++from) Append(own.expected, Block(seed, from, own.rank, block_bytes));
      own.recv.resize(own.expected.size());
      own.world.AllToAll({own.send.data(), row_bytes, cells}, {own.recv.data(), row_bytes, cells}, own.Label());
    });
  });
}

TEST_P(CommunicatorTest, AllToAllDumpsEachOfFewerBlocksOnConsecutiveRanks) {
  ForRandomJobs([&](int size, uint64_t seed, std::mt19937_64& random) {
    const int blocks = std::min(size, 4), repeat = 2 + Below(random, 2), ranks = blocks * repeat;
    const size_t bytes = 1 + Below(random, 20);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      for (int block = 0; block < blocks; ++block) Append(own.send, Block(seed, own.rank, block, bytes));
      for (int from = 0; from < ranks; ++from) Append(own.expected, Block(seed, from, own.rank / repeat, bytes));
      own.recv.resize(own.expected.size());
      own.world.AllToAll({own.send.data(), bytes, {.blocks = blocks, .rows_per_cell = 1}},
                         {own.recv.data(), bytes, {.blocks = ranks, .rows_per_cell = 1}}, own.Label());
    });
  });
}

// Rows of each cell from each sender to each receiver, of which `repeat` consecutive ones get the same counts. Many
// are zero.
class Counts {
 public:
  Counts(uint64_t seed, int repeat, int cells) : seed_(seed), repeat_(repeat), cells_(cells) {}

  std::vector<int32_t> Of(int from, int to) const {
    std::mt19937_64 random(seed_ + 1000 * from + to / repeat_);
    std::vector<int32_t> counts(cells_);
    for (int32_t& count : counts) count = std::max(0, Below(random, 6) - 2);
    return counts;
  }
  size_t Rows(int from, int to) const {
    const std::vector<int32_t> counts = Of(from, to);
    return std::accumulate(counts.begin(), counts.end(), size_t{0});
  }

 private:
  uint64_t seed_;
  int repeat_, cells_;
};

TEST_P(CommunicatorTest, IrregularAllToAllReadsItsCountsWhenTheStreamGetsThere) {
  ForRandomJobs([&](int size, uint64_t seed, std::mt19937_64& random) {
    const int repeat = 1 + Below(random, 2), ranks = std::min(size, 4) * repeat, cells = 1 + Below(random, 3);
    const size_t row_bytes = 1 + Below(random, 9);
    const Counts counts(seed, repeat, cells);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      for (int to = 0; to < ranks; ++to)
        Append(own.send, Block(seed, own.rank, to, counts.Rows(own.rank, to) * row_bytes));
      for (int from = 0; from < ranks; ++from) {
        Append(own.expected, Block(seed, from, own.rank, counts.Rows(from, own.rank) * row_bytes));
      }
      own.recv.resize(own.expected.size());
      own.send_counts.assign(ranks / repeat * cells, 0);
      own.recv_counts.assign(ranks * cells, 0);
      HostStream::Of(own.Label()).Enqueue([=, &own] {
        for (int to = 0; to < ranks; to += repeat) {
          std::ranges::copy(counts.Of(own.rank, to), own.send_counts.begin() + to / repeat * cells);
        }
        for (int from = 0; from < ranks; ++from) {
          std::ranges::copy(counts.Of(from, own.rank), own.recv_counts.begin() + from * cells);
        }
        return OkStatus();
      });
      const CellLayout send = {
          .blocks = ranks, .cells_per_block = cells, .counts = own.send_counts.data(), .repeat = repeat};
      const CellLayout recv = {.blocks = ranks, .cells_per_block = cells, .counts = own.recv_counts.data()};
      own.world.AllToAll({own.send.data(), row_bytes, send}, {own.recv.data(), row_bytes, recv}, own.Label());
    });
  });
}

TEST_P(CommunicatorTest, AllGatherGivesEverybodyTheBlocksInRankOrder) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const size_t bytes = Below(random, 30);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      own.send = RandomBytes(seed, own.rank, bytes);
      for (int from = 0; from < ranks; ++from) Append(own.expected, RandomBytes(seed, from, bytes));
      own.recv.resize(own.expected.size());
      own.world.AllGather(own.send, own.recv, own.Label());
    });
  });
}

TEST_P(CommunicatorTest, AllGatherMaySendFromItsOwnPlace) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const size_t bytes = Below(random, 30);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      for (int from = 0; from < ranks; ++from) Append(own.expected, RandomBytes(seed, from, bytes));
      own.recv.resize(own.expected.size());
      const auto place = std::span(own.recv).subspan(own.rank * bytes, bytes);
      std::ranges::copy(RandomBytes(seed, own.rank, bytes), place.begin());
      own.world.AllGather(place, own.recv, own.Label());
    });
  });
}

// The terms of a sum over `ranks`, each of `count` elements.
std::vector<std::vector<float>> Terms(uint64_t seed, int ranks, size_t count, ElementType type) {
  std::vector<std::vector<float>> terms;
  for (int rank = 0; rank < ranks; ++rank) terms.push_back(RandomElements(seed, rank, count, type));
  return terms;
}

TEST_P(CommunicatorTest, ReduceScatterGivesEachRankItsPartOfTheSum) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const ElementType type = AnyType(random);
    const size_t count = Below(random, 20);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      const auto terms = Terms(seed, ranks, count * ranks, type);
      const std::vector<float> sum = Sum(terms, type);
      own.send = Stored(terms[own.rank], type);
      own.expected = Stored({sum.begin() + own.rank * count, sum.begin() + (own.rank + 1) * count}, type);
      own.recv.resize(own.expected.size());
      own.world.ReduceScatter(own.send, own.recv, type, own.Label());
    });
  });
}

// Counts that ranks do not divide, too.
TEST_P(CommunicatorTest, AllReduceGivesEverybodyTheSameBitsOfTheSum) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const ElementType type = AnyType(random);
    const size_t count = Below(random, 40);
    const bool in_place = Below(random, 2) == 0;
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      const auto terms = Terms(seed, ranks, count, type);
      own.expected = Stored(Sum(terms, type), type);
      own.send = Stored(terms[own.rank], type);
      own.recv = own.send;
      own.world.AllReduce(in_place ? own.recv : own.send, own.recv, type, own.Label());
    });
  });
}

struct RandomTransfer {
  int from, to;
  size_t bytes;
};

// Fills in the buffers of `own` and says what it sends and gets of `transfers`.
Transfers PointInto(OnRank& own, uint64_t seed, const std::vector<RandomTransfer>& transfers) {
  own.send.reserve(1000), own.recv.reserve(1000);  // Transfers point into them.
  Transfers own_transfers;
  for (int i = 0; i < static_cast<int>(transfers.size()); ++i) {
    const auto& [from, to, bytes] = transfers[i];
    const Bytes content = RandomBytes(seed, i, bytes);
    if (from == own.rank) {
      Append(own.send, content);
      own_transfers.sends.push_back({to, std::span(own.send).last(bytes)});
    }
    if (to == own.rank) {
      Append(own.expected, content);
      own.recv.resize(own.expected.size());
      own_transfers.recvs.push_back({from, std::span(own.recv).last(bytes)});
    }
  }
  std::ranges::stable_sort(own_transfers.recvs, std::greater(),
                           &Transfer::peer);  // Only the order within a pair counts.
  return own_transfers;
}

std::vector<RandomTransfer> RandomTransfers(int ranks, std::mt19937_64& random) {
  std::vector<RandomTransfer> transfers(Below(random, 4 * ranks));
  for (RandomTransfer& one : transfers) {
    one = {Below(random, ranks), Below(random, ranks), static_cast<size_t>(Below(random, 12))};
  }
  return transfers;
}

TEST_P(CommunicatorTest, SendRecvMatchesTransfersBetweenTwoRanksInOrder) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const std::vector<RandomTransfer> transfers = RandomTransfers(ranks, random);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      const Transfers known = PointInto(own, seed, transfers);
      own.world.SendRecv(known.sends, known.recvs, own.Label());
    });
  });
}

TEST_P(CommunicatorTest, SendRecvAsksForLateTransfersWhenTheStreamGetsThere) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64& random) {
    const std::vector<RandomTransfer> transfers = RandomTransfers(ranks, random);
    ExpectReceivedOn(ranks, [=](OnRank& own) {
      const auto late = std::make_shared<Transfers>();  // Empty until the stream has run.
      HostStream::Of(own.Label()).Enqueue([=, &own] {
        *late = PointInto(own, seed, transfers);
        return OkStatus();
      });
      own.world.SendRecv([late](Transfers& now) { now = *late; }, own.Label());
    });
  });
}

// EP&ESP groups of `exchange_size` = EP · shards consecutive ranks and MP groups of `gather_size`, either the larger.
TEST_P(CommunicatorTest, AllToAllAllGatherSumsShardsAndGathersTheSums) {
  ForRandomJobs([&](int, uint64_t seed, std::mt19937_64& random) {
    const int expert_ranks = AnyOf(random, {1, 2, 4}), shards = AnyOf(random, {1, 2});
    const int exchange_size = expert_ranks * shards, gather_size = AnyOf(random, {1, 2, 4, 8});
    const int ranks = std::max(exchange_size, gather_size);
    const int sent_blocks = Below(random, 2) == 0 ? exchange_size : expert_ranks;  // Half of them dump.
    const ElementType type = AnyType(random);
    const size_t count = Below(random, 10), bytes = count * BytesOf(type);
    const auto block = [=](int from, int to) {
      const int sent_block = to % exchange_size * sent_blocks / exchange_size;
      return RandomElements(seed, 1000 * from + sent_block, count, type);
    };
    const auto split = [=](OnRank& own) {
      own.group = *own.world.Split(own.rank / exchange_size);
      own.other_group = *own.world.Split(own.rank / gather_size);
    };
    const auto queue = [=](OnRank& own) {
      for (int to = 0; to < exchange_size; to += exchange_size / sent_blocks) {
        Append(own.send, Stored(block(own.rank, to), type));
      }
      for (int i = 0; i < gather_size; ++i) {
        const int to = own.rank / gather_size * gather_size + i;
        for (int expert_rank = 0; expert_rank < expert_ranks; ++expert_rank) {
          std::vector<std::vector<float>> parts;
          for (int shard = 0; shard < shards; ++shard) {
            parts.push_back(block(to / exchange_size * exchange_size + expert_rank * shards + shard, to));
          }
          Append(own.expected, Stored(Sum(parts, type), type));
        }
      }
      own.partial.resize(bytes * exchange_size);
      own.recv.resize(own.expected.size());
      own.group->AllToAllAllGather({own.send.data(), bytes, {.blocks = sent_blocks, .rows_per_cell = 1}},
                                   {own.partial.data(), bytes, {.blocks = exchange_size, .rows_per_cell = 1}}, shards,
                                   own.recv, type, *own.other_group, own.Label());
    };
    ExpectReceivedOn(ranks, queue, split);
  });
}

TEST_P(CommunicatorTest, NobodyPassesABarrierBeforeAllHaveReachedIt) {
  ForRandomJobs([&](int ranks, uint64_t, std::mt19937_64&) {
    std::vector<std::atomic<bool>> reached(ranks);
    const auto queue = [&](OnRank& own) {
      HostStream::Of(own.Label()).Enqueue([&] {
        reached[own.rank] = true;
        return OkStatus();
      });
      own.world.Barrier(own.Label());
      HostStream::Of(*own.stream).Enqueue([&] {
        return std::ranges::all_of(reached, [](const auto& one) { return one.load(); }) ? OkStatus()
                                                                                        : InternalError("early");
      });
    };
    ExpectReceivedOn(ranks, queue);
  });
}

// Colors of a draw; groups may have one rank or all.
int ColorOf(uint64_t seed, int level, int rank) { return static_cast<int>((seed >> (10 * level + rank)) % 3); }

TEST_P(CommunicatorTest, SplitGroupsRanksOfOneColorInRankOrderAndSplitsAgain) {
  ForRandomJobs([&](int ranks, uint64_t seed, std::mt19937_64&) {
    const auto peers = [=](int own, int levels) {
      std::vector<int> same;
      for (int rank = 0; rank < ranks; ++rank) {
        bool together = true;
        for (int level = 0; level < levels; ++level)
          together &= ColorOf(seed, level, rank) == ColorOf(seed, level, own);
        if (together) same.push_back(rank);
      }
      return same;
    };
    const auto split = [=](OnRank& own) {
      own.group = *own.world.Split(ColorOf(seed, 0, own.rank));
      own.other_group = *own.group->Split(ColorOf(seed, 1, own.rank));
    };
    const auto queue = [=](OnRank& own) {
      own.send = RandomBytes(seed, own.rank, 3);
      for (const int levels : {1, 2}) {
        Communicator& group = levels == 1 ? *own.group : *own.other_group;
        const std::vector<int> same = peers(own.rank, levels);
        EXPECT_EQ(group.size(), static_cast<int>(same.size()));
        EXPECT_EQ(same[group.rank()], own.rank);
        for (const int peer : same) Append(own.expected, RandomBytes(seed, peer, 3));
      }
      own.recv.resize(own.expected.size());
      const size_t outer_bytes = 3 * own.group->size();
      own.group->AllGather(own.send, std::span(own.recv).first(outer_bytes), own.Label());
      own.other_group->AllGather(own.send, std::span(own.recv).subspan(outer_bytes), own.Label());
    };
    ExpectReceivedOn(ranks, queue, split);
  });
}

void QueueGather(OnRank& own, int ranks) {
  own.send.resize(8);
  own.recv.resize(8 * ranks);
  own.world.AllGather(own.send, own.recv, own.Label());
}

TEST_P(CommunicatorTest, AbortFailsWhoeverWaitsWithItsReason) {
  const auto queue = [](OnRank& own) {
    if (own.rank == 1) return own.world.Abort(Cancelled("enough"));
    QueueGather(own, 3);
  };
  Run(3, OneRound(NothingToPrepare, queue, [](OnRank& own, const Status& status) {
        if (own.rank == 1) return;
        EXPECT_EQ(status, Cancelled("task tested: enough")) << "rank " << own.rank;
      }));
}

TEST_P(CommunicatorTest, WorkThatFailsFailsThoseWhoWaitForItsRank) {
  const auto fail_and_gather = [](OnRank& own) {
    if (own.rank == 1) {
      HostStream::Of(own.Label()).Enqueue([] { return DataLoss("bits fell out"); });
    }
    QueueGather(own, 3);
  };
  const auto check = [](const OnRank& own, const Status& status) {
    EXPECT_THAT(status.message(), HasSubstr("bits fell out")) << "rank " << own.rank;
    EXPECT_THAT(status.message(), HasSubstr(own.rank == 1 ? "" : "task tested"));
  };
  const bool at_once = GetParam().stops_at_once;
  Run(3, [=](const Rank& rank) {
    const auto own = std::make_shared<OnRank>(rank);
    const auto first = [=](const Status& status) {
      if (!status.ok() || own->rank == 1 || at_once) check(*own, status);
    };
    return std::vector{Round{[=] { fail_and_gather(*own); }, first},
                       Round{[=] { QueueGather(*own, 3); }, [=](const Status& status) { check(*own, status); }}};
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorTest, ::testing::ValuesIn(testing::Backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moeplan::executor
