#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "models/text.h"
#include "models/workload/names.h"
#include "proto/convert/cluster.h"
#include "proto/convert/enums.h"
#include "proto/convert/network.h"
#include "proto/convert/plan.h"
#include "proto/convert/profile.h"
#include "proto/convert/samples.h"
#include "proto/convert/simulated_cluster.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

template <typename Message>
Message Parsed(std::string_view text) {
  const auto message = FromJson<Message>(text, "test");
  EXPECT_TRUE(message.ok()) << message.status().message();
  return message.ok() ? *message : Message();
}

template <typename T>
std::string ErrorOf(const StatusOr<T>& result) {
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidInput);
  return result.status().message();
}

// To a message, to text, and back.
template <typename Message, typename Domain, typename FromProto>
void ExpectRoundTrip(const Domain& value, FromProto from_proto) {
  const auto read = from_proto(Parsed<Message>(ToJson(ToProto(value))));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, value);
}

// ---- Enums.

// Every value of the message's enum has the domain's name.
// `of_messages_alone`: names behind those of the domain.
template <typename Domain, typename Kind>
void ExpectSameNames(int count, int of_messages_alone = 0) {
  const auto& type = *google::protobuf::GetEnumDescriptor<Kind>();
  EXPECT_EQ(type.value_count() - FirstEnumNumber<Kind>(), count + of_messages_alone) << type.full_name();
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Domain>(i);
    EXPECT_EQ(type.FindValueByNumber(EnumToProto<Kind>(value))->name(), Name(value));
    const auto back = EnumFromProto<Domain>(EnumToProto<Kind>(value), "path");
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, value);
  }
}

TEST(EnumTest, DomainAndMessagesNameTheSameThings) {
  ExpectSameNames<Codec, v1::Codec::Kind>(7);
  ExpectSameNames<Collective, v1::Collective::Kind>(5);
  ExpectSameNames<AllToAllAlgorithm, v1::AllToAll::Algorithm>(4);
  ExpectSameNames<Contention, v1::Contention::Kind>(5);
  ExpectSameNames<Kernel, v1::Kernel::Kind>(kBuiltIn<Kernel>);
  ExpectSameNames<Family, v1::Schedule::Family>(9, /*of_messages_alone=*/2);
  EXPECT_FALSE(EnumFromProto<Family>(v1::Schedule::LANCET, "schedule").ok());
  ExpectSameNames<TaskKind, v1::Task::Kind>(13);
  ExpectSameNames<StreamKind, v1::Stream::Kind>(4);
  ExpectSameNames<InstructionOp, v1::Instruction::Op>(16);
  ExpectSameNames<GateKind, v1::Gate::Kind>(6);
  ExpectSameNames<Phase, v1::Phase::Kind>(3);
  ExpectSameNames<CapacityPassing, v1::CapacityPassing::Kind>(2);
  ExpectSameNames<GpuLinkKind, v1::SimulatedCluster::GpuLink::Kind>(kGpuLinkKinds);
}

TEST(EnumTest, EnumsWithoutNamesInTheDomainAgreeToo) {
  EXPECT_EQ(EnumToProto<v1::Recompute::Kind>(Recompute::kNone), v1::Recompute::NONE);
  EXPECT_EQ(EnumToProto<v1::Recompute::Kind>(Recompute::kSelective), v1::Recompute::SELECTIVE);
  EXPECT_EQ(EnumToProto<v1::Recompute::Kind>(Recompute::kFull), v1::Recompute::FULL);
  EXPECT_EQ(EnumToProto<v1::Search::StopReason>(StopReason::kProvedBest), v1::Search::PROVED_BEST);
  EXPECT_EQ(EnumToProto<v1::Search::StopReason>(StopReason::kOutOfBudget), v1::Search::OUT_OF_BUDGET);
  EXPECT_EQ(EnumToProto<v1::Search::StopReason>(StopReason::kOutOfTime), v1::Search::OUT_OF_TIME);
  EXPECT_EQ(EnumToProto<v1::Search::StopReason>(StopReason::kCancelled), v1::Search::CANCELLED);
}

TEST(EnumTest, WhatIsNotSaidAndNumbersWithoutNameAreRefused) {
  EXPECT_EQ(ErrorOf(EnumFromProto<StreamKind>(v1::Stream::UNSPECIFIED, "stream")),
            "stream: found nothing, expected one of COMPUTE, INTRA_NODE, INTER_NODE, COPY");
  EXPECT_EQ(ErrorOf(EnumFromProto<Phase>(static_cast<v1::Phase::Kind>(9), "phase")),
            "phase: found 9, expected one of FORWARD, BACKWARD, TRAINING");
}

// ---- Workload and cluster.

Workload FullWorkload() {
  Workload workload;
  workload.name = "w";
  workload.layer = {.batch = 1,
                    .sequence_length = 2,
                    .model_dim = 3,
                    .hidden_dim = 4,
                    .experts = 5,
                    .top_k = 6,
                    .capacity_factor = 1.25,
                    .bytes_per_element = 4,
                    .expert_matrices = 3,
                    .gate = GateKind::kHash,
                    .router = {.score_function = ScoreFunction::kSigmoid,
                               .raw_weights = true,
                               .weight_scale = 2.5,
                               .expert_groups = 2,
                               .groups_per_token = 1,
                               .correction_bias = true,
                               .bias = true,
                               .weighs_input = true},
                    .swiglu_limit = 7,
                    .expert_bias = true,
                    .shared_hidden_dim = 7,
                    .aux_loss_coefficient = 0.01,
                    .z_loss_coefficient = 0.001};
  workload.layout = {.tensor_parallel = 2,
                     .expert_parallel = 3,
                     .expert_sharding_parallel = 4,
                     .context_parallel = 5,
                     .pipeline_parallel = 6,
                     .data_parallel = 7};
  workload.min_chunk_bytes = 0.5;
  workload.max_chunks = 9;
  workload.gradient_bytes = 4096;
  workload.max_partition_degree = 10;
  workload.dispatch_codec = Codec::kFp8;
  workload.combine_codec = Codec::kZfp;
  workload.allow_lossy = true;
  workload.named_codecs_only = true;
  workload.phase = Phase::kTraining;
  workload.capacity_passing = CapacityPassing::kPadded;
  workload.zero_stage = 0;
  workload.recompute = Recompute::kSelective;
  workload.sequence_parallel = true;
  return workload;
}

StatusOr<Workload> ReadWorkload(std::string_view text) { return WorkloadFromProto(Parsed<v1::Workload>(text)); }

// A workload that resolves on 2 nodes of 8 GPUs, with more fields.
StatusOr<Workload> Resolved(const std::string& layer, const std::string& layout, const std::string& rest) {
  const std::string text = R"({"layer": {"batch": 1, "sequenceLength": 64, "modelDim": 8, "hiddenDim": 16, "experts": 4,
      "topK": 2, "capacityFactor": 1)" +
                           layer + R"(}, "layout": {)" + layout + "}" + rest + "}";
  ASSIGN_OR_RETURN(const Workload workload, ReadWorkload(text));
  return ResolveWorkload(workload, {.nodes = 2, .gpus_per_node = 8});
}

