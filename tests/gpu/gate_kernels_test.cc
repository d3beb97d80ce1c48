// The gate against the host kernels: choices, slots, counts and weights alike, gradients as near as another order of
// sums is.
#include "executor/cuda/gate_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "executor/cuda/grouped_gemm.h"
#include "executor/cuda/launch.h"
#include "executor/host/gating.h"
#include "models/text.h"
#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

struct GateCase {
  Layer layer;
  GateShape shape;
  TokenRows tokens;
  int own_block = 0, capacity = 0;
  // In a part of a source batch, the counts of earlier parts, and behind them how many tokens those have. Empty: not
  // one.
  std::vector<int32_t> earlier;
  LayerWeights weights;
  ByteVector input;

  size_t rows() const { return static_cast<size_t>(tokens.blocks) * tokens.rows_per_block; }
  size_t pairs() const { return rows() * shape.choices; }
};

constexpr GateKind kGates[] = {GateKind::kTopK,         GateKind::kSwitch, GateKind::kBatchPrioritized,
                               GateKind::kExpertChoice, GateKind::kRandom, GateKind::kHash};
// Those that may gate a slice.
constexpr GateKind kSlicedGates[] = {GateKind::kTopK, GateKind::kSwitch, GateKind::kRandom, GateKind::kHash};

