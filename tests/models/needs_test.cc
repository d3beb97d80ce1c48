#include "models/measurement/needs.h"
#include "models/measurement/cost_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "models/all_to_all/algorithm.h"
#include "models/measurement/candidates.h"
#include "models/schedule/schedules.h"
#include "models/timeline/price.h"

namespace moeplan {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Not;

constexpr Cluster kTwoNodesOfTwo = {.nodes = 2, .gpus_per_node = 2};

// MP 2 = ESP 2 inside a node, EP 2 between nodes. I = B·L·M·bpe = 2·64·32·2 = 8192 bytes, k·f·I = 16384; chunks of at
// least 1 KiB of all-to-all, so I/(N·t) allows N = 1, 2, 4 and k·f·I/(N·t) N = 1 ... 8.
Workload Resolved() {
  Workload workload;
  workload.layer = {.batch = 2,
                    .sequence_length = 64,
                    .model_dim = 32,
                    .hidden_dim = 64,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1024;
  const auto resolved = ResolveWorkload(workload, kTwoNodesOfTwo);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return *resolved;
}

CostKey AllToAllOverEp(Contention contention = Contention::kNone) {
  return CollectiveKey{.collective = Collective::kAllToAll, .group = {2, 1}, .contention = contention};
}
CostKey AllGatherOverMp(Contention contention = Contention::kNone) {
  return CollectiveKey{.collective = Collective::kAllGather, .group = {2, 2}, .contention = contention};
}
CostKey Copy(Contention contention = Contention::kNone) {
  return KernelKey{.kernel = Kernel::kDeviceCopy, .contention = contention};
}

std::set<double> SizesAsked(const std::vector<Need>& needs, const CostKey& key) {
  std::set<double> sizes;
  for (const Need& need : needs) {
    if (need.key == key) sizes.insert(need.size);
  }
  return sizes;
}

const Need* FindNeed(const std::vector<Need>& needs, const CostKey& key, double size) {
  const auto found =
      std::find_if(needs.begin(), needs.end(), [&](const Need& need) { return need.key == key && need.size == size; });
  return found == needs.end() ? nullptr : &*found;
}

TEST(NeedsTest, RulesOfDroplessLayersAskAsIfEveryBatchWereAverage) {
  Workload dropless = Resolved();
  dropless.layer.capacity_factor = 0;
  const std::set<double> sizes = SizesAsked(NeedsOf({dropless}, kTwoNodesOfTwo), AllToAllOverEp());
  EXPECT_THAT(sizes, Contains(32768)) << "Parm's y with f = 1";
  EXPECT_GT(*sizes.rbegin(), 32768) << "BASELINE gathers two blocks of as many slots as the busiest expert needs";
}

TEST(NeedsTest, AskEverySizeOfRulesAndCandidates) {
  const std::vector<Need> needs = NeedsOf({Resolved()}, kTwoNodesOfTwo);
  // All-to-all over EP. Rules: MoNTA I = 8192, I/(N·t) = 4096, 2048, 1024; Parm y = 2·16384 = 32768. Candidates:
  // BASELINE gathers two blocks, 32768; BASELINE_TP 16384; O1-O3 16384/(2·N) = 8192, 4096, 2048, 1024. Ranks of a
  // place are a group of that shape, too, and exchange a row of each token for 5/3 nodes: 8192 · 5/6.
  EXPECT_THAT(SizesAsked(needs, AllToAllOverEp()),
              ElementsAre(1024, 2048, 4096, DoubleNear(8192 * 5.0 / 6, 1e-6), 8192, 16384, 32768));
  // SAA on y/N_MP = 16384, for the rule and the candidates in up to 8 partitions.
  const CostKey saa =
      CollectiveKey{.collective = Collective::kAllToAllAllGather, .group = {4, 2}, .gather_group_size = 2, .shards = 2};
  EXPECT_THAT(SizesAsked(needs, saa), ElementsAre(2048, 4096, 8192, 16384));
}

TEST(NeedsTest, MontaAsksItsSizesEvenWhereItsSchedulesCannotRun) {
  // ESP 1 is not MP 2, so O1-O3 are no candidates. The baseline and the pipeline move k·f·I = 16384 over EP, S1 and S2
  // half of it, in up to 8 partitions, and S1 4·E·r bytes of counts; the rule I = 8192 and I/(N·t) = 4096, 2048, 1024,
  // its chunks gathered and copied at I/N.
  Workload workload = Resolved();
  workload.layout.expert_sharding_parallel = 1;
  const std::vector<Need> needs = NeedsOf({*ResolveWorkload(workload, kTwoNodesOfTwo)}, kTwoNodesOfTwo);
  const CostKey over_ep = CollectiveKey{.collective = Collective::kAllToAll, .group = {2, 2}};
  EXPECT_THAT(SizesAsked(needs, over_ep), ElementsAre(16, 32, 64, 128, 1024, 2048, 4096, 8192, 16384));
  for (const Contention contention : {Contention::kNone, Contention::kWithAllGather}) {
    EXPECT_THAT(SizesAsked(needs, Copy(contention)), ElementsAre(2048, 4096, 8192));
  }
  EXPECT_THAT(SizesAsked(needs, AllGatherOverMp(Contention::kWithCopy)), ElementsAre(2048, 4096, 8192));
}

TEST(NeedsTest, ScheMoesRuleAsksItsSizesAndItsCodecs) {
  Workload workload = Resolved();
  workload.layer.bytes_per_element = 4;
  workload.min_chunk_bytes = 1e9;  // So that neither MoNTA nor a candidate cuts below it.
  workload.dispatch_codec = Codec::kInt8;
  workload.combine_codec = Codec::kFp16;
  workload.max_partition_degree = 4;
  const std::vector<Need> needs = NeedsOf({workload}, kTwoNodesOfTwo);
  // S = 2·2·64·32·4 = 32768 bytes in 1, 2, 4 parts; INT8 sends a quarter of them, FP16 half.
  for (const Kernel kernel : {Kernel::kEncodeInt8, Kernel::kDecodeInt8, Kernel::kEncodeFp16, Kernel::kDecodeFp16}) {
    const KernelKey codec = {.kernel = kernel, .bytes_per_element = 4, .model_dim = 32};
    EXPECT_THAT(SizesAsked(needs, codec), ElementsAre(8192, 16384, 32768)) << Name(kernel);
  }
  const std::set<double> sent = SizesAsked(needs, AllToAllOverEp());
  for (const double bytes : {2048, 4096, 8192, 16384}) EXPECT_THAT(sent, Contains(bytes));
  // 2·2·8192·64 flops in 1, 2, 4 parts.
  const KernelKey expert = {.kernel = Kernel::kExpertGemm, .bytes_per_element = 4, .model_dim = 32, .hidden_dim = 32};
  for (const double flops : {524288, 1048576, 2097152}) EXPECT_THAT(SizesAsked(needs, expert), Contains(flops));
}

// The recipe of models of today: FP8 in blocks there, rows as they are back.
TEST(NeedsTest, OnlyNamedCodecsAreAskedWhereNoOtherMayBe) {
  Workload workload = Resolved();
  workload.allow_lossy = true;
  workload.dispatch_codec = Codec::kFp8Blockwise;
  const auto encoders = [&] {
    std::set<Kernel> kernels;
    for (const Need& need : NeedsOf({workload}, kTwoNodesOfTwo)) {
      const auto* kernel = std::get_if<KernelKey>(&need.key);
      if (kernel != nullptr && CodecOf(kernel->kernel) != Codec::kNone) kernels.insert(kernel->kernel);
    }
    return kernels;
  };
  EXPECT_THAT(encoders(), ::testing::IsSupersetOf({Kernel::kEncodeFp8, Kernel::kEncodeFp8Blockwise}));
  workload.named_codecs_only = true;
  EXPECT_THAT(encoders(), ElementsAre(Kernel::kEncodeFp8Blockwise, Kernel::kDecodeFp8Blockwise));
}

TEST(NeedsTest, KernelsCarryTheDimensionsTheyDependOn) {
  const std::vector<Need> needs = NeedsOf({Resolved()}, kTwoNodesOfTwo);
  const KernelKey expert = {.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 32, .hidden_dim = 32};
  // 2·2 matrices·32·64/2 flops a row. Rows of a rank: S1, S2, O1-O3 and BASELINE_TP: 4 experts of T = 64 slots from
  // each of 2 source batches over 2 EP ranks: 256, in up to 8 partitions; BASELINE and the pipeline twice that.
  EXPECT_THAT(SizesAsked(needs, expert),
              ElementsAre(4096.0 * 32, 4096.0 * 64, 4096.0 * 128, 4096.0 * 256, 4096.0 * 512));
  EXPECT_FALSE(SizesAsked(needs, KernelKey{.kernel = Kernel::kGate, .bytes_per_element = 2, .model_dim = 32}).empty());
}

TEST(NeedsTest, TheSharedExpertIsAskedByItsOwnHiddenDimension) {
  Workload workload = Resolved();
  workload.layer.shared_hidden_dim = 48;
  const std::vector<Need> needs = NeedsOf({workload}, kTwoNodesOfTwo);
  const KernelKey shared = {.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 32, .hidden_dim = 24};
  // 2·2 matrices·32·48/2 flops on each of 128 tokens, summed over MP: x = 128·32·2 bytes.
  EXPECT_THAT(SizesAsked(needs, shared), ElementsAre(3072.0 * 128));
  EXPECT_THAT(SizesAsked(needs, CollectiveKey{.collective = Collective::kAllReduce, .group = {2, 2}}), Contains(8192));
}

TEST(NeedsTest, ContendedKeysAreThereForWhatMayMeet) {
  const std::vector<Need> needs = NeedsOf({Resolved()}, kTwoNodesOfTwo);
  // O2 and O3 run a chunk's all-to-all beside the gather of the one before, O3 its gather beside a copy.
  EXPECT_THAT(SizesAsked(needs, AllToAllOverEp(Contention::kWithAllGather)), Contains(4096));
  EXPECT_THAT(SizesAsked(needs, AllGatherOverMp(Contention::kWithAllToAll)), Contains(8192));
  EXPECT_THAT(SizesAsked(needs, AllGatherOverMp(Contention::kWithCopy)), Contains(8192));
  EXPECT_THAT(SizesAsked(needs, Copy(Contention::kWithAllGather)), Contains(8192));
  // The all-reduce of the baselines meets nothing but, in a training job, compute.
  const CollectiveKey all_reduce = {.collective = Collective::kAllReduce, .group = {2, 2}};
  EXPECT_TRUE(SizesAsked(needs, WithContention(all_reduce, Contention::kWithAllToAll)).empty());
  EXPECT_FALSE(SizesAsked(needs, WithContention(all_reduce, Contention::kWithExpertGemm)).empty());
}

TEST(NeedsTest, GradientsAskForTheAllReduceOfTheirReplicas) {
  // 2 replicas, one on each node. 10000 bytes, and halves of at least 1024.
  const auto over_replicas = [](Contention contention) -> CostKey {
    return CollectiveKey{.collective = Collective::kAllReduce, .group = {2, 1}, .contention = contention};
  };
  Workload workload = Resolved();
  workload.phase = Phase::kBackward;
  const CostKey alone = over_replicas(Contention::kNone);
  EXPECT_TRUE(SizesAsked(NeedsOf({workload}, kTwoNodesOfTwo), alone).empty());
  workload.gradient_bytes = 10000;
  const std::vector<Need> needs = NeedsOf({workload}, kTwoNodesOfTwo);
  for (const Contention contention : {Contention::kNone, Contention::kWithExpertGemm, Contention::kWithAllToAll}) {
    EXPECT_THAT(SizesAsked(needs, over_replicas(contention)), ElementsAre(1250, 2500, 5000, 10000));
  }
  // Too few for two chunks.
  workload.gradient_bytes = 1000;
  EXPECT_THAT(SizesAsked(NeedsOf({workload}, kTwoNodesOfTwo), alone), ElementsAre(1000));
}

TEST(NeedsTest, EachIsAskedOnceInOrderAndWeighsMoreTheMoreHangsOnIt) {
  const std::vector<Need> needs = NeedsOf({Resolved()}, kTwoNodesOfTwo);
  EXPECT_TRUE(std::is_sorted(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return std::tie(a.key, a.size) < std::tie(b.key, b.size);
  }));
  EXPECT_EQ(std::adjacent_find(needs.begin(), needs.end(),
                               [](const Need& a, const Need& b) { return a.key == b.key && a.size == b.size; }),
            needs.end());
  for (const Need& need : needs) EXPECT_GT(need.weight, 0) << Describe(need.key);
  // The same workload twice: the same needs at twice the weight.
  const std::vector<Need> twice = NeedsOf({Resolved(), Resolved()}, kTwoNodesOfTwo);
  ASSERT_EQ(twice.size(), needs.size());
  for (size_t i = 0; i < needs.size(); ++i) EXPECT_NEAR(twice[i].weight, 2 * needs[i].weight, 1e-9 * twice[i].weight);
  // y = 32768 over EP: twice in BASELINE and once in Parm's rule, 10 µs and 32768 bytes at 10 GB/s each.
  const Need* parm = FindNeed(needs, AllToAllOverEp(), 32768);
  ASSERT_NE(parm, nullptr);
  EXPECT_NEAR(parm->weight, 3 * (1e-5 + 32768 / 1e10), 1e-15);
}

// The promise that matters: a profile that has the needed keys can price every candidate, and asks nothing else.
TEST(NeedsTest, AProfileOfTheNeedsPricesEveryCandidate) {
  Profile profile;
  profile.cluster = kTwoNodesOfTwo;
  std::set<CostKey> keys;
  for (const Need& need : NeedsOf({Resolved()}, kTwoNodesOfTwo)) keys.insert(need.key);
  for (const CostKey& key : keys) {
    const CostModel model = MakeCostModel(AlphaBeta{1e-5, 1e-10});
    if (const auto* collective = std::get_if<CollectiveKey>(&key)) profile.collectives.push_back({*collective, model});
    if (const auto* kernel = std::get_if<KernelKey>(&key)) profile.kernels.push_back({*kernel, model});
  }
  int priced = 0;
  for (const Family family : Families()) {
    if (!FamilyAllowed(family, Resolved(), kTwoNodesOfTwo).ok()) continue;
    for (const Knobs& variant : VariantsOf(family, Resolved().layout, kTwoNodesOfTwo.gpus_per_node)) {
      for (int pieces = 1; pieces <= MaxPieces(family, Resolved()); ++pieces) {
        const Knobs knobs = WithPieces(variant, pieces);
        const auto graph = BuildSchedule(knobs, Resolved(), kTwoNodesOfTwo);
        ASSERT_TRUE(graph.ok()) << graph.status().message();
        const GraphPrices prices = PriceGraph(*graph, profile);
        EXPECT_TRUE(prices.missing.empty() && prices.notes.Warnings().empty())
            << Name(family) << ", " << prices.missing.size() << " missing, "
            << testing::PrintToString(prices.notes.Warnings());
        ++priced;
      }
    }
  }
  // Baselines; S1, S2 (twice directly) and PIPELINE in 1 to 8 partitions by four algorithms; O1; O2 and O3 with 1 to 8
  // chunks; each token once a node.
  EXPECT_EQ(priced, 2 + 8 * 4 + 8 * 5 + 8 * 4 + 1 + 8 + 8 + 1);
}

TEST(NeedsTest, AlgorithmsWeighLikeOtherUsesAndNoMoreThanDirect) {
  const std::vector<Need> needs = NeedsOf({Resolved()}, kTwoNodesOfTwo);
  CollectiveKey over_both = {.collective = Collective::kAllToAll, .group = {4, 2}};
  const Need* direct = FindNeed(needs, over_both, 16384);
  ASSERT_NE(direct, nullptr);
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    over_both.algorithm = algorithm;
    // y / N_MP = 16384 in S1 and S2, y = 32768 in the pipeline, whole and in 8 partitions; no counts, no rules.
    EXPECT_THAT(SizesAsked(needs, over_both), ElementsAre(2048, 4096, 16384, 32768));
    const Need* need = FindNeed(needs, over_both, 16384);
    EXPECT_NEAR(need->weight, 4 * (1e-5 + 16384 / 1e10), 1e-15);
    EXPECT_LT(need->weight, direct->weight);
    // They are slowed down as DIRECT is.
    EXPECT_TRUE(SizesAsked(needs, WithContention(over_both, Contention::kWithExpertGemm)).empty());
  }
  // What is no all-to-all is asked no more often: 8192 bytes gathered over MP by S1 in 1, 2, 4 and 8 partitions and by
  // Parm's rule (x), by each of two partitions of S2, twice by MoNTA's rule (I), by O2 and O3 with N = 2 for each chunk
  // there and back, and once by ONCE_PER_NODE.
  const double once = 1e-5 + 8192 / 1e11;
  EXPECT_NEAR(FindNeed(needs, AllGatherOverMp(), 8192)->weight, (4 + 1 + 2 + 2 + 2 * 2 * 2 + 1) * once, 1e-15);
}