TEST(WorkloadConversionTest, RoundTrips) {
  ExpectRoundTrip<v1::Workload>(FullWorkload(), [](const v1::Workload& m) { return WorkloadFromProto(m); });
  ExpectRoundTrip<v1::Workload>(Workload(), [](const v1::Workload& m) { return WorkloadFromProto(m); });
  Workload other = FullWorkload();
  other.name = "other";
  ExpectRoundTrip<v1::WorkloadGrid>(std::vector<Workload>{FullWorkload(), other}, WorkloadsFromProto);
}

TEST(WorkloadConversionTest, AbsentFieldsGetTheContractsDefaults) {
  const auto workload = ReadWorkload(R"({"layer": {}})");
  ASSERT_TRUE(workload.ok());
  EXPECT_EQ(*workload, Workload());
}

TEST(WorkloadConversionTest, ExplicitZerosAreRefused) {
  ASSERT_EQ(ErrorOf(Resolved("", "", "")), "accepted");
  EXPECT_EQ(ErrorOf(Resolved("", R"("dataParallel": 0)", "")),
            "layout.dataParallel: found 0, expected a whole number of at least 1, or absent");
  EXPECT_THAT(ErrorOf(Resolved("", R"("tensorParallel": 0)", "")), StartsWith("layout.tensorParallel: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", R"("expertParallel": 0)", "")), StartsWith("layout.expertParallel: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", R"("expertShardingParallel": 0)", "")),
              StartsWith("layout.expertShardingParallel: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", R"("contextParallel": 0)", "")), StartsWith("layout.contextParallel: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", R"("pipelineParallel": 0)", "")), StartsWith("layout.pipelineParallel: found 0"));
  EXPECT_THAT(ErrorOf(Resolved(R"(, "bytesPerElement": 0)", "", "")), StartsWith("layer.bytesPerElement: found 0"));
  EXPECT_THAT(ErrorOf(Resolved(R"(, "expertMatrices": 0)", "", "")), StartsWith("layer.expertMatrices: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", "", R"(, "minChunkBytes": 0)")), StartsWith("minChunkBytes: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", "", R"(, "maxChunks": 0)")), StartsWith("maxChunks: found 0"));
  EXPECT_THAT(ErrorOf(Resolved("", "", R"(, "maxPartitionDegree": 0)")), StartsWith("maxPartitionDegree: found 0"));
  // Rules try one count after the other, so that a count without a ceiling is a loop without an end.
  EXPECT_EQ(ErrorOf(Resolved("", "", R"(, "maxChunks": 2147483647, "minChunkBytes": 1e-9)")),
            "maxChunks: found 2147483647, expected at most 65536");
  EXPECT_EQ(ErrorOf(Resolved("", "", R"(, "maxPartitionDegree": 65537)")),
            "maxPartitionDegree: found 65537, expected at most 65536");
  EXPECT_EQ(ErrorOf(Resolved("", "", R"(, "maxChunks": 65536, "maxPartitionDegree": 65536)")), "accepted");
}

TEST(WorkloadConversionTest, AWorkloadHasALayer) {
  EXPECT_EQ(ErrorOf(ReadWorkload("{}")), "layer: found nothing, expected an object");
}

TEST(WorkloadConversionTest, GridErrorsNameTheWorkload) {
  EXPECT_EQ(ErrorOf(WorkloadsFromProto({})), "workloads: found none, expected at least one");
  EXPECT_EQ(ErrorOf(WorkloadsFromProto(Parsed<v1::WorkloadGrid>(
                R"({"workloads": [{"layer": {}}, {"layer": {}, "layout": {"dataParallel": -1}}]})"))),
            "workloads[1].layout.dataParallel: found -1, expected a whole number of at least 1, or absent");
}

TEST(WorkloadConversionTest, AWorkloadWithoutNameIsCalledByItsPlace) {
  const auto grid =
      WorkloadsFromProto(Parsed<v1::WorkloadGrid>(R"({"workloads": [{"name": "a", "layer": {}}, {"layer": {}}]})"));
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid->at(0).name, "a");
  EXPECT_EQ(grid->at(1).name, "workloads[1]");
}

TEST(ClusterConversionTest, RoundTripsAndIsChecked) {
  const Cluster cluster = {.nodes = 2,
                           .gpus_per_node = 8,
                           .peak_flops_per_s = 3e14,
                           .device_memory_bytes = 8e10,
                           .node_link_bytes_per_s = 4.5e11,
                           .network_bytes_per_s = 5e10};
  ExpectRoundTrip<v1::Cluster>(cluster, [](const v1::Cluster& m) { return ClusterFromProto(m); });
  EXPECT_EQ(*ClusterFromProto(Parsed<v1::Cluster>(R"({"nodes": 2, "gpusPerNode": 8, "peakFlopsPerS": 3e14,
          "deviceMemoryBytes": 8e10, "nodeLinkBytesPerS": 4.5e11, "networkBytesPerS": 5e10})")),
            cluster);
  EXPECT_THAT(ErrorOf(ClusterFromProto({})), StartsWith("cluster.nodes: found 0"));
  v1::Cluster negative = ToProto(cluster);
  negative.set_node_link_bytes_per_s(-1);
  EXPECT_THAT(ErrorOf(ClusterFromProto(negative)), StartsWith("cluster.nodeLinkBytesPerS: found -1"));
  negative = ToProto(cluster);
  negative.set_network_bytes_per_s(std::numeric_limits<double>::infinity());
  EXPECT_THAT(ErrorOf(ClusterFromProto(negative)), StartsWith("cluster.networkBytesPerS: found inf"));
}

constexpr char kSimulatedCluster[] = R"({"name": "a", "nodes": 2, "gpusPerNode": 4,
    "gpu": {"peakFlopsPerS": 1e13, "gemmEfficiency": 0.7, "memoryBytesPerS": 6e11, "deviceMemoryBytes": 1e10, "launchS": 6e-6},
    "gpuLink": {"kind": "SHARED_BUS", "bytesPerS": 1.2e10, "latencyS": 5e-6},
    "nic": {"perNode": 1, "bytesPerS": 1.25e10, "latencyS": 4e-6}})";

v1::SimulatedCluster SimulatedMessage(const std::function<void(v1::SimulatedCluster&)>& change) {
  auto message = Parsed<v1::SimulatedCluster>(kSimulatedCluster);
  change(message);
  return message;
}