int RandomDivisor(std::mt19937_64& random, int number) {
  int divisor = Between(random, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// Now and then the default.
Router RandomRouter(std::mt19937_64& random, int experts, int choices) {
  if (random() % 4 == 0) return {};
  const auto coin = [&] { return random() % 2 == 0; };
  Router router = {.score_function = coin() ? ScoreFunction::kSigmoid : ScoreFunction::kSoftmax,
                   .raw_weights = coin(),
                   .weight_scale = coin() ? 1 : 2.3,
                   .bias = coin(),
                   .weighs_input = choices == 1 && coin()};
  router.correction_bias = router.score_function == ScoreFunction::kSigmoid && coin();
  const int of_group = RandomDivisor(random, experts);
  if (router.correction_bias && of_group == 1) return router;
  router.expert_groups = experts / of_group;
  router.groups_per_token = Between(random, (choices + of_group - 1) / of_group, router.expert_groups);
  return router;
}

// The tensors of a layer's router, in memory of the device.
class GateOnDevice {
 public:
  explicit GateOnDevice(const LayerWeights& weights)
      : weight_(weights.gate), bias_(weights.gate_bias), correction_bias_(weights.correction_bias) {
    view_ = {.weight = weight_.data(),
             .bias = weights.gate_bias.empty() ? nullptr : bias_.data(),
             .correction_bias = weights.correction_bias.empty() ? nullptr : correction_bias_.data()};
  }

  const DeviceGate& view() const { return view_; }

 private:
  const OnDevice<float> weight_, bias_, correction_bias_;
  DeviceGate view_;
};

// Some rows are equal, so that there are ties between tokens; some experts have equal weights. TOP_K is one of `gates`,
// and more often than others.
GateCase RandomCase(std::mt19937_64& random, int least_tokens, int most_tokens, std::span<const GateKind> gates,
                    int experts, int columns) {
  GateCase made;
  const RowShape rows = {.type = RandomType(random), .columns = columns};
  const GateKind gate = random() % 3 == 0 ? GateKind::kTopK : gates[random() % gates.size()];
  made.layer = {.batch = 1,
                .model_dim = rows.columns,
                .hidden_dim = 1,
                .experts = experts,
                .top_k = gate == GateKind::kSwitch || random() % 4 == 0 ? 1 : Between(random, 1, std::min(experts, 6)),
                .capacity_factor = 1,
                .bytes_per_element = rows.element_bytes(),
                .gate = gate,
                .aux_loss_coefficient = 0.5,
                .z_loss_coefficient = 0.25};
  if (gate == GateKind::kTopK) made.layer.router = RandomRouter(random, experts, made.layer.top_k);
  const Router& router = made.layer.router;
  made.shape = {.rows = rows, .experts = experts, .choices = RoutingWidth(made.layer), .gate = gate, .router = router};
  made.tokens = {.blocks = Between(random, 1, 3), .rows_per_block = Between(random, least_tokens, most_tokens)};
  made.tokens.first_token = Between(random, 0, 50);
  made.tokens.valid_rows =
      Between(random, random() % 8 == 0 ? 0 : made.tokens.rows_per_block, made.tokens.rows_per_block);
  made.own_block = Between(random, 0, made.tokens.blocks - 1);
  made.capacity = Between(random, 1, 1 + made.tokens.rows_per_block * made.shape.choices / experts);
  made.weights.gate = RandomValues(random, static_cast<size_t>(experts) * rows.columns);
  std::vector<float> input = RandomValues(random, made.rows() * rows.columns);
  for (size_t row = 1; row < made.rows(); ++row) {
    if (random() % 4 == 0) std::copy_n(input.begin(), rows.columns, input.begin() + row * rows.columns);
  }
  if (random() % 3 == 0) std::copy_n(made.weights.gate.begin(), rows.columns, made.weights.gate.end() - rows.columns);
  if (router.bias) made.weights.gate_bias = RandomValues(random, experts);
  if (router.correction_bias) made.weights.correction_bias = RandomValues(random, experts);
  made.input = ElementBytes(input, rows.type);
  return made;
}

GateCase RandomCase(std::mt19937_64& random, int least_tokens, int most_tokens, std::span<const GateKind> gates) {
  // The limits of each group of lanes (executor/cuda/token_scores.cuh) and something between them.
  constexpr int kExperts[] = {1, 2, 5, 8, 9, 12, 16, 17, 30, 32, 33, 64, 65, 100, 128, 129, 256, 300};
  const int experts = kExperts[random() % std::size(kExperts)];
  return RandomCase(random, least_tokens, most_tokens, gates, experts, RandomColumns(random));
}

// Makes it a part behind others, which have taken some of the slots.
void MakePart(std::mt19937_64& random, GateCase& test) {
  for (int i = 0; i < test.tokens.blocks * test.shape.experts; ++i) {
    test.earlier.push_back(Between(random, 0, test.capacity + 2));
  }
  test.earlier.push_back(Between(random, 1, 99));
}

CarriedCounts CarriedOf(const GateCase& test, const int32_t* earlier, int32_t* now) {
  if (test.earlier.empty()) return {};
  return {.first_token = earlier + test.earlier.size() - 1, .earlier = earlier, .now = now, .slots = test.capacity + 1};
}

// What a gate writes.
struct Routed {
  explicit Routed(const GateCase& test)
      : expert(PoisonedValues<int32_t>(test.pairs())),
        slot(expert),
        counts(PoisonedValues<int32_t>(test.shape.experts)),
        now(PoisonedValues<int32_t>(test.earlier.size())),
        weight(PoisonedValues<float>(test.pairs())),
        sums(PoisonedValues<double>(RouterSums::Count(test.shape.experts))) {}

  GateArgs ArgsOf(const GateCase& test, std::byte* data) {
    GateArgs args = {.tokens = test.tokens,
                     .routing = {expert.data(), slot.data(), weight.data()},
                     .capacity = test.capacity,
                     .carried = CarriedOf(test, test.earlier.data(), now.data()),
                     .own_block = test.own_block,
                     .counts = counts.data(),
                     .sums = RouterSums::At(sums.data(), test.shape.experts)};
    args.tokens.data = data;
    return args;
  }

  std::vector<int32_t> expert, slot, counts, now;
  std::vector<float> weight;
  std::vector<double> sums;
};

Routed OnTheHost(GateCase& test) {
  Routed routed(test);
  HostReference reference(test.layer, test.weights);
  reference.kernels().Gate(routed.ArgsOf(test, test.input.data()), reference.stream());
  reference.Finish();
  return routed;
}

Routed OnTheDevice(const GateCase& test) {
  Routed routed(test);
  const OnDevice<std::byte> input(test.input);
  const GateOnDevice gate(test.weights);
  const OnDevice<float> weight(routed.weight);
  const OnDevice<int32_t> expert(routed.expert), slot(routed.slot), counts(routed.counts);
  const OnDevice<int32_t> earlier(test.earlier), now(routed.now);
  const OnDevice<double> sums(routed.sums);
  const OnDevice<std::byte> scratch(Poisoned(GateScratch::Bytes(test.shape, test.tokens)));
  GateArgs args = routed.ArgsOf(test, input.data());
  args.routing = {expert.data(), slot.data(), weight.data()};
  args.counts = counts.data();
  args.carried = CarriedOf(test, earlier.data(), now.data());
  args.sums = RouterSums::At(sums.data(), test.shape.experts);
  EXPECT_EQ(Gate(test.shape, gate.view(), args, GateScratch::At(scratch.data(), test.shape, test.tokens), nullptr),
            OkStatus());
  routed.expert = expert.Read();
  routed.slot = slot.Read();
  routed.weight = weight.Read();
  routed.counts = counts.Read();
  routed.now = now.Read();
  routed.sums = sums.Read();
  return routed;
}

void ExpectAllNear(const std::vector<float>& found, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;  // Poison.
    ASSERT_LE(std::abs(found[i] - expected[i]), tolerance * std::max(1.0F, std::abs(expected[i]))) << "value " << i;
  }
}

class GateKernelsTest : public DeviceTest {};

#ifdef MOEPLAN_SANITIZED
constexpr int kCases = 8;  // Threads of kernels that run on the CPU take turns slowly there.
#else
constexpr int kCases = 60;
#endif

TEST_F(GateKernelsTest, TokensChooseAndPairsTakeSlotsAsOnTheHost) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFatalFailure(); ++i) {
    const bool is_part = i % 2 == 0;
    GateCase test = RandomCase(random, 1, i % 4 == 0 ? 900 : 150,
                               is_part ? std::span<const GateKind>(kSlicedGates) : std::span<const GateKind>(kGates));
    if (is_part) MakePart(random, test);
    const Routed expected = OnTheHost(test), found = OnTheDevice(test);
    ASSERT_EQ(found.expert, expected.expert) << "case " << i;
    ASSERT_EQ(found.slot, expected.slot) << "case " << i;
    ASSERT_EQ(found.counts, expected.counts) << "case " << i;
    ASSERT_EQ(found.now, expected.now) << "case " << i;
    ASSERT_EQ(std::memcmp(found.weight.data(), expected.weight.data(), found.weight.size() * sizeof(float)), 0) << i;
    for (size_t sum = 0; sum < found.sums.size(); ++sum) {
      ASSERT_NEAR(found.sums[sum], expected.sums[sum], 1e-5 * std::max(1.0, std::abs(expected.sums[sum]))) << sum;
    }
  }
}

