// The experts of a backend, routed and shared, against the same mathematics in double, written out element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "executor/host/elements.h"
#include "executor/host/host_device.h"
#include "executor/host/host_kernels.h"
#include "tests/executor/job_runner.h"

namespace moeplan::executor {
namespace {

double BiasAt(const std::vector<float>& biases, int expert, int columns, int column) {
  return biases.empty() ? 0 : biases[expert * columns + column];
}

// Row `row` of `input` through expert `expert` of `full`.
std::vector<double> PlainFeedForward(const Layer& layer, const ExpertWeights& full, int expert,
                                     const std::vector<float>& input, int row) {
  const int model = layer.model_dim, hidden = full.shard.hidden;
  const auto product = [&](const std::vector<float>& matrix, const std::vector<float>& bias, int column) {
    double sum = BiasAt(bias, expert, hidden, column);
    for (int i = 0; i < model; ++i) {
      sum += static_cast<double>(input[row * model + i]) * matrix[(expert * model + i) * hidden + column];
    }
    return sum;
  };
  std::vector<double> output(model);
  for (int i = 0; i < model; ++i) output[i] = BiasAt(full.down_bias, expert, model, i);
  for (int column = 0; column < hidden; ++column) {
    double active = product(full.up, full.up_bias, column);
    if (layer.expert_matrices == 3) {
      const double gate = product(full.gate_up, full.gate_up_bias, column);
      active *= gate / (1 + std::exp(-gate));
    } else {
      active *= 0.5 * (1 + std::erf(active / std::sqrt(2.0)));
    }
    for (int i = 0; i < model; ++i) output[i] += active * full.down[(expert * hidden + column) * model + i];
  }
  return output;
}

// The rows of every expert on one shard, in float.
class ShardRun {
 public:
  ShardRun(const Layer& layer, const Layout& layout, int rank, uint64_t seed)
      : layer_(layer),
        weights_(MakeWeights(layer, ShardOf(layer, layout, rank), seed)),
        device_(MakeHostDevice()),
        stream_(device_->MakeStream("experts", StreamPriority::kNormal)),
        kernels_(MakeHostKernels(layer, weights_).value()) {}

  std::vector<float> Experts(std::vector<float> input, int rows) {
    std::vector<float> output(input.size());
    std::vector<std::vector<CellPair>> pairs(layer_.experts);
    for (int expert = 0; expert < layer_.experts; ++expert) pairs[expert] = {{expert, expert}};
    const auto slots = [&](std::vector<float>& data) {
      return SlotRows{.data = reinterpret_cast<std::byte*>(data.data()),
                      .cells = {.cells_per_block = layer_.experts, .rows_per_cell = rows},
                      .address = {}};
    };
    kernels_->Expert(slots(input), slots(output), /*hidden=*/nullptr, pairs, *stream_);
    EXPECT_TRUE(device_->Synchronize().ok());
    return output;
  }

  std::vector<float> Shared(std::vector<float> input, int rows) {
    std::vector<float> output(input.size());
    const auto tokens = [&](std::vector<float>& data) {
      return TokenRows{.data = reinterpret_cast<std::byte*>(data.data()), .rows_per_block = rows, .valid_rows = rows};
    };
    kernels_->SharedExpert(tokens(input), tokens(output), /*hidden=*/nullptr, *stream_);
    EXPECT_TRUE(device_->Synchronize().ok());
    return output;
  }

 private:
  const Layer layer_;
  const LayerWeights weights_;
  const std::unique_ptr<HostDevice> device_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Kernels> kernels_;
};

struct Variant {
  int matrices;
  bool bias;
  int shards;  // Uneven cuts of both hidden dimensions.
};

std::ostream& operator<<(std::ostream& out, const Variant& variant) {
  return out << (variant.matrices == 3 ? "SwiGlu" : "Gelu") << (variant.bias ? "Bias" : "")
             << (variant.shards > 1 ? "Shards" : "");
}

class FeedForwardTest : public ::testing::TestWithParam<Variant> {
 protected:
  static constexpr int kRows = 5;
  static constexpr uint64_t kSeed = 3;
  const Variant variant_ = GetParam();
  const Layer layer_ = {.batch = 1,
                        .sequence_length = kRows * 3,
                        .model_dim = 6,
                        .hidden_dim = 11,
                        .experts = 3,
                        .top_k = 1,
                        .capacity_factor = 1,
                        .bytes_per_element = 4,
                        .expert_matrices = variant_.matrices,
                        .expert_bias = variant_.bias,
                        .shared_hidden_dim = 7};
  const LayerWeights full_ = MakeWeights(layer_, ShardOf(layer_, {}, 0), kSeed);
  const std::vector<float> input_ = MakeInput(layer_, {}, 0, kSeed);

  // The sum over shards of what `run` gives.
  template <typename Run>
  std::vector<double> SumOfShards(const Layout& layout, Run run) const {
    std::vector<double> sum(input_.size(), 0);
    for (int rank = 0; rank < variant_.shards; ++rank) {
      ShardRun shard(layer_, layout, rank, kSeed);
      const std::vector<float> part = run(shard);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return sum;
  }

  // Row i of `found` is that of expert_of(i).
  template <typename ExpertOf>
  void ExpectPlain(const std::vector<double>& found, const ExpertWeights& full, ExpertOf expert_of) const {
    for (int row = 0; row < layer_.sequence_length; ++row) {
      const std::vector<double> plain = PlainFeedForward(layer_, full, expert_of(row), input_, row);
      for (int i = 0; i < layer_.model_dim; ++i) {
        EXPECT_NEAR(found[row * layer_.model_dim + i], plain[i], 1e-5) << "row " << row;
      }
    }
  }
};

TEST_P(FeedForwardTest, ShardsOfTheExpertsAddUpToThePlainOnes) {
  const Layout layout{.expert_sharding_parallel = variant_.shards};
  const auto found = SumOfShards(layout, [&](ShardRun& shard) { return shard.Experts(input_, kRows); });
  ExpectPlain(found, full_.experts, [](int row) { return row / kRows; });
}

TEST_P(FeedForwardTest, PartsOfTheSharedExpertAddUpToThePlainOne) {
  const Layout layout{.tensor_parallel = variant_.shards};
  const auto found = SumOfShards(layout, [&](ShardRun& shard) { return shard.Shared(input_, layer_.sequence_length); });
  ExpectPlain(found, full_.shared, [](int) { return 0; });
}

INSTANTIATE_TEST_SUITE_P(Variants, FeedForwardTest,
                         ::testing::Values(Variant{2, false, 1}, Variant{2, true, 1}, Variant{3, false, 1},
                                           Variant{3, true, 1}, Variant{2, true, 4}, Variant{3, true, 4}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace moeplan::executor