TEST(NetworkConversionTest, HasItsDefaultsAndIsChecked) {
  EXPECT_EQ(*NetworkFromProto({}, ""), Network{});
  v1::Network message;
  message.set_nodes_per_leaf(8);
  message.set_oversubscription(4);
  message.set_rails(true);
  message.set_bytes_per_s(25e9);
  const Network network = {.nodes_per_leaf = 8, .oversubscription = 4, .rails = true, .bytes_per_s = 25e9};
  EXPECT_EQ(*NetworkFromProto(message, "network"), network);
  message.set_oversubscription(0);
  EXPECT_EQ(NetworkFromProto(message, "network").status().message(),
            "network.oversubscription: found 0, expected a number from 1 to 1e+06");
  message.clear_oversubscription();
  message.set_bytes_per_s(0);
  EXPECT_EQ(NetworkFromProto(message, "").status().message(), "bytesPerS: found 0, expected a number from 1 to 1e+21");
}

TEST(SimulatedClusterConversionTest, RoundTripsWithItsDefaults) {
  const auto plain = SimulatedClusterFromProto(SimulatedMessage([](auto&) {}));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->gpu_link, (SimulatedGpuLink{GpuLinkKind::kSharedBus, 1.2e10, 5e-6}));
  EXPECT_EQ(plain->leaf_switch, (SimulatedSwitch{.nodes_per_leaf = 0, .oversubscription = 1, .latency_s = 0}));
  EXPECT_EQ(plain->noise, SimulatedNoise{});
  ExpectRoundTrip<v1::SimulatedCluster>(*plain, SimulatedClusterFromProto);
  SimulatedCluster other = *plain;
  other.gpu_link.kind = GpuLinkKind::kMesh;
  other.nic = {.per_node = 1, .per_gpu = true, .bytes_per_s = 1e9, .latency_s = 1e-6};
  other.leaf_switch = {.nodes_per_leaf = 1, .oversubscription = 2, .latency_s = 1e-6};
  other.noise = {.compute_sigma = 0.1, .transfer_sigma = 0.2, .stragglers = {{.gpu = 7, .slowdown = 2}}, .seed = 5};
  ExpectRoundTrip<v1::SimulatedCluster>(other, SimulatedClusterFromProto);
}

TEST(SimulatedClusterConversionTest, EveryFieldIsChecked) {
  const auto expect_error = [](const std::function<void(v1::SimulatedCluster&)>& change, const std::string& error) {
    EXPECT_THAT(ErrorOf(SimulatedClusterFromProto(SimulatedMessage(change))), StartsWith(error));
  };
  expect_error([](auto& m) { m.set_nodes(0); }, "nodes: found 0, expected a whole number of at least 1");
  expect_error([](auto& m) { m.set_gpus_per_node(-1); }, "gpusPerNode: found -1");
  expect_error([](auto& m) { m.set_nodes(1 << 20); }, "nodes and gpusPerNode: found 1048576 and");
  expect_error([](auto& m) { m.clear_gpu(); }, "gpu.peakFlopsPerS: found 0, expected a number from 1 to 1e+21");
  expect_error([](auto& m) { m.mutable_gpu()->set_gemm_efficiency(1.5); }, "gpu.gemmEfficiency: found 1.5");
  expect_error([](auto& m) { m.mutable_gpu()->set_memory_bytes_per_s(0); }, "gpu.memoryBytesPerS: found 0");
  expect_error([](auto& m) { m.mutable_gpu()->set_device_memory_bytes(-1); }, "gpu.deviceMemoryBytes: found -1");
  expect_error([](auto& m) { m.mutable_gpu()->set_launch_s(-1); }, "gpu.launchS: found -1");
  expect_error([](auto& m) { m.clear_gpu_link(); }, "gpuLink.kind: found nothing, expected one of SHARED_BUS");
  expect_error([](auto& m) { m.mutable_gpu_link()->set_bytes_per_s(0); }, "gpuLink.bytesPerS: found 0");
  expect_error([](auto& m) { m.mutable_gpu_link()->set_latency_s(-1); }, "gpuLink.latencyS: found -1");
  expect_error([](auto& m) { m.mutable_nic()->set_per_node(0); }, "nic.perNode: found 0");
  expect_error([](auto& m) { m.mutable_nic()->set_per_gpu(true); }, "nic.perNode: found 1, expected nothing beside");
  expect_error([](auto& m) { m.clear_nic(); }, "nic.bytesPerS: found 0");
  expect_error([](auto& m) { m.mutable_nic()->set_bytes_per_s(1e-300); }, "nic.bytesPerS: found 1e-300");
  expect_error([](auto& m) { m.mutable_nic()->set_latency_s(1e300); }, "nic.latencyS: found 1e+300");
  expect_error([](auto& m) { m.mutable_nic()->set_latency_s(-1); }, "nic.latencyS: found -1");
  expect_error([](auto& m) { m.mutable_switch_()->set_nodes_per_leaf(-1); }, "switch.nodesPerLeaf: found -1");
  expect_error([](auto& m) { m.mutable_switch_()->set_oversubscription(0.5); }, "switch.oversubscription: found 0.5");
  expect_error([](auto& m) { m.mutable_switch_()->set_latency_s(-1); }, "switch.latencyS: found -1");
  expect_error([](auto& m) { m.mutable_noise()->set_compute_sigma(2); }, "noise.computeSigma: found 2");
  expect_error([](auto& m) { m.mutable_noise()->set_transfer_sigma(-1); }, "noise.transferSigma: found -1");
  expect_error([](auto& m) { m.mutable_noise()->set_seed(-1); }, "noise.seed: found -1");
  expect_error([](auto& m) { m.mutable_noise()->add_stragglers()->set_gpu(8); }, "noise.stragglers[0].gpu: found 8");
  expect_error([](auto& m) { m.mutable_noise()->add_stragglers(); }, "noise.stragglers[0].slowdown: found 0");
}

// ---- Profile.

FitQuality SomeFit(const std::string& chosen) {
  return {.chosen = chosen,
          .relative_error_p50 = 0.01,
          .relative_error_p95 = 0.05,
          .alpha_low_s = 1e-6,
          .alpha_high_s = 2e-6,
          .beta_low_s_per_unit = 1e-12,
          .beta_high_s_per_unit = 2e-12,
          .interval_low_ratio = 0.9,
          .interval_high_ratio = 1.2,
          .breakpoints = {4096, 65536},
          .outliers = 3,
          .points = 17};
}