TEST_F(GateKernelsTest, LogitsHaveTheBitsOfTheHost) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFatalFailure(); ++i) {
    GateCase test = RandomCase(random, 1, 70, kGates);
    // Without whole accesses, one column more or less than a tile has, several tiles; or a buffer that begins anywhere.
    constexpr int kColumns[] = {1, 7, 8, 12, 31, 32, 33, 40, 64, 100, 264};
    const int columns = test.shape.rows.columns = kColumns[i % std::size(kColumns)];
    const ElementType type = test.shape.rows.type;
    test.input = ElementBytes(RandomValues(random, test.rows() * columns), type);
    test.weights.gate = RandomValues(random, static_cast<size_t>(test.shape.experts) * columns);
    const size_t offset = random() % 2 == 0 ? BytesOf(type) : 0;
    ByteVector shifted(offset);
    shifted.insert(shifted.end(), test.input.begin(), test.input.end());
    const OnDevice<std::byte> input(shifted);
    const GateOnDevice gate(test.weights);
    const OnDevice<std::byte> memory(Poisoned(GateScratch::Bytes(test.shape, test.tokens)));
    test.tokens.data = input.data() + offset;
    ASSERT_EQ(GateLogits(test.shape, gate.view(), test.tokens, GateScratch::At(memory.data(), test.shape, test.tokens),
                         nullptr),
              OkStatus());
    const std::vector<float> tokens = ValuesOf(test.input, type);
    const std::vector<std::byte> found = memory.Read();
    std::vector<float> logits(test.shape.experts);
    for (size_t row = 0; row < test.rows(); ++row) {
      executor::GateLogits(std::span(tokens).subspan(row * columns, columns), LayerWeightsView(test.weights).router(),
                           logits);
      ASSERT_EQ(
          std::memcmp(found.data() + row * logits.size() * sizeof(float), logits.data(), logits.size() * sizeof(float)),
          0)
          << "case " << i << " row " << row;
    }
  }
}