// ---- Layouts without a workload.

TEST(NeedsOfLayoutsTest, EveryLegalLayoutIsThere) {
  std::vector<std::string> names;
  for (const Workload& workload : DefaultWorkloads(kTwoNodesOfTwo)) names.push_back(workload.name);
  EXPECT_THAT(names, ElementsAre("tp1-esp1-ep4", "tp1-esp2-ep2", "tp2-esp1-ep4", "tp2-esp2-ep2"));
}

// What plans may be filled up with where a profile lacks it is what plans ask for.
TEST(LayerCollectivesTest, NothingThatCandidatesAndRulesAskIsForgotten) {
  constexpr Cluster kFourNodesOfFour = {.nodes = 4, .gpus_per_node = 4};
  int layouts = 0;
  for (Workload workload : DefaultWorkloads(kFourNodesOfFour)) {
    workload.phase = Phase::kTraining;
    std::set<CostKey> known;
    for (const CollectiveKey& key : LayerCollectives(workload.layer, workload.layout, kFourNodesOfFour.gpus_per_node)) {
      EXPECT_GT(key.group.size, 1);
      EXPECT_TRUE(known.insert(Essential(key)).second) << Describe(key);
    }
    for (const Need& need : NeedsOf({workload}, kFourNodesOfFour)) {
      const auto* key = std::get_if<CollectiveKey>(&need.key);
      if (key == nullptr || key->collective == Collective::kAllToAllAllGather) continue;
      EXPECT_TRUE(known.contains(WithContention(need.key, Contention::kNone)))
          << workload.name << " " << Describe(need.key);
    }
    ++layouts;
  }
  EXPECT_GE(layouts, 9);
}