Profile FullProfile() {
  const AlphaBeta line = {.alpha_s = 1e-6, .beta_s_per_unit = 1e-12};
  CostModel log_log = MakeCostModel(LogLog{{{1024, 1e-5}, {4096, 2e-5}}});
  log_log.summary = line;
  log_log.fit = SomeFit("logLog");
  CostModel efficiency = MakeCostModel(Efficiency{.peak_per_s = 1e12, .points = {{1e6, 0.1}, {1e9, 0.9}}});
  efficiency.fit = SomeFit("efficiency");
  Profile profile = {.name = "p",
                     .version = 2,
                     .created_at = "2025-01-02T03:04:05Z",
                     .cluster = {.nodes = 2, .gpus_per_node = 8, .peak_flops_per_s = 1, .device_memory_bytes = 2}};
  profile.collectives = {{{.collective = Collective::kAllReduce, .group = {4, 2}, .bytes_per_element = 2}, log_log},
                         {{.collective = Collective::kAllToAllAllGather,
                           .algorithm = AllToAllAlgorithm::kPipe,
                           .group = {8, 4},
                           .gather_group_size = 2,
                           .shards = 4,
                           .contention = Contention::kWithCopy},
                          MakeCostModel(Interpolated{{{1, 2}, {3, 4}}})},
                         {{.collective = Collective::kAllToAll, .group = {8, 4}}, MakeCostModel(line)},
                         {{.collective = Collective::kAllToAll, .group = {8, 4}, .ctas = 1024}, MakeCostModel(line)},
                         {{.collective = Collective::kAllToAll, .group = {8, 4}, .stride = 2}, MakeCostModel(line)},
                         {{.collective = Collective::kAllToAll,
                           .group = {8, 4},
                           .dispatcher = Dispatcher::kHybridEp,
                           .transport = Transport::kUccl},
                          MakeCostModel(line)}};
  profile.kernels = {
      {{.kernel = Kernel::kExpertGemm, .bytes_per_element = 4, .model_dim = 8, .hidden_dim = 16}, efficiency},
      {{.kernel = Kernel::kExpertGemm}, log_log},
      {{.kernel = Kernel::kGate, .contention = Contention::kWithAllToAll}, MakeCostModel(line)},
      {{.kernel = Kernel::kGate, .contention = Contention::kWithAllToAll, .ctas = 4}, MakeCostModel(line)},
      {{.kernel = Kernel::kLinearWeightGradient, .shape = {.in_features = 1, .out_features = 2, .experts = 3}},
       log_log},
      {{.kernel = Kernel::kAttention,
        .shape = {.heads = 4, .kv_heads = 5, .query_key_dim = 6, .value_dim = 7, .sequence = 8}},
       log_log}};
  return profile;
}

TEST(ProfileConversionTest, RoundTrips) { ExpectRoundTrip<v1::Profile>(FullProfile(), ProfileFromProto); }

TEST(ProfileConversionTest, KernelsThatCountFlopsSayFlops) {
  const std::string text = ToJson(ToProto(FullProfile()), JsonStyle::kCompact);
  EXPECT_THAT(text, HasSubstr(R"("kernel":"EXPERT_GEMM","contention":"NONE","bytesPerElement":4,"modelDim":8,)"
                              R"("hiddenDim":16,"efficiency":{"peakFlopsPerS":1e+12,"points":[{"flops":1e+06,)"));
  EXPECT_THAT(text, HasSubstr(R"("betaLowSPerFlop":1e-12)"));
  EXPECT_THAT(text, HasSubstr(R"("betaLowSPerByte":1e-12)"));
}

TEST(ProfileConversionTest, AnAlphaBetaBesideACurveIsASummaryAndItsKeysAreNotPrintedElsewhere) {
  const std::string text = ToJson(ToProto(FullProfile()), JsonStyle::kCompact);
  EXPECT_THAT(text, HasSubstr(R"("logLog":{"points":[{"bytes":1024,"timeS":1e-05},{"bytes":4096,"timeS":2e-05}]},)"
                              R"("alphaBeta":{"alphaS":1e-06,"betaSPerByte":1e-12},"fit":{"chosen":"logLog",)"));
  // gatherGroupSize belongs to ALL_TO_ALL_ALL_GATHER alone.
  EXPECT_THAT(text, HasSubstr(R"({"collective":"ALL_TO_ALL","algorithm":"DIRECT","groupSize":8,"ranksPerNode":4,)"
                              R"("contention":"NONE","alphaBeta")"));
}

StatusOr<Profile> ReadCollective(const std::string& fields) {
  return ProfileFromProto(Parsed<v1::Profile>(
      R"({"cluster": {"nodes": 1, "gpusPerNode": 8}, "collectives": [{"collective": "ALL_TO_ALL", "groupSize": 8,
          "ranksPerNode": 8, )" +
      fields + "}]}"));
}

StatusOr<Profile> ReadKernel(const std::string& kernel, const std::string& fields) {
  return ProfileFromProto(Parsed<v1::Profile>(
      R"({"cluster": {"nodes": 1, "gpusPerNode": 8}, "kernels": [{"kernel": ")" + kernel + "\", " + fields + "}]}"));
}

TEST(ProfileConversionTest, TheRangeIsThatOfThePoints) {
  const auto profile =
      ReadCollective(R"("logLog": {"points": [{"bytes": 10, "timeS": 1}, {"bytes": 90, "timeS": 2}]})");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->collectives[0].model.size_low, 10);
  EXPECT_EQ(profile->collectives[0].model.size_high, 90);
}

TEST(ProfileConversionTest, FitRatiosAreOneWhenAbsent) {
  const auto profile = ReadCollective(R"("alphaBeta": {"alphaS": 1}, "fit": {"chosen": "alphaBeta"})");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->collectives[0].model.fit->interval_low_ratio, 1);
  EXPECT_EQ(profile->collectives[0].model.fit->interval_high_ratio, 1);
}

TEST(ProfileConversionTest, AnEntryHasOneFormThatPlans) {
  EXPECT_EQ(ErrorOf(ReadCollective(R"("contention": "NONE")")),
            "collectives[0]: found no cost model, expected efficiency, interpolated, logLog or alphaBeta");
  EXPECT_EQ(ErrorOf(ReadCollective(R"("logLog": {})")),
            "collectives[0].logLog.points: found none, expected at least one");
  EXPECT_EQ(ErrorOf(ReadCollective(R"("efficiency": {"peakBytesPerS": 1})")),
            "collectives[0].efficiency.points: found none, expected at least one");
}

TEST(ProfileConversionTest, SizesAreInTheUnitOfTheOperation) {
  EXPECT_EQ(ErrorOf(ReadCollective(R"("logLog": {"points": [{"flops": 1, "timeS": 1}]})")),
            "collectives[0].logLog.points[0]: found flops, expected bytes, because this operation counts bytes");
  EXPECT_EQ(ErrorOf(ReadCollective(R"("logLog": {"points": [{"timeS": 1}]})")),
            "collectives[0].logLog.points[0].bytes: found nothing, expected a number");
  EXPECT_EQ(ErrorOf(ReadCollective(R"("efficiency": {"points": [{"bytes": 1, "efficiency": 1}]})")),
            "collectives[0].efficiency.peakBytesPerS: found nothing, expected a number");
  EXPECT_EQ(ErrorOf(ReadKernel("EXPERT_GEMM", R"("alphaBeta": {"alphaS": 1, "betaSPerByte": 1})")),
            "kernels[0].alphaBeta: found betaSPerByte, expected betaSPerFlop, because this operation counts flops");
  EXPECT_EQ(ErrorOf(ReadKernel("GATE", R"("alphaBeta": {"alphaS": 1, "betaSPerFlop": 1})")),
            "kernels[0].alphaBeta: found betaSPerFlop, expected betaSPerByte, because this operation counts bytes");
  EXPECT_EQ(ErrorOf(ReadKernel("EXPERT_GEMM", R"("efficiency": {"peakBytesPerS": 1})")),
            "kernels[0].efficiency: found peakBytesPerS, expected peakFlopsPerS, because this operation counts flops");
}

