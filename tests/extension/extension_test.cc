// The examples of docs/extending.md in a program that added them: what they do by themselves, and that they are among
// the candidates. That every candidate computes the same layer, theirs too, is equality_test.cc, which this program
// runs as well; that the planner chooses among them after a calibration is tests/e2e/extension_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "examples.h"
#include "executor/codec/codec.h"
#include "models/cost/operation.h"
#include "models/measurement/candidates.h"
#include "models/measurement/needs.h"
#include "models/own_names.h"
#include "models/timeline/pricer.h"
#include "tests/executor/job_runner.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Everything by way of the first rank, which so must know all sizes: no example, but it takes every turn that the
// others do not.
void ListRelay(const Exchange& exchange, int phase, PhaseList& list) {
  const int ranks = exchange.group.size;
  const bool relays = exchange.rank == 0;
  for (int to = 0; phase == 0 && to < ranks; ++to) list.SendBlock(/*peer=*/0, to);
  size_t offset = 0;
  for (int to = 0; relays && to < ranks; ++to) {
    for (int from = 0; from < ranks; ++from) {
      const size_t bytes = exchange.bytes(from, to);
      // In phase 0 in the order of the senders' sends, which is by receiver.
      if (phase == 0) list.ReceiveScratch(from, offset, bytes);
      if (phase == 1) list.SendScratch(to, offset, bytes);
      offset += bytes;
    }
  }
  for (int from = 0; phase == 1 && from < ranks; ++from) list.ReceiveBlocks(/*peer=*/0, from, 1);
}

Status AddRelay() {
  return RegisterAllToAll(
             {.name = "RELAY",
              .allowed =
                  [](const GroupShape& group) { return group.size > 1 ? OkStatus() : Infeasible("needs a peer"); },
              .phases =
                  [](const GroupShape&) {
                    return std::vector{Team::kGroup, Team::kGroup};
                  },
              .scratch_blocks = [](const GroupShape& group,
                                   int rank) { return rank == 0 ? group.size * group.size : 0; },
              .known_blocks = KnownBlocks::kAll,
              .messages = ListRelay})
      .status();
}

const Status kAdded = examples::AddAll();
const Status kRelayAdded = AddRelay();

template <typename Enum>
Enum Named(std::string_view name) {
  return NamedValue<Enum>(name).value();
}

TEST(ExtensionTest, TheExamplesAreAdded) {
  ASSERT_TRUE(kAdded.ok()) << kAdded.message();
  ASSERT_TRUE(kRelayAdded.ok()) << kRelayAdded.message();
}

TEST(ExtensionTest, ANameIsTakenOnce) {
  EXPECT_THAT(examples::AddFp4().message(), HasSubstr("found FP4 a second time"));
  EXPECT_THAT(examples::AddPairwise().message(), HasSubstr("found PAIRWISE a second time"));
  EXPECT_THAT(examples::AddSquaredRelu().message(), HasSubstr("found SQUARED_RELU a second time"));
  EXPECT_THAT(examples::AddShardGather().message(), HasSubstr("found SHARD_GATHER a second time"));
}