// Routes logits that are given instead of those of tokens.
Routed RouteOnTheDevice(const GateShape& shape, const std::vector<float>& correction_bias,
                        const std::vector<float>& logits, int tokens, int capacity) {
  GateCase test{.shape = shape, .tokens = {.rows_per_block = tokens, .valid_rows = tokens}, .capacity = capacity};
  Routed routed(test);
  const OnDevice<std::byte> scratch_memory(Poisoned(GateScratch::Bytes(shape, test.tokens)));
  const GateScratch scratch = GateScratch::At(scratch_memory.data(), shape, test.tokens);
  EXPECT_EQ(cudaMemcpy(scratch.logits, logits.data(), logits.size() * sizeof(float), cudaMemcpyHostToDevice),
            cudaSuccess);
  const OnDevice<int32_t> expert(routed.expert), slot(routed.slot), counts(routed.counts);
  const OnDevice<float> weight(routed.weight), bias(correction_bias);
  const OnDevice<double> sums(routed.sums);
  GateArgs args = routed.ArgsOf(test, nullptr);
  args.routing = {expert.data(), slot.data(), weight.data()};
  args.counts = counts.data();
  args.sums = RouterSums::At(sums.data(), shape.experts);
  EXPECT_EQ(Route(shape, correction_bias.empty() ? nullptr : bias.data(), args, scratch, nullptr), OkStatus());
  routed.expert = expert.Read();
  routed.slot = slot.Read();
  routed.weight = weight.Read();
  routed.counts = counts.Read();
  routed.sums = sums.Read();
  return routed;
}

// Looks at what RouteOnTheDevice finds token by token. A correction bias is drawn.
void ExpectRoutedOneByOne(std::mt19937_64& random, const GateShape& shape, const std::vector<float>& logits, int tokens,
                          int capacity) {
  std::vector<float> correction_bias;
  if (shape.router.correction_bias) correction_bias = RandomValues(random, shape.experts);
  const Routed found = RouteOnTheDevice(shape, correction_bias, logits, tokens, capacity);
  const int experts = shape.experts, choices = shape.choices;
  const Layer layer = {.experts = experts, .top_k = choices, .gate = shape.gate, .router = shape.router};
  std::vector<int32_t> counts(experts, 0), chosen(choices);
  std::vector<float> scores(experts), weights(choices), keys(experts + shape.router.expert_groups);
  std::vector<double> probability(experts, 0);
  double entropy = 0, squared = 0;
  for (int token = 0; token < tokens; ++token) {
    const std::span<const float> own = std::span(logits).subspan(static_cast<size_t>(token) * experts, experts);
    const GateScore score = Scores(layer, own, scores);
    entropy += score.entropy;
    squared += score.log_sum_exp * score.log_sum_exp;
    for (int expert = 0; expert < experts; ++expert) probability[expert] += scores[expert] * score.probability;
    ChooseExperts(layer, {.logits = own, .scores = scores}, correction_bias, keys, chosen, weights);
    for (int choice = 0; choice < choices; ++choice) {
      const size_t pair = static_cast<size_t>(token) * choices + choice;
      const int slot = counts[chosen[choice]]++;
      ASSERT_EQ(found.expert[pair], chosen[choice]) << "token " << token << " choice " << choice;
      ASSERT_EQ(found.slot[pair], slot < capacity ? slot : -1) << "token " << token << " choice " << choice;
      if (std::isnan(weights[choice])) {
        ASSERT_TRUE(std::isnan(found.weight[pair])) << token;
      } else {
        ASSERT_EQ(found.weight[pair], weights[choice]) << "token " << token << " choice " << choice;
      }
    }
  }
  EXPECT_EQ(found.counts, counts);
  const RouterSums sums = RouterSums::At(const_cast<double*>(found.sums.data()), experts);
  if (!std::isnan(entropy)) {
    EXPECT_NEAR(*sums.entropy, entropy, 1e-5 * entropy + 1e-6);
    EXPECT_NEAR(*sums.squared_log_sum_exp, squared, 1e-5 * squared);
    for (int i = 0; i < experts; ++i) EXPECT_NEAR(sums.probability[i], probability[i], 1e-5 * probability[i] + 1e-6);
  }
}