TEST(ProfileConversionTest, NumbersThatMakeNoSenseAreRefused) {
  EXPECT_THAT(ErrorOf(ReadCollective(R"("logLog": {"points": [{"bytes": 1, "timeS": 0}]})")),
              StartsWith("collectives[0].logLog.points[0].timeS: found 0"));
  EXPECT_THAT(ErrorOf(ReadCollective(R"("bytesPerElement": 0, "alphaBeta": {"alphaS": 1})")),
              StartsWith("collectives[0].bytesPerElement: found 0"));
  EXPECT_THAT(ErrorOf(ReadCollective(R"("gatherGroupSize": 2, "alphaBeta": {"alphaS": 1})")),
              StartsWith("collectives[0]"));
  EXPECT_THAT(ErrorOf(ReadKernel("GATE", R"("modelDim": 0, "alphaBeta": {"alphaS": 1})")),
              StartsWith("kernels[0].modelDim: found 0"));
  EXPECT_THAT(ErrorOf(ReadKernel("GATE", R"("hiddenDim": -1, "alphaBeta": {"alphaS": 1})")),
              StartsWith("kernels[0].hiddenDim: found -1"));
  v1::Profile profile = ToProto(FullProfile());
  profile.mutable_collectives(2)->mutable_alpha_beta()->set_alpha_s(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ErrorOf(ProfileFromProto(profile)), StartsWith("collectives[2].alphaBeta.alphaS: found nan"));
}

TEST(ProfileConversionTest, FitsAreChecked) {
  const auto with_fit = [](const std::string& fit) {
    return ErrorOf(ReadCollective(R"("alphaBeta": {"alphaS": 1}, "fit": {)" + fit + "}"));
  };
  EXPECT_EQ(with_fit(""), "collectives[0].fit.chosen: found nothing, expected alphaBeta, the form that plans");
  EXPECT_EQ(with_fit(R"("chosen": "logLog")"),
            "collectives[0].fit.chosen: found logLog, expected alphaBeta, the form that plans");
  EXPECT_EQ(with_fit(R"("chosen": "alphaBeta", "intervalLowRatio": 0)"),
            "collectives[0].fit.intervalLowRatio: found 0, expected a number above 0");
  EXPECT_EQ(with_fit(R"("chosen": "alphaBeta", "intervalHighRatio": 0.5)"),
            "collectives[0].fit.intervalHighRatio: found 0.5, expected a finite number of at least 1");
  EXPECT_EQ(with_fit(R"("chosen": "alphaBeta", "outliers": -1)"),
            "collectives[0].fit.outliers: found -1, expected a finite number of at least 0");
  EXPECT_EQ(with_fit(R"("chosen": "alphaBeta", "betaLowSPerFlop": 1)"),
            "collectives[0].fit: found betaLowSPerFlop, expected betaLowSPerByte, because this operation counts bytes");
  EXPECT_EQ(with_fit(R"("chosen": "alphaBeta", "breakpointsBytes": [1, -1])"),
            "collectives[0].fit.breakpointsBytes[1]: found -1, expected a finite number of at least 0");
}

TEST(ProfileConversionTest, WhatIsMissingIsNamed) {
  EXPECT_EQ(ErrorOf(ProfileFromProto({})), "cluster: found nothing, expected an object");
  EXPECT_THAT(ErrorOf(ProfileFromProto(
                  Parsed<v1::Profile>(R"({"cluster": {"nodes": 1, "gpusPerNode": 1}, "collectives": [{}]})"))),
              StartsWith("collectives[0].collective: found nothing, expected one of ALL_TO_ALL, ALL_GATHER"));
  EXPECT_THAT(
      ErrorOf(ReadKernel("GATE", R"("alphaBeta": {"alphaS": 1}}, {"kernel": "GATE", "alphaBeta": {"alphaS": 1})")),
      StartsWith("kernels[1]: found a second entry for GATE"));
}

// ---- Samples.

SampleSet FullSamples() {
  return {.name = "s",
          .cluster = {.nodes = 2, .gpus_per_node = 8},
          .samples = {{CollectiveKey{.collective = Collective::kAllToAllAllGather,
                                     .algorithm = AllToAllAlgorithm::kHier1d,
                                     .group = {8, 4},
                                     .gather_group_size = 2,
                                     .shards = 4,
                                     .contention = Contention::kWithAllGather,
                                     .bytes_per_element = 2},
                       1024,
                       {1e-5, 2e-5},
                       {{"hostname", "n1"}, {"backend", "host"}}},
                      {CollectiveKey{.group = {2, 1}}, 2048, {1e-5}, {}},
                      {CollectiveKey{.group = {2, 1}, .ctas = 8}, 2048, {2e-5}, {}},
                      {KernelKey{.kernel = Kernel::kExpertGemm, .contention = Contention::kWithAllToAll, .ctas = 8},
                       1e9,
                       {2e-3},
                       {}},
                      {KernelKey{.kernel = Kernel::kExpertGemm, .model_dim = 8, .hidden_dim = 16}, 1e9, {1e-3}, {}},
                      {KernelKey{.kernel = Kernel::kGate, .contention = Contention::kWithCopy}, 512, {1e-6}, {}}}};
}

StatusOr<SampleSet> ReadSample(const std::string& sample) {
  return SamplesFromProto(
      Parsed<v1::Samples>(R"({"cluster": {"nodes": 1, "gpusPerNode": 8}, "samples": [)" + sample + "]}"));
}

TEST(SamplesConversionTest, RoundTrips) { ExpectRoundTrip<v1::Samples>(FullSamples(), SamplesFromProto); }

TEST(SamplesConversionTest, AKernelHasNoGroup) {
  EXPECT_THAT(ErrorOf(ReadSample(R"({"kernel": "GATE", "groupSize": 2, "bytes": 1, "timeS": [1]})")),
              StartsWith("samples[0]: found a kernel with algorithm, groupSize"));
  EXPECT_THAT(ErrorOf(ReadSample(R"({"collective": "ALL_GATHER", "groupSize": 2, "ranksPerNode": 1, "modelDim": 3,
                                     "bytes": 1, "timeS": [1]})")),
              StartsWith("samples[0]: found a collective with modelDim"));
  EXPECT_THAT(ToJson(ToProto(FullSamples()), JsonStyle::kCompact),
              HasSubstr(R"({"kernel":"GATE","contention":"WITH_COPY","bytes":512,"timeS":[1e-06]})"));
}