TEST(ExtensionTest, BadNamesAndMissingPartsAreRefused) {
  const auto named = [](std::string name) {
    OwnCodec codec = OwnCodecOf(Named<Codec>("FP4"));
    codec.name = std::move(name);
    return RegisterCodec(codec).status();
  };
  EXPECT_EQ(named("").code(), StatusCode::kInvalidInput);
  EXPECT_EQ(named("fp4").code(), StatusCode::kInvalidInput);
  EXPECT_EQ(named("4FP").code(), StatusCode::kInvalidInput);
  EXPECT_EQ(named(std::string(33, 'A')).code(), StatusCode::kInvalidInput);
  EXPECT_THAT(named("INT8").message(), HasSubstr("found INT8 a second time"));
  EXPECT_EQ(RegisterCodec({.name = "HALF"}).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(RegisterAllToAll({.name = "HALF"}).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(RegisterSchedule({.name = "HALF"}).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(RegisterExpert({.name = "HALF"}).status().code(), StatusCode::kInvalidInput);
  EXPECT_FALSE(NamedValue<Codec>("HALF"));
}

// A name that came later would be seen by some of the threads that read names, and not by others.
TEST(ExtensionTest, NamesThatComeAfterOthersWereReadAreRefused) {
  OwnCodec late = OwnCodecOf(Named<Codec>("FP4"));
  late.name = "LATE";
  const auto refused = [](const std::string& what) {
    return what +
           ": found a registration after registered names were read, expected all of them at the start of the program";
  };
  EXPECT_EQ(RegisterCodec(late).status().message(), refused("codec LATE"));
  EXPECT_FALSE(NamedValue<Codec>("LATE"));
  OwnExpert expert = OwnExpertOf(Named<ExpertKind>("SQUARED_RELU"));
  expert.name = "LATE";
  EXPECT_EQ(RegisterExpert(expert).status().message(), refused("expert LATE"));
  AllToAllDefinition exchange = DefinitionOf(Named<AllToAllAlgorithm>("RELAY"));
  exchange.name = "LATE";
  EXPECT_EQ(RegisterAllToAll(exchange).status().message(), refused("all-to-all LATE"));
}

TEST(ExtensionTest, Fp4KeepsToItsErrorBound) {
  std::mt19937_64 random(TestSeed());
  const auto codec = Named<Codec>("FP4");
  for (const int columns : {1, 2, 7, 64, 1001}) {
    const executor::ElementRowsShape shape = {.type = executor::ElementType::kFloat32, .rows = 3, .columns = columns};
    std::vector<float> row(static_cast<size_t>(3) * columns), decoded(row.size());
    for (float& value : row) value = std::uniform_real_distribution<float>(-5, 5)(random);
    std::vector<std::byte> code(3 * executor::EncodedRowBytes(codec, shape));
    EXPECT_EQ(executor::EncodedRowBytes(codec, shape), (4 + (columns + 1) / 2 + 3) / 4 * 4);
    ASSERT_TRUE(executor::Encode(codec, shape, reinterpret_cast<std::byte*>(row.data()), code.data()).ok());
    ASSERT_TRUE(executor::Decode(codec, shape, code.data(), reinterpret_cast<std::byte*>(decoded.data())).ok());
    const CodecErrorBound bound = ErrorBoundOf(codec, 4);
    double worst = 0;
    for (int start = 0; start < 3 * columns; start += columns) {
      float largest = 0;
      for (int i = start; i < start + columns; ++i) largest = std::max(largest, std::abs(row[i]));
      for (int i = start; i < start + columns; ++i) {
        worst = std::max(worst, std::abs(decoded[i] - row[i]) / static_cast<double>(largest));
      }
    }
    EXPECT_LE(worst, bound.relative) << columns;
    if (columns == 1001) {
      EXPECT_GT(worst, 0.9 * bound.relative);
    }
  }
}

TEST(ExtensionTest, SquaredReluSlopesAreItsSlopes) {
  const ExpertFunction& function = OwnExpertOf(Named<ExpertKind>("SQUARED_RELU")).function;
  constexpr double kStep = 1e-6;
  for (const double x : {-2.0, -0.1, 0.3, 4.0}) {
    EXPECT_NEAR(function.up_slope(x, 0), (function.value(x + kStep, 0) - function.value(x - kStep, 0)) / (2 * kStep),
                1e-6 * (1 + std::abs(x)));
  }
}

// Two shards of each expert on a node, two nodes.
Workload ShardedWorkload() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 128,
                    .model_dim = 64,
                    .hidden_dim = 64,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0,
                    .expert_kind = Named<ExpertKind>("SQUARED_RELU")};
  workload.layout = {.expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1024;
  workload.allow_lossy = true;
  return workload;
}

constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 2};

TEST(ExtensionTest, TheExamplesAreAmongTheCandidates) {
  const Workload workload = *ResolveWorkload(ShardedWorkload(), kCluster);
  const auto family = Named<Family>("SHARD_GATHER");
  EXPECT_THAT(Families(), Contains(family));
  EXPECT_GT(MaxPieces(family, workload), 1);
  EXPECT_THAT(VariantsOf(Family::kPipeline, workload.layout, 2),
              Contains(Knobs{.family = Family::kPipeline, .all_to_all = Named<AllToAllAlgorithm>("PAIRWISE")}));
  const auto fp4 = Named<Codec>("FP4");
  EXPECT_THAT(WithCodecs({.family = family}, workload),
              Contains(Knobs{.family = family, .dispatch_codec = fp4, .combine_codec = fp4}));
}

TEST(ExtensionTest, CalibrationsMeasureThem) {
  const Workload workload = *ResolveWorkload(ShardedWorkload(), kCluster);
  std::set<std::string> asked;
  for (const Need& need : NeedsOf({workload}, kCluster)) {
    if (const auto* kernel = std::get_if<KernelKey>(&need.key)) asked.emplace(Name(kernel->kernel));
    if (const auto* collective = std::get_if<CollectiveKey>(&need.key)) asked.emplace(Name(collective->algorithm));
  }
  for (const char* name : {"PAIRWISE", "ENCODE_FP4", "DECODE_FP4", "EXPERT_GEMM_SQUARED_RELU"}) {
    EXPECT_TRUE(asked.contains(name)) << name;
  }
  EXPECT_FALSE(asked.contains("EXPERT_GEMM"));
}

// What an own expert costs where less was measured than asked: its own products first, then those of FFN.
TEST(ExtensionTest, AnOwnExpertIsPricedByWhatIsMostLikeIt) {
  const auto kind = Named<ExpertKind>("SQUARED_RELU");
  const auto profile_with = [](std::vector<std::pair<Kernel, double>> betas) {
    Profile profile;
    for (const auto& [kernel, beta] : betas) {
      profile.kernels.push_back({{.kernel = kernel}, MakeCostModel(AlphaBeta{0, beta})});
    }
    return profile;
  };
  const KernelKey asked{.kernel = KernelOf(kind, Kernel::kExpertInputGradient)};
  const auto price = [&](const Profile& profile) { return Pricer(profile).Price(asked, 1).time_s; };
  const Kernel forward = KernelOf(kind, Kernel::kExpertGemm);
  EXPECT_EQ(price(profile_with(
                {{Kernel::kExpertGemm, 1}, {Kernel::kExpertInputGradient, 2}, {forward, 3}, {asked.kernel, 4}})),
            4);
  EXPECT_EQ(price(profile_with({{Kernel::kExpertGemm, 1}, {Kernel::kExpertInputGradient, 2}, {forward, 3}})), 3);
  EXPECT_EQ(price(profile_with({{Kernel::kExpertGemm, 1}, {Kernel::kExpertInputGradient, 2}})), 2);
  EXPECT_EQ(price(profile_with({{Kernel::kExpertGemm, 1}})), 1);
  // Slowed down as its forward products are.
  Profile profile = profile_with({{forward, 3}, {asked.kernel, 4}});
  profile.kernels.push_back(
      {{.kernel = forward, .contention = Contention::kWithAllToAll}, MakeCostModel(AlphaBeta{0, 6})});
  EXPECT_EQ(Pricer(profile).Slowdown(asked, Contention::kWithAllToAll, 1).mid, 2);
}

TEST(ExtensionTest, AnExpertOfThreeMatricesIsNotOneOfTwo) {
  Workload workload = ShardedWorkload();
  workload.layer.expert_matrices = 3;
  EXPECT_EQ(ResolveWorkload(workload, kCluster).status().message(),
            "layer.expertMatrices: found 3, expected 2, because layer.expertKind is SQUARED_RELU");
}

TEST(ExtensionTest, AScheduleThatIsNotAllowedSaysWhy) {
  Workload workload = ShardedWorkload();
  workload.layout = {.expert_parallel = 4};
  workload = *ResolveWorkload(workload, kCluster);
  EXPECT_THAT(FamilyAllowed(Named<Family>("SHARD_GATHER"), workload, kCluster).message(),
              HasSubstr("expertShardingParallel above 1"));
  EXPECT_EQ(AlgorithmAllowed(Named<AllToAllAlgorithm>("PAIRWISE"), {.size = 2, .ranks_per_node = 1}).message(),
            "allToAll: PAIRWISE needs a group of more than two ranks, found 2 ranks, 1 a node");
}

}  // namespace
}  // namespace moeplan