TEST_F(GateKernelsTest, EveryNumberOfExpertsUpToTheLimitIsRouted) {
  std::mt19937_64 random(TestSeed());
  constexpr int kMost = 2045;
  ASSERT_EQ(CheckGate({.experts = kMost, .choices = kMost}), OkStatus());
  for (int experts = 1; experts <= kMost && !HasFatalFailure(); experts += experts < 70 ? 1 : 197) {
    SCOPED_TRACE(experts);
    const int tokens = Between(random, 1, 90);
    GateShape shape = {.experts = experts, .choices = Between(random, 1, std::min(experts, 9))};
    shape.router = RandomRouter(random, experts, shape.choices);
    std::vector<float> logits = RandomValues(random, static_cast<size_t>(tokens) * experts);
    for (float& logit : logits) logit *= 20;
    for (size_t i = 1; i < logits.size(); ++i) {
      if (random() % 4 == 0) logits[i] = logits[random() % i];
    }
    ExpectRoutedOneByOne(random, shape, logits, tokens, /*capacity=*/1 + tokens * shape.choices / experts);
  }
  const std::vector<float> logits = RandomValues(random, kMost);
  ExpectRoutedOneByOne(random, {.experts = kMost, .choices = kMost}, logits, 1, 1);
}

constexpr Router kDeepSeekV3 = {.score_function = ScoreFunction::kSigmoid,
                                .weight_scale = 2.5,
                                .expert_groups = 8,
                                .groups_per_token = 4,
                                .correction_bias = true};

TEST_F(GateKernelsTest, GroupsOfEveryNumberOfLanesAreChosen) {
  std::mt19937_64 random(TestSeed());
  for (const int experts : {16, 32, 64, 128, 256, 384, 1024, 2040}) {
    for (const bool corrected : {true, false}) {
      SCOPED_TRACE(StrCat(experts, corrected ? " corrected" : ""));
      GateShape shape = {.experts = experts, .choices = 8, .router = kDeepSeekV3};
      shape.router.correction_bias = corrected;
      constexpr int kTokens = 40;
      ExpectRoutedOneByOne(random, shape, RandomValues(random, static_cast<size_t>(kTokens) * experts), kTokens,
                           /*capacity=*/kTokens / 2);
    }
  }
}

TEST_F(GateKernelsTest, LogitsThatAreNoNumbersArePassedOver) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kOdd[] = {kNan, -kInfinity, kInfinity, 0.0F, -0.0F, -300, 1};
  std::mt19937_64 random(TestSeed());
  for (const int experts : {1, 3, 4, 8, 13, 16, 31, 64, 100, 256, 400}) {
    SCOPED_TRACE(experts);
    constexpr int kTokens = 70;
    GateShape shape = {.experts = experts, .choices = std::min(experts, 4)};
    std::vector<float> logits(static_cast<size_t>(kTokens) * experts);
    for (int token = 0; token < kTokens; ++token) {
      // Of the first tokens all logits are odd, of others few or none.
      const int every = token < 20 ? 1 : token < 40 ? 20 : 1 << 20;
      for (int i = 0; i < experts; ++i) {
        const bool is_odd = random() % every == 0;
        logits[token * experts + i] = is_odd ? kOdd[random() % (token < 5 ? 1 : 7)] : Between(random, -9, 9) / 3.0F;
      }
    }
    ExpectRoutedOneByOne(random, shape, logits, kTokens, /*capacity=*/20);
    for (int i = 0; i < 4; ++i) {
      shape.router = RandomRouter(random, experts, shape.choices);
      ExpectRoutedOneByOne(random, shape, logits, kTokens, /*capacity=*/20);
    }
  }
}

TEST_F(GateKernelsTest, ManyTokensTakeTheirSlotsInTurn) {
  // More than kMostGateBlocks blocks have threads, so that a thread has two tokens.
#ifdef MOEPLAN_SANITIZED
  constexpr int kTokens = 9000;
#else
  constexpr int kTokens = kMostGateBlocks * kGateThreads + 5000;
#endif
  std::mt19937_64 random(TestSeed());
  const std::vector<float> logits = RandomValues(random, kTokens * 3);
  ExpectRoutedOneByOne(random, {.experts = 3, .choices = 2}, logits, kTokens, kTokens / 2);
}