TEST(SamplesConversionTest, CtasAreCheckedAndPrintedWhereThereAreAny) {
  const std::string rest = R"("bytes": 1, "timeS": [1]})";
  EXPECT_EQ(ErrorOf(ReadSample(R"({"kernel": "GATE", "contention": "WITH_COPY", "ctas": 8, )" + rest)),
            "samples[0].ctas: found 8 with contention WITH_COPY, expected 0, or WITH_ALL_TO_ALL or WITH_ALL_GATHER, "
            "which it limits");
  const std::string gather = R"({"collective": "ALL_GATHER", "groupSize": 2, "ranksPerNode": 1, )";
  EXPECT_EQ(ErrorOf(ReadSample(gather + R"("ctas": 1025, )" + rest)),
            "samples[0].ctas: found 1025, expected 0 to 1024");
  EXPECT_EQ(ErrorOf(ReadSample(gather + R"("ctas": -1, )" + rest)), "samples[0].ctas: found -1, expected 0 to 1024");
  const auto unlimited = ReadSample(gather + R"("ctas": 0, )" + rest);
  ASSERT_TRUE(unlimited.ok()) << unlimited.status().message();
  EXPECT_THAT(ToJson(ToProto(*unlimited)), Not(HasSubstr("ctas")));
  EXPECT_THAT(ToJson(ToProto(FullSamples()), JsonStyle::kCompact), HasSubstr(R"("timeS":[2e-05],"ctas":8})"));
}

TEST(SamplesConversionTest, WhatIsMissingOrWrongIsNamed) {
  EXPECT_EQ(ErrorOf(ReadSample("{}")), "samples[0]: found no operation, expected collective or kernel");
  EXPECT_EQ(ErrorOf(ReadSample(R"({"kernel": "GATE", "timeS": [1]})")),
            "samples[0].bytes: found nothing, expected a number");
  EXPECT_EQ(ErrorOf(ReadSample(R"({"kernel": "EXPERT_GEMM", "bytes": 1, "timeS": [1]})")),
            "samples[0]: found bytes, expected flops, because this operation counts flops");
  EXPECT_EQ(ErrorOf(ReadSample(R"({"kernel": "GATE", "bytes": 1, "timeS": [1, 0]})")),
            "samples[0].timeS[1]: found 0, expected a finite number above 0");
  EXPECT_EQ(ErrorOf(ReadSample("")), "samples: found none, expected at least one");
  EXPECT_EQ(ErrorOf(SamplesFromProto({})), "cluster: found nothing, expected an object");
  EXPECT_THAT(ErrorOf(ReadSample(R"({"collective": "ALL_GATHER", "groupSize": 2, "bytes": 1, "timeS": [1]})")),
              StartsWith("samples[0].ranksPerNode: found 0"));
}

// ---- Plan.

Plan FullPlan(Family family) {
  Plan plan;
  plan.knobs = {.family = family,
                .chunks = 2,
                .partition_degree = 3,
                .all_to_all = AllToAllAlgorithm::kHier2d,
                .dispatch_codec = Codec::kFp8,
                .combine_codec = Codec::kBf16,
                .overlapped_gather = true,
                .chunk_shares = {0.25, 0.75},
                .communication_ctas = 8};
  plan.order = {"gate", "a2a#1"};
  plan.predicted_time_s = 1;
  plan.low_s = 0.5;
  plan.high_s = 1.5;
  plan.communication_time_s = 0.25;
  plan.exposed_communication_s = 0.125;
  plan.compute_time_s = 0.75;
  plan.memory_bytes = 1e9;
  plan.timeline = {
      {.task = "gate", .kind = TaskKind::kGate, .stream = StreamKind::kCompute, .start_s = 0, .end_s = 0.5},
      {.task = "a2a#1",
       .kind = TaskKind::kAllToAll,
       .stream = StreamKind::kInterNode,
       .chunk = 1,
       .start_s = 0.5,
       .end_s = 1}};
  plan.gradients = {
      .slices = {{.after_task = "gate", .before_task = "a2a#1", .start_s = 0.25, .end_s = 0.5, .bytes = 8},
                 {.start_s = 1, .end_s = 1.5, .bytes = 4088}},
      .hidden_s = 0.25,
      .exposed_s = 0.5};
  return plan;
}

PlanAnswer FullAnswer() {
  PlanAnswer answer;
  answer.workload = FullWorkload();
  answer.profile_name = "p";
  answer.profile_version = 3;
  answer.rules.parm = {.t_baseline_s = 1, .t_s1_s = 2, .t_s2_s = 3, .choice = Family::kParmS2};
  answer.rules.monta = {
      .t_baseline_s = 1, .o1_time_s = 2, .o2 = ChunkedTime{3, 4}, .o3 = ChunkedTime{5, 6}, .choice = Family::kMontaO3};
  answer.rules.schemoe = {
      .partition_degree = 2, .opt_sche_time_s = 4.5, .optimal_time_s = 4, .order = {"C1.1", "A1.1"}};
  answer.skipped_rules = {{"lancet", "not in this version"}};
  answer.skipped_candidates = {{"PARM_S2", "no ALL_GATHER"}};
  answer.warnings = {"GATE is priced 0"};
  answer.search = {.stop_reason = StopReason::kOutOfTime, .time_floor_s = 0.25, .evaluated = 7};
  answer.candidates = {FullPlan(Family::kPipeline), FullPlan(Family::kBaseline)};
  answer.explanation = "because";
  answer.routing = {.busiest_expert_ratio = 3,
                    .busiest_rank_ratio = 2,
                    .dropped_share = 0.25,
                    .capacity = {.capacity_factor = 3, .slots = 9, .predicted_time_s = 5},
                    .placement = PlacementBalancing{{1, 0, 2, 3}, 1.5, 1.25, 4},
                    .replicas = ReplicaBalancing{1, {2, 1, 2, 1}, {0, 1, 2, 0, 2, 3}, 1.25, 0.125, 1e6, 3}};
  return answer;
}

TEST(PlanConversionTest, RoundTrips) {
  ExpectRoundTrip<v1::PlanResponse>(FullAnswer(), PlanAnswerFromProto);
  PlanAnswer empty;
  empty.search.stop_reason = StopReason::kProvedBest;  // Whoever answers has ended its search.
  ExpectRoundTrip<v1::PlanResponse>(empty, PlanAnswerFromProto);
}

