// Tokens that go once to each node against the host kernels, on random routings of up to several thread blocks of rows.
#include "executor/cuda/node_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kCases = 60;

struct NodesCase {
  Layer layer;
  int nodes = 1, own_node = 0;
  int rows = 0, valid_rows = 0;  // Of each rank.

  int experts_per_node() const { return layer.experts / nodes; }
  size_t pairs() const { return static_cast<size_t>(rows) * layer.top_k; }
};

NodesCase RandomCase(std::mt19937_64& random) {
  NodesCase made;
  made.nodes = Between(random, 2, 5);
  const int experts = made.nodes * Between(random, 1, 6);
  made.layer = {.model_dim = 4,
                .hidden_dim = 1,
                .experts = experts,
                .top_k = Between(random, 1, std::min(experts, 8)),
                .bytes_per_element = 4};
  made.own_node = Between(random, 0, made.nodes - 1);
  made.rows = random() % 2 == 0 ? Between(random, 1, 40) : Between(random, 200, 1500);
  made.valid_rows = random() % 3 == 0 ? made.rows : Between(random, 0, made.rows);
  return made;
}

// Routings as the gates of `ranks` ranks leave them, one behind the other: different experts of each token, slots from
// 0 on without a gap, none of some pairs. Rows that are not valid hold anything.
ByteVector RandomRoutings(const NodesCase& made, int ranks, std::mt19937_64& random) {
  ByteVector memory(ranks * Routing::Bytes(made.pairs()));
  std::vector<int32_t> order(made.layer.experts);
  std::iota(order.begin(), order.end(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const Routing routing = Routing::At(memory.data() + rank * Routing::Bytes(made.pairs()), made.pairs());
    std::vector<int32_t> taken(made.layer.experts);
    const int capacity = Between(random, 1, made.rows);
    for (int row = 0; row < made.rows; ++row) {
      std::ranges::shuffle(order, random);
      for (int choice = 0; choice < made.layer.top_k; ++choice) {
        const size_t pair = static_cast<size_t>(row) * made.layer.top_k + choice;
        const int expert = order[choice];
        routing.expert[pair] = expert;
        routing.weight[pair] = static_cast<float>(random() % 1000) / 1000;
        const bool kept = row < made.valid_rows && taken[expert] < capacity;
        routing.slot[pair] = kept ? taken[expert]++ : row < made.valid_rows ? -1 : static_cast<int>(random() % 9);
      }
    }
  }
  return memory;
}

// A kernel on routings writes these: the routing of its rows, and counts.
struct Written {
  ByteVector routing;
  std::vector<int32_t> rows_of_nodes, pairs_of_experts;
};

Routing Of(std::byte* memory, size_t pairs) { return Routing::At(memory, pairs); }

// The fields of pairs that have slots, and the slots of all: others may hold anything.
void ExpectSameRouting(ByteVector found, ByteVector expected, size_t pairs, size_t valid) {
  const Routing left = Of(found.data(), pairs), right = Of(expected.data(), pairs);
  for (size_t pair = 0; pair < valid; ++pair) {
    ASSERT_EQ(left.slot[pair], right.slot[pair]) << "pair " << pair;
    if (right.slot[pair] < 0) continue;
    ASSERT_EQ(left.expert[pair], right.expert[pair]) << "pair " << pair;
    ASSERT_EQ(left.weight[pair], right.weight[pair]) << "pair " << pair;
  }
}

class NodeKernelsTest : public DeviceTest {
 protected:
  // Calls check(case, random) for random cases.
  template <typename Check>
  void ForCases(Check check) {
    std::mt19937_64 random(TestSeed());
    for (int i = 0; i < kCases && !HasFatalFailure(); ++i) {
      const NodesCase made = RandomCase(random);
      SCOPED_TRACE(::testing::Message() << "case " << i << ": " << made.rows << " rows, " << made.valid_rows
                                        << " of them valid, " << made.layer.experts << " experts, top "
                                        << made.layer.top_k << ", " << made.nodes << " nodes");
      check(made, random);
    }
  }

  static NodeScratch ScratchIn(const OnDevice<std::byte>& memory, const NodesCase& made) {
    return NodeScratch::At(memory.data(), made.nodes, made.valid_rows, made.experts_per_node());
  }
  static ByteVector ScratchOf(const NodesCase& made) {
    return Poisoned(NodeScratch::Bytes(made.nodes, made.valid_rows, made.experts_per_node()));
  }

  // The host's.
  static Written Split(const NodesCase& made, ByteVector& routing) {
    HostReference host(made.layer);
    Written written = {Poisoned(Routing::Bytes(made.pairs())), std::vector<int32_t>(made.nodes), {}};
    host.kernels().SplitByNode({.tokens = {.rows_per_block = made.rows, .valid_rows = made.valid_rows},
                                .routing = Of(routing.data(), made.pairs()),
                                .nodes = made.nodes,
                                .experts_per_node = made.experts_per_node(),
                                .node_routing = Of(written.routing.data(), made.pairs()),
                                .node_counts = written.rows_of_nodes.data()},
                               host.stream());
    host.Finish();
    return written;
  }
};

TEST_F(NodeKernelsTest, TokensAreSplitAsOnTheHost) {
  ForCases([](const NodesCase& made, std::mt19937_64& random) {
    ByteVector routing = RandomRoutings(made, 1, random);
    const Written expected = Split(made, routing);
    const OnDevice<std::byte> from(routing), to(Poisoned(routing.size())), scratch(ScratchOf(made));
    const OnDevice<int32_t> counts(PoisonedValues<int32_t>(made.nodes));
    ASSERT_EQ(cuda::SplitByNode(made.layer.top_k,
                                {.tokens = {.rows_per_block = made.rows, .valid_rows = made.valid_rows},
                                 .routing = Of(from.data(), made.pairs()),
                                 .nodes = made.nodes,
                                 .experts_per_node = made.experts_per_node(),
                                 .node_routing = Of(to.data(), made.pairs()),
                                 .node_counts = counts.data()},
                                ScratchIn(scratch, made), /*stream=*/nullptr),
              OkStatus());
    EXPECT_EQ(counts.Read(), expected.rows_of_nodes);
    ExpectSameRouting(to.Read(), expected.routing, made.pairs(),
                      static_cast<size_t>(made.valid_rows) * made.layer.top_k);
  });
}

TEST_F(NodeKernelsTest, ARelayRoutesAsOnTheHost) {
  ForCases([](const NodesCase& made, std::mt19937_64& random) {
    const ByteVector routings = RandomRoutings(made, made.nodes, random);
    const size_t pairs = made.pairs() * made.nodes;
    RelayRoutingArgs args = {.routings = routings.data(),
                             .nodes = made.nodes,
                             .own_node = made.own_node,
                             .experts_per_node = made.experts_per_node(),
                             .rows_per_node = made.rows,
                             .valid_rows = made.valid_rows,
                             .capacity = made.rows};
    Written expected = {Poisoned(Routing::Bytes(pairs)), std::vector<int32_t>(made.nodes),
                        std::vector<int32_t>(made.experts_per_node())};
    args.routing = Of(expected.routing.data(), pairs);
    args.row_counts = expected.rows_of_nodes.data();
    args.pair_counts = expected.pairs_of_experts.data();
    HostReference host(made.layer);
    host.kernels().RelayRouting(args, host.stream());
    host.Finish();

    const OnDevice<std::byte> from(routings), to(Poisoned(Routing::Bytes(pairs))), scratch(ScratchOf(made));
    const OnDevice<int32_t> rows(PoisonedValues<int32_t>(made.nodes));
    const OnDevice<int32_t> of_experts(PoisonedValues<int32_t>(made.experts_per_node()));
    args.routings = from.data();
    args.routing = Of(to.data(), pairs);
    args.row_counts = rows.data();
    args.pair_counts = of_experts.data();
    ASSERT_EQ(cuda::RelayRouting(made.layer.top_k, args, ScratchIn(scratch, made), /*stream=*/nullptr), OkStatus());
    EXPECT_EQ(rows.Read(), expected.rows_of_nodes);
    EXPECT_EQ(of_experts.Read(), expected.pairs_of_experts);
    ExpectSameRouting(to.Read(), expected.routing, pairs, pairs);
  });
}

TEST_F(NodeKernelsTest, WhatNodesSayOfWeightsIsSummedAsOnTheHost) {
  ForCases([](const NodesCase& made, std::mt19937_64& random) {
    ByteVector routing = RandomRoutings(made, 1, random);
    Written split = Split(made, routing);
    const auto& counts = split.rows_of_nodes;
    const int sent = std::accumulate(counts.begin(), counts.end(), 0);
    const std::vector<float> values = RandomValues(random, static_cast<size_t>(sent) * made.layer.top_k);
    SlotRows rows = {.data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data())),
                     .cells = {.blocks = made.nodes, .rows_per_cell = made.rows, .counts = counts.data()},
                     .address = {.expert_rank_stride = 1}};
    const TokenRows tokens = {.rows_per_block = made.rows, .valid_rows = made.valid_rows};
    std::vector<float> expected(made.pairs());
    HostReference host(made.layer);
    host.kernels().SumOverNodes(rows, Of(split.routing.data(), made.pairs()), tokens, expected.data(), host.stream());
    host.Finish();

    const OnDevice<std::byte> node_routing(split.routing);
    const OnDevice<float> on_device(values), gradient(PoisonedValues<float>(made.pairs()));
    const OnDevice<int32_t> counts_there(counts), places(PoisonedValues<int32_t>(made.pairs()));
    const OnDevice<int64_t> first_rows(PoisonedValues<int64_t>(made.nodes + 1));
    PlacedRows placed = {.data = reinterpret_cast<std::byte*>(on_device.data()), .cells = rows.cells};
    placed.cells.counts = counts_there.data();
    placed.first_rows = first_rows.data();
    const RoutedPairs pairs = {.routing = Of(node_routing.data(), made.pairs()),
                               .choices = made.layer.top_k,
                               .rows_per_block = made.rows,
                               .valid_rows = made.valid_rows};
    ASSERT_EQ(FindFirstRows(placed.cells, first_rows.data(), nullptr), OkStatus());
    ASSERT_EQ(FindPlaces(pairs, placed, rows.address, places.data(), nullptr, nullptr), OkStatus());
    ASSERT_EQ(cuda::SumOverNodes(pairs, places.data(), placed.data, gradient.data(), nullptr), OkStatus());
    EXPECT_EQ(gradient.Read(), expected);
  });
}

}  // namespace
}  // namespace moeplan::executor::cuda