TEST_F(GateKernelsTest, SlotsOfASliceAreThoseThatCapacityLeaves) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFatalFailure(); ++i) {
    GateCase test = RandomCase(random, 1, 150, kSlicedGates);
    test.tokens.blocks = 1;
    test.own_block = 0;
    const int slices = Between(random, 1, 4), own_slice = Between(random, 0, slices - 1);
    const int experts_per_rank = test.shape.experts % 2 == 0 ? test.shape.experts / 2 : test.shape.experts;
    const int capacity = test.capacity;
    const ChunkUnits units = RandomUnits(random);
    test.capacity = 1 << 30;
    Routed routed = OnTheHost(test);
    std::vector<int32_t> all_counts(static_cast<size_t>(slices) * test.shape.experts);
    for (int32_t& count : all_counts) count = Between(random, 0, capacity);
    std::ranges::copy(routed.counts, all_counts.begin() + static_cast<int64_t>(own_slice) * test.shape.experts);
    std::vector<int32_t> send_counts = PoisonedValues<int32_t>(static_cast<size_t>(test.shape.experts) * units.chunks);

    test.capacity = capacity;
    if (i % 2 == 0) MakePart(random, test);
    routed.now = PoisonedValues<int32_t>(test.earlier.size());

    const OnDevice<int32_t> expert(routed.expert), slot(routed.slot), counts(all_counts), sent(send_counts);
    const OnDevice<int32_t> earlier(test.earlier), now(routed.now);
    const OnDevice<double> sums(routed.sums);
    AssignSlotsArgs args = {.all_counts = all_counts.data(),
                            .slices = slices,
                            .own_slice = own_slice,
                            .capacity = capacity,
                            .carried = CarriedOf(test, test.earlier.data(), routed.now.data()),
                            .tokens = test.tokens,
                            .routing = {routed.expert.data(), routed.slot.data(), routed.weight.data()},
                            .experts_per_rank = experts_per_rank,
                            .units = units,
                            .send_counts = send_counts.data(),
                            .sums = RouterSums::At(routed.sums.data(), test.shape.experts)};
    HostReference reference(test.layer, test.weights);
    reference.kernels().AssignSlots(args, reference.stream());
    reference.Finish();

    args.all_counts = counts.data();
    args.routing = {expert.data(), slot.data(), nullptr};
    args.send_counts = sent.data();
    args.carried = CarriedOf(test, earlier.data(), now.data());
    args.sums = RouterSums::At(sums.data(), test.shape.experts);
    ASSERT_EQ(AssignSlots(test.shape, args, nullptr), OkStatus());
    ASSERT_EQ(slot.Read(), routed.slot) << "case " << i;
    ASSERT_EQ(sent.Read(), send_counts) << "case " << i;
    ASSERT_EQ(now.Read(), routed.now) << "case " << i;
    ASSERT_EQ(sums.Read(), routed.sums) << "case " << i;
  }
}