TEST(PlanConversionTest, RoutingReportsMayLackWhatDoesNotApply) {
  PlanAnswer answer = FullAnswer();
  answer.routing = RoutingReport{.capacity = {.capacity_factor = 1, .slots = 1}};
  ExpectRoundTrip<v1::PlanResponse>(answer, PlanAnswerFromProto);
  const auto error_with = [](const std::function<void(v1::RoutingReport&)>& change) {
    v1::PlanResponse message = ToProto(FullAnswer());
    change(*message.mutable_routing());
    return ErrorOf(PlanAnswerFromProto(message));
  };
  EXPECT_EQ(error_with([](auto& routing) { routing.clear_capacity(); }),
            "routing.capacity: found nothing, expected an object");
  EXPECT_EQ(error_with([](auto& routing) { routing.set_dropped_share(1.5); }),
            "routing.droppedShare: found 1.5, expected a number from 0 to 1");
  EXPECT_EQ(error_with([](auto& routing) { routing.mutable_replicas()->set_copies(1, 0); }),
            "routing.replicas.copies[1]: found 0, expected a finite number of at least 1");
  EXPECT_EQ(error_with([](auto& routing) { routing.mutable_placement()->set_predicted_time_s(-1); }),
            "routing.placement.predictedTimeS: found -1, expected a finite number of at least 0");
}

TEST(WorkloadConversionTest, RoutingRoundTrips) {
  Workload workload = FullWorkload();
  workload.routing = ExpertRouting{{4, 0, 1.5, 2, 1}, std::nullopt};
  ExpectRoundTrip<v1::Workload>(workload, [](const v1::Workload& message) { return WorkloadFromProto(message); });
  workload.routing = ExpertRouting{{}, 0.0};
  ExpectRoundTrip<v1::Workload>(workload, [](const v1::Workload& message) { return WorkloadFromProto(message); });
  EXPECT_THAT(ToJson(ToProto(workload), JsonStyle::kCompact),
              HasSubstr(R"("routing":{"tokensPerExpert":[],"skew":0})"));
  workload.routing.reset();
  EXPECT_THAT(ToJson(ToProto(workload)), ::testing::Not(HasSubstr("routing")));
}

TEST(PlanConversionTest, AnswersToGraphsRoundTrip) {
  GraphPlanAnswer answer = {.profile_name = "p", .profile_version = 3, .warnings = {"w"}, .explanation = "because"};
  answer.lancet = {.weight_gradients = {{"dw", "a"}},
                   .partitions = {{.first = "first",
                                   .last = "last",
                                   .parts = 3,
                                   .time_s = 0.5,
                                   .axis = CutAxis::kCapacity,
                                   .split = {"x"},
                                   .joined = {"y"}}},
                   .unscheduled_time_s = 2,
                   .time_s = 1,
                   .order = {"first#1", "dw"},
                   .communication_time_s = 3,
                   .exposed_communication_s = 4,
                   .unscheduled_exposed_s = 5,
                   .timeline = {{.task = "dw", .kind = TaskKind::kOther, .end_s = 1}},
                   .peak_bytes = 6,
                   .unscheduled_peak_bytes = 7};
  Instruction one = {.id = "dw", .op = InstructionOp::kSend, .bytes = 8, .group_size = 2, .ranks_per_node = 1};
  one.counts_bytes = 4;
  one.forward = "FORWARD_ID";
  one.stream = StreamKind::kCopy;
  one.work = {{KernelKey{.kernel = Kernel::kNorm, .bytes_per_element = 2}, 64}};
  one.outputs = {"z"};
  one.output_bytes = {32};
  one.layer = "moe";
  answer.graph = {.instructions = {one},
                  .workload = Workload{.name = "of layers"},
                  .most_bytes = 9,
                  .measured_steps = {{.time_s = 10}, {.parts = 2, .first = "first", .last = "last", .time_s = 11}}};
  ExpectRoundTrip<v1::PlanResponse>(answer, GraphPlanAnswerFromProto);
  ExpectRoundTrip<v1::PlanResponse>(GraphPlanAnswer(), GraphPlanAnswerFromProto);
  EXPECT_THAT(
      ToJson(ToProto(GraphPlanAnswer()), JsonStyle::kCompact),
      HasSubstr(
          R"("rules":{"lancet":{"weightGradients":[],"partitions":[],"unscheduledTimeS":0,"timeS":0,)"
          R"("order":[],"communicationTimeS":0,"exposedCommunicationS":0,"unscheduledExposedS":0,"timeline":[]}},)"
          R"("skippedRules":[],"skippedCandidates":[],"warnings":[],"candidates":[],)"));
  EXPECT_EQ(ErrorOf(GraphPlanAnswerFromProto(ToProto(FullAnswer()))),
            "rules.lancet: found nothing, expected an object");
  EXPECT_EQ(ErrorOf(PlanAnswerFromProto(ToProto(answer))),
            "workload: found nothing, expected the workload that was planned");
}

TEST(PlanConversionTest, WithoutGradientsNothingIsSaidOfThem) {
  const std::string plain = ToJson(ToProto(Plan())) + ToJson(ToProto(Workload()));
  EXPECT_THAT(plain, Not(HasSubstr("radient")));
}