TEST(NeedsOfLayoutsTest, EndsComeFirstThenMiddlesThenContention) {
  const std::vector<Need> needs = NeedsOfLayouts(kTwoNodesOfTwo, 1024, 67108864);
  const auto place = [&](const CostKey& key, double size) {
    const Need* need = FindNeed(needs, key, size);
    EXPECT_NE(need, nullptr) << Describe(key) << " at " << size;
    return need - needs.data();
  };
  // 4^5 ... 4^13: ends 1 KiB and 64 MiB, middle 4^9, quarters 4^7 and 4^11.
  EXPECT_THAT(SizesAsked(needs, AllToAllOverEp()),
              ElementsAre(1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864));
  EXPECT_LT(place(AllToAllOverEp(), 67108864), place(AllToAllOverEp(), 262144));
  EXPECT_LT(place(AllToAllOverEp(), 262144), place(AllToAllOverEp(), 16384));
  EXPECT_LT(place(AllToAllOverEp(), 16384), place(AllToAllOverEp(), 4096));
  // Ends of every other key come before any middle.
  EXPECT_LT(place(KernelKey{.kernel = Kernel::kGate}, 1024), place(AllToAllOverEp(), 262144));
  // A contended key's ends come with the third round.
  EXPECT_LT(place(AllGatherOverMp(), 262144), place(AllGatherOverMp(Contention::kWithCopy), 1024));
  EXPECT_LT(place(AllGatherOverMp(Contention::kWithCopy), 1024), place(AllGatherOverMp(), 4096));
  // The ends of an all-to-all that is not DIRECT come with the middles.
  CollectiveKey over_both = {.collective = Collective::kAllToAll, .group = {4, 2}};
  const auto direct = place(over_both, 1024), direct_middle = place(over_both, 262144);
  over_both.algorithm = AllToAllAlgorithm::kHier2d;
  EXPECT_LT(direct, place(over_both, 1024));
  EXPECT_LT(place(AllGatherOverMp(), 67108864), place(over_both, 1024));
  EXPECT_LT(place(over_both, 1024), place(over_both, 262144));
  EXPECT_LT(direct_middle, place(over_both, 262144));
}