TEST_F(GateKernelsTest, GradientsAreThoseOfTheHost) {
  std::mt19937_64 random(TestSeed());
  const StatusOr<std::unique_ptr<GroupedGemm>> gemm = GroupedGemm::Make();
  ASSERT_TRUE(gemm.ok());
  for (int i = 0; i < kCases && !HasFatalFailure(); ++i) {
    // Now and then there are more tokens than one part of the gradient of the gate's weights sums up, and at first more
    // than the gradients of tokens that are made at a time: 16 MiB of floats are 8,064 rows of 520.
    GateCase test = i == 0        ? RandomCase(random, 8100, 8200, kGates, /*experts=*/3, /*columns=*/520)
                    : i % 10 == 1 ? RandomCase(random, 600, 1100, kGates)
                                  : RandomCase(random, 1, 100, kGates);
    if (i == 0) test.tokens.valid_rows = test.tokens.rows_per_block;
    test.tokens.blocks = 1;
    test.own_block = 0;
    Routed routed = OnTheHost(test);
    const ElementType type = test.shape.rows.type;
    const size_t values = test.rows() * test.shape.rows.columns;
    std::vector<float> routing_gradient = RandomValues(random, test.pairs());
    // Where its product with the token is the gradient of a weight, that is about 1, too.
    std::vector<float> of_experts = RandomValues(random, values);
    const bool weighs_input = test.layer.router.weighs_input;
    for (float& value : of_experts) value /= weighs_input ? std::sqrt(static_cast<float>(test.shape.rows.columns)) : 1;
    const ByteVector tokens_gradient = ElementBytes(of_experts, type);
    const ByteVector shared_gradient = ElementBytes(RandomValues(random, values), type);
    const bool has_shared = random() % 2 == 0, has_counts = random() % 2 == 0;
    std::vector<int32_t> pair_counts(has_counts ? test.shape.experts * Between(random, 1, 3) : 0);
    for (int32_t& count : pair_counts) count = Between(random, 1, 9);

    ByteVector in_gradient = Poisoned(values * BytesOf(type));
    std::vector<float> gate_gradient = PoisonedValues<float>(GateGradientValues(test.layer));
    GateGradientArgs args = {.tokens = test.tokens,
                             .routing = {routed.expert.data(), routed.slot.data(), routed.weight.data()},
                             .routing_gradient = weighs_input ? nullptr : routing_gradient.data(),
                             .tokens_gradient = tokens_gradient.data(),
                             .shared_gradient = has_shared ? shared_gradient.data() : nullptr,
                             .in_gradient = in_gradient.data(),
                             .gate_gradient = gate_gradient.data(),
                             .batch_tokens = test.tokens.rows_per_block,
                             .pair_counts = pair_counts};
    args.tokens.data = test.input.data();
    HostReference reference(test.layer, test.weights);
    reference.kernels().GateGradient(args, reference.stream());
    reference.Finish();

    const OnDevice<std::byte> input(test.input), of_tokens(tokens_gradient), of_shared(shared_gradient);
    const OnDevice<std::byte> found_in(Poisoned(in_gradient.size()));
    const OnDevice<std::byte> scratch(Poisoned(GateGradientScratch::Bytes(test.shape, test.tokens)));
    const GateOnDevice gate(test.weights);
    const OnDevice<float> of_routing(routing_gradient), weight(routed.weight);
    const OnDevice<float> found_gate(PoisonedValues<float>(gate_gradient.size()));
    const OnDevice<int32_t> expert(routed.expert), slot(routed.slot), counts(pair_counts);
    args.tokens.data = input.data();
    args.routing = {expert.data(), slot.data(), weight.data()};
    if (!weighs_input) args.routing_gradient = of_routing.data();
    args.tokens_gradient = of_tokens.data();
    args.shared_gradient = has_shared ? of_shared.data() : nullptr;
    args.in_gradient = found_in.data();
    args.gate_gradient = found_gate.data();
    args.pair_counts = {counts.data(), pair_counts.size()};
    const RouterLosses losses = {test.layer.aux_loss_coefficient, test.layer.z_loss_coefficient};
    const auto run = [&] {
      EXPECT_EQ(GateGradient(test.shape, WeightsOf(test.layer), losses, gate.view(), args,
                             GateGradientScratch::At(scratch.data(), test.shape, test.tokens), **gemm, nullptr),
                OkStatus());
      return std::pair(found_gate.Read(), found_in.Read());
    };
    const auto [of_gate, of_input] = run();
    // Against sums of so many products of values of about 1.
    ExpectAllNear(of_gate, gate_gradient, 1e-4 * std::max(1.0, test.tokens.valid_rows / 700.0));
    ExpectAllNear(ValuesOf(of_input, type), ValuesOf(in_gradient, type), type == ElementType::kFloat32 ? 1e-4 : 1e-2);
    const auto [of_gate_again, of_input_again] = run();
    ASSERT_EQ(std::memcmp(of_gate_again.data(), of_gate.data(), of_gate.size() * sizeof(float)), 0) << "case " << i;
    ASSERT_TRUE(of_input_again == of_input) << "case " << i;
  }
}

TEST_F(GateKernelsTest, MoreExpertsThanABlockHasRoomForAreRefused) {
  EXPECT_EQ(CheckGate({.experts = 256}), OkStatus());
  EXPECT_EQ(CheckGate({.experts = 2048}), OkStatus());
  EXPECT_EQ(CheckGate({.experts = 2049}).code(), StatusCode::kInvalidInput);
  // 2 · 2048 + 2 numbers for experts and 4 · 2048 for choices are 8 bytes more than 48 KiB.
  EXPECT_EQ(CheckGate({.experts = 2048, .choices = 2048}).code(), StatusCode::kInvalidInput);
  EXPECT_EQ(CheckGate({.experts = 2048, .choices = 2048, .gate = GateKind::kExpertChoice}), OkStatus());
  EXPECT_EQ(CheckGate({.experts = 100000}).code(), StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace moeplan::executor::cuda