TEST(PlanConversionTest, SlicesOfGradientsAreChecked) {
  const auto read = [](const std::string& slice) {
    return ErrorOf(PlanFromProto(Parsed<v1::Plan>(StrCat(R"({"schedule": "BASELINE", "chunks": 1, "partitionDegree": 1,
        "gradients": {"slices": [)",
                                                         slice, "]}}")),
                                 "plan"));
  };
  EXPECT_EQ(read(R"({"bytes": 8})"), "accepted");
  EXPECT_EQ(read(R"({"bytes": 0})"), "plan.gradients.slices[0].bytes: found 0, expected a finite number above 0");
  EXPECT_EQ(read(R"({"bytes": 8, "startS": -1})"),
            "plan.gradients.slices[0].startS: found -1, expected a finite number of at least 0");
}

TEST(PlanConversionTest, BestIsTheFirstCandidate) {
  const v1::PlanResponse response = ToProto(FullAnswer());
  EXPECT_EQ(response.best().schedule(), v1::Schedule::PIPELINE);
  EXPECT_FALSE(ToProto(PlanAnswer()).has_best());
}

TEST(PlanConversionTest, DefaultsOfTheWorkloadAreFilledIn) {
  const v1::Workload workload = ToProto(PlanAnswer()).workload();
  EXPECT_TRUE(workload.has_max_chunks());
  EXPECT_TRUE(workload.layer().has_expert_matrices());
  EXPECT_EQ(workload.min_chunk_bytes(), 1048576);
  EXPECT_TRUE(workload.layout().has_pipeline_parallel());
}

TEST(PlanConversionTest, AbsentRulesAreNotPrinted) {
  EXPECT_THAT(ToJson(ToProto(PlanAnswer()), JsonStyle::kCompact), HasSubstr(R"("rules":{},"skippedRules":[])"));
  PlanAnswer answer;
  answer.rules.monta.emplace();
  EXPECT_THAT(ToJson(ToProto(answer), JsonStyle::kCompact),
              HasSubstr(R"("rules":{"monta":{"tBaselineS":0,"o1":{"timeS":0},"choice":"MONTA_O1"}},)"));
}

// What is wrong with the full answer after `change`.
template <typename Change>
std::string ErrorAfter(Change change) {
  v1::PlanResponse response = ToProto(FullAnswer());
  change(response);
  return ErrorOf(PlanAnswerFromProto(response));
}

TEST(PlanConversionTest, WhatCannotBeRunIsRefused) {
  EXPECT_EQ(ErrorAfter([](auto&) {}), "accepted");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.clear_best(); }), "accepted");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.clear_workload(); }),
            "workload: found nothing, expected the workload that was planned");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.clear_search(); }), "search: found nothing, expected an object");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_best()->set_chunks(9); }),
            "best: found a plan that is not candidates[0], expected the same plan");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.clear_candidates(); }),
            "best: found a plan that is not candidates[0], expected the same plan");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_candidates(1)->set_chunks(0); }),
            "candidates[1].chunks: found 0, expected a whole number of at least 1");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_candidates(1)->set_partition_degree(0); }),
            "candidates[1].partitionDegree: found 0, expected a whole number of at least 1");
  EXPECT_THAT(ErrorAfter([](auto& response) { response.mutable_candidates(1)->clear_schedule(); }),
              StartsWith("candidates[1].schedule: found nothing, expected one of BASELINE"));
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_candidates(1)->set_chunk_shares(1, 0); }),
            "candidates[1].chunkShares[1]: found 0, expected a finite number above 0");
  for (const int wrong : {-1, 1025}) {
    EXPECT_EQ(ErrorAfter([&](auto& response) { response.mutable_candidates(1)->set_communication_ctas(wrong); }),
              "candidates[1].communicationCtas: found " + std::to_string(wrong) + ", expected 0 to 1024");
  }
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_candidates(1)->set_low_s(-1); }),
            "candidates[1].lowS: found -1, expected a finite number of at least 0");
  EXPECT_THAT(ErrorAfter([](auto& response) { response.mutable_candidates(1)->mutable_timeline(1)->clear_stream(); }),
              StartsWith("candidates[1].timeline[1].stream: found nothing, expected one of COMPUTE"));
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_rules()->mutable_monta()->clear_o1(); }),
            "rules.monta.o1: found nothing, expected an object");
  EXPECT_THAT(ErrorAfter([](auto& response) { response.mutable_rules()->mutable_parm()->clear_choice(); }),
              StartsWith("rules.parm.choice: found nothing"));
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_rules()->mutable_schemoe()->clear_partition_degree(); }),
            "rules.schemoe.partitionDegree: found 0, expected a whole number of at least 1");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_rules()->mutable_schemoe()->set_opt_sche_time_s(-1); }),
            "rules.schemoe.optScheTimeS: found -1, expected a finite number of at least 0");
  EXPECT_EQ(ErrorAfter([](auto& response) { response.mutable_rules()->mutable_schemoe()->set_optimal_time_s(-1); }),
            "rules.schemoe.optimalTimeS: found -1, expected a finite number of at least 0");
  EXPECT_THAT(ErrorAfter([](auto& response) { response.mutable_search()->clear_stop_reason(); }),
              StartsWith("search.stopReason: found nothing"));
  EXPECT_THAT(ErrorAfter([](auto& response) { response.mutable_workload()->mutable_layout()->set_data_parallel(0); }),
              StartsWith("workload.layout.dataParallel: found 0"));
}

// ---- Training graphs.

TEST(TrainingGraphConversionTest, RoundTripsAndFillsDefaultsIn) {
  TrainingGraph graph = {.max_parts = 3, .group_s = 0.5, .max_range_s = 2};
  graph.instructions = {{.id = "a",
                         .op = InstructionOp::kAllToAll,
                         .phase = Pass::kBackward,
                         .time_s = 1,
                         .part_times_s = {1, 0.6},
                         .inputs = {"x"},
                         .outputs = {"y", "z"},
                         .bytes = 8,
                         .group_size = 4,
                         .ranks_per_node = 2},
                        {.id = "g", .op = InstructionOp::kGate, .weight_gradient = true, .gate = GateKind::kHash}};
  const auto from_proto = [](const v1::TrainingGraph& message) { return TrainingGraphFromProto(message); };
  ExpectRoundTrip<v1::TrainingGraph>(graph, from_proto);
  const TrainingGraph bare =
      *TrainingGraphFromProto(Parsed<v1::TrainingGraph>(R"({"instructions": [{"id": "m", "op": "MATMUL"}]})"));
  EXPECT_EQ(bare.max_parts, 8);
  EXPECT_EQ(bare.group_s, 0);
  EXPECT_EQ(bare.instructions[0], (Instruction{.id = "m", .op = InstructionOp::kMatmul}));
  EXPECT_EQ(TrainingGraphFromProto(Parsed<v1::TrainingGraph>(R"({"maxParts": 0})"))->max_parts, 0);
  EXPECT_THAT(ErrorOf(TrainingGraphFromProto(Parsed<v1::TrainingGraph>(R"({"instructions": [{"id": "m"}]})"))),
              HasSubstr("instructions[0].op: found nothing, expected one of MATMUL"));
}

TEST(ConvertTest, TheClustersThatShipAreValid) {
  std::vector<std::filesystem::path> files = {MOEPLAN_SOURCE_DIR "/deploy/examples/cluster.json"};
  for (const auto& entry : std::filesystem::directory_iterator(MOEPLAN_SOURCE_DIR "/deploy/testbeds")) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  EXPECT_GE(files.size(), 9U);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    const auto message = ReadJsonFile<v1::SimulatedCluster>(file.string());
    ASSERT_TRUE(message.ok()) << message.status().message();
    const auto cluster = SimulatedClusterFromProto(*message);
    ASSERT_TRUE(cluster.ok()) << cluster.status().message();
    EXPECT_FALSE(cluster->name.empty());
    const std::filesystem::path grid_file = file.parent_path() / "grids" / file.filename();
    if (file.parent_path().filename() != "testbeds") continue;
    const auto grid = ReadJsonFile<v1::WorkloadGrid>(grid_file.string());
    ASSERT_TRUE(grid.ok()) << grid.status().message();
    const auto workloads = WorkloadsFromProto(*grid);
    ASSERT_TRUE(workloads.ok()) << workloads.status().message();
    for (const Workload& workload : *workloads) {
      const auto resolved =
          ResolveWorkload(workload, {.nodes = cluster->nodes, .gpus_per_node = cluster->gpus_per_node});
      EXPECT_TRUE(resolved.ok()) << workload.name << ": " << resolved.status().message();
    }
  }
}

}  // namespace
}  // namespace moeplan