TEST(NeedsOfLayoutsTest, KernelsAreForAnyLayerAndExpertsCountFlops) {
  Cluster cluster = kTwoNodesOfTwo;
  const KernelKey expert = {.kernel = Kernel::kExpertGemm};
  // 2048 flops a byte: from 2^21; unknown peak: up to 1.7e10.
  std::set<double> flops = SizesAsked(NeedsOfLayouts(cluster), expert);
  EXPECT_EQ(*flops.begin(), 2097152);
  EXPECT_EQ(*flops.rbegin(), 1.7e10);
  cluster.peak_flops_per_s = 1e11;  // 20 ms of it are 2e9.
  flops = SizesAsked(NeedsOfLayouts(cluster), expert);
  EXPECT_EQ(*flops.rbegin(), 2e9);
  cluster.peak_flops_per_s = 1e15;  // 64 MiB of rows are less than 20 ms of it.
  flops = SizesAsked(NeedsOfLayouts(cluster), expert);
  EXPECT_EQ(*flops.rbegin(), 2048.0 * 67108864);
}

TEST(NeedsOfLayoutsTest, OneRankNeedsKernelsAlone) {
  for (const Need& need : NeedsOfLayouts({.nodes = 1, .gpus_per_node = 1})) {
    EXPECT_TRUE(std::holds_alternative<KernelKey>(need.key)) << Describe(need.key);
  }
}

TEST(NeedsOfLayoutsTest, AGridOfOneSizeIsThatSize) {
  EXPECT_THAT(SizesAsked(NeedsOfLayouts(kTwoNodesOfTwo, 4096, 4096), AllToAllOverEp()), ElementsAre(4096));
}

}  // namespace
}  // namespace moeplan
