// The contract's files and key names, to the letter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/samples.pb.h"
#include "moeplan/v1/training_graph.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "proto/convert/profile.h"
#include "proto/convert/workload.h"
#include "proto/json.h"
#include "tests/proto/sources.h"

namespace moeplan {
namespace {

using nlohmann::json;

template <typename Message>
Message Example(const std::string& name) {
  const auto message = ReadJsonFile<Message>(SourcePath("tests/data/contract/" + name));
  EXPECT_TRUE(message.ok()) << message.status().message();
  return message.ok() ? *message : Message();
}

// Whether all of `part` stands in `whole`, under the same keys.
void ExpectContains(const json& whole, const json& part, const std::string& path) {
  if (part.is_object()) {
    for (const auto& [key, value] : part.items()) {
      ASSERT_TRUE(whole.contains(key)) << path << "." << key;
      ExpectContains(whole.at(key), value, path + "." + key);
    }
  } else if (part.is_array()) {
    ASSERT_EQ(whole.size(), part.size()) << path;
    for (size_t i = 0; i < part.size(); ++i) ExpectContains(whole[i], part[i], path + "[" + std::to_string(i) + "]");
  } else {
    EXPECT_EQ(whole, part) << path;
  }
}

// `text` uses the keys as the contract writes them: it is accepted, and printing gives the same keys and values.
template <typename Message>
void ExpectKeys(const std::string& text) {
  const auto message = FromJson<Message>(text, "contract");
  ASSERT_TRUE(message.ok()) << message.status().message();
  ExpectContains(json::parse(ToJson(*message)), json::parse(text), "");
}

TEST(ContractTest, TheWorkloadExampleIsAccepted) {
  const auto workload = WorkloadFromProto(Example<v1::Workload>("workload.example.json"));
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_EQ(workload->layer.hidden_dim, 28672);
  EXPECT_EQ(workload->layout.context_parallel, 1);
  EXPECT_EQ(workload->max_chunks, 64);
  EXPECT_EQ(workload->dispatch_codec, Codec::kFp8);
  const auto resolved = ResolveWorkload(*workload, {.nodes = 2, .gpus_per_node = 8});
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
}

TEST(ContractTest, TheProfileExampleIsAccepted) {
  const auto profile = ProfileFromProto(Example<v1::Profile>("profile.example.json"));
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->name, "two-nodes-of-eight");
  ASSERT_EQ(profile->collectives.size(), 6u);
  ASSERT_EQ(profile->kernels.size(), 4u);
  const CostModel& all_reduce = profile->collectives[3].model;
  EXPECT_EQ(FormName(all_reduce.curve), "logLog");
  EXPECT_EQ(all_reduce.summary, (AlphaBeta{.alpha_s = 5e-05, .beta_s_per_unit = 1.15e-11}));
  EXPECT_EQ(all_reduce.size_high, 2147483648);
  EXPECT_EQ(profile->collectives[5].key.shards, 8);
  EXPECT_EQ(profile->kernels[1].model.curve, Curve(AlphaBeta{.alpha_s = 2e-05, .beta_s_per_unit = 5.1e-15}));
}

TEST(ContractTest, TheSimulatedClusterExampleIsAccepted) {
  const auto cluster = Example<v1::SimulatedCluster>("cluster.example.json");
  EXPECT_EQ(cluster.gpu_link().kind(), v1::SimulatedCluster::GpuLink::SHARED_BUS);
  EXPECT_EQ(cluster.nic().per_node(), 1);
  EXPECT_EQ(cluster.gpu().launch_s(), 6e-6);
  EXPECT_TRUE(cluster.switch_().has_oversubscription());
}

TEST(ContractTest, TheExpectedRulesHaveOurKeys) {
  const auto response = Example<v1::PlanResponse>("expected.example.json");
  EXPECT_EQ(response.rules().monta().o2().chunks(), 2);
  EXPECT_EQ(response.rules().monta().choice(), v1::Schedule::MONTA_O2);
  EXPECT_EQ(response.rules().schemoe().partition_degree(), 4);
}

TEST(ContractTest, EveryExamplePrintsWhatItSaid) {
  const auto check = [](const std::string& name, const google::protobuf::Message& message) {
    const auto text = ReadTextFile(SourcePath("tests/data/contract/" + name));
    ASSERT_TRUE(text.ok());
    ExpectContains(json::parse(ToJson(message)), json::parse(*text), name);
  };
  check("workload.example.json", Example<v1::Workload>("workload.example.json"));
  check("profile.example.json", Example<v1::Profile>("profile.example.json"));
  check("cluster.example.json", Example<v1::SimulatedCluster>("cluster.example.json"));
  check("expected.example.json", Example<v1::PlanResponse>("expected.example.json"));
}

TEST(ContractTest, ProfileKeys) {
  ExpectKeys<v1::Profile>(R"({"name": "p", "version": 3, "createdAt": "2025-01-02T03:04:05Z",
    "cluster": {"nodes": 2, "gpusPerNode": 8, "peakFlopsPerS": 1e12, "deviceMemoryBytes": 1e10},
    "collectives": [
      {"collective": "REDUCE_SCATTER", "algorithm": "HIER_1D", "groupSize": 4, "ranksPerNode": 2,
       "contention": "WITH_EXPERT_GEMM", "bytesPerElement": 2,
       "interpolated": {"points": [{"bytes": 1, "timeS": 2}]}, "alphaBeta": {"alphaS": 1, "betaSPerByte": 2},
       "fit": {"chosen": "interpolated", "relativeErrorP50": 0.1, "relativeErrorP95": 0.2, "alphaLowS": 1,
               "alphaHighS": 2, "betaLowSPerByte": 3, "betaHighSPerByte": 4, "intervalLowRatio": 0.9,
               "intervalHighRatio": 1.1, "breakpointsBytes": [5], "outliers": 6, "points": 7}},
      {"collective": "ALL_TO_ALL_ALL_GATHER", "algorithm": "HIER_2D", "groupSize": 4, "ranksPerNode": 2,
       "gatherGroupSize": 2, "shards": 2, "contention": "WITH_ALL_TO_ALL",
       "efficiency": {"peakBytesPerS": 1, "points": [{"bytes": 1, "efficiency": 0.5}]}},
      {"collective": "ALL_TO_ALL", "algorithm": "PIPE", "contention": "WITH_ALL_GATHER", "ctas": 16}],
    "kernels": [{"kernel": "EXPERT_GEMM", "contention": "WITH_COPY", "bytesPerElement": 4, "modelDim": 8, "hiddenDim": 16,
       "logLog": {"points": [{"flops": 1, "timeS": 2}]}, "alphaBeta": {"alphaS": 1, "betaSPerFlop": 2},
       "fit": {"betaLowSPerFlop": 3, "betaHighSPerFlop": 4}},
      {"kernel": "EXPERT_GEMM", "contention": "WITH_ALL_TO_ALL", "ctas": 8}]})");
}

TEST(ContractTest, KernelNames) {
  for (const std::string kernel :
       {"DEVICE_COPY", "EXPERT_GEMM", "GATE", "PERMUTE", "ENCODE_FP16", "ENCODE_BF16", "ENCODE_FP8", "ENCODE_INT8",
        "ENCODE_ZFP", "DECODE_FP16", "DECODE_BF16", "DECODE_FP8", "DECODE_INT8", "DECODE_ZFP", "EXPERT_INPUT_GRADIENT",
        "EXPERT_WEIGHT_GRADIENT", "ENCODE_FP8_BLOCKWISE", "DECODE_FP8_BLOCKWISE"}) {
    ExpectKeys<v1::KernelModel>(R"({"kernel": ")" + kernel + "\"}");
  }
}

TEST(ContractTest, WorkloadKeys) {
  ExpectKeys<v1::WorkloadGrid>(R"({"workloads": [{"name": "w",
    "layer": {"batch": 1, "sequenceLength": 2, "modelDim": 3, "hiddenDim": 4, "experts": 5, "topK": 1,
              "capacityFactor": 1.5, "bytesPerElement": 4, "expertMatrices": 3, "gate": "EXPERT_CHOICE",
              "expertBias": true, "sharedHiddenDim": 6, "auxLossCoefficient": 0.01, "zLossCoefficient": 0.001,
              "expertKind": "FFN", "swigluLimit": 7,
              "router": {"scoreFunction": "SIGMOID", "rawWeights": true, "weightScale": 2.5, "expertGroups": 5,
                         "groupsPerToken": 2, "correctionBias": true, "bias": true, "weighsInput": true}},
    "layout": {"tensorParallel": 1, "expertParallel": 2, "expertShardingParallel": 3, "contextParallel": 4,
               "pipelineParallel": 5, "dataParallel": 6},
    "minChunkBytes": 7, "maxChunks": 8, "maxPartitionDegree": 9, "dispatchCodec": "ZFP", "combineCodec": "INT8",
    "allowLossy": true, "namedCodecsOnly": true, "phase": "TRAINING", "capacityPassing": "PADDED"}]})");
  for (const std::string gate : {"TOP_K", "SWITCH", "BATCH_PRIORITIZED", "EXPERT_CHOICE", "RANDOM", "HASH"}) {
    ExpectKeys<v1::Layer>(R"({"gate": ")" + gate + "\"}");
  }
}

TEST(ContractTest, WorkloadDefaultsAreTheZeroValues) {
  const json printed = json::parse(ToJson(v1::Workload()));
  ExpectContains(printed, json::parse(R"({"dispatchCodec": "NONE", "combineCodec": "NONE", "allowLossy": false,
    "phase": "FORWARD", "capacityPassing": "EXACT"})"),
                 "");
  ExpectContains(json::parse(ToJson(v1::Layer())),
                 json::parse(R"({"gate": "TOP_K", "expertBias": false, "sharedHiddenDim": 0,
                   "auxLossCoefficient": 0, "zLossCoefficient": 0, "expertKind": "FFN", "swigluLimit": 0})"),
                 "");
}

TEST(ContractTest, PlanResponseKeys) {
  const std::string plan = R"({"schedule": "BASELINE_TP", "chunks": 1, "partitionDegree": 2, "allToAll": "HIER_2D",
    "dispatchCodec": "FP16", "combineCodec": "BF16", "overlappedGather": true, "chunkShares": [0.25, 0.75],
    "order": ["a", "b"], "predictedTimeS": 1, "lowS": 2, "highS": 3, "communicationTimeS": 4,
    "exposedCommunicationS": 5, "computeTimeS": 6, "memoryBytes": 7,
    "timeline": [{"task": "a", "kind": "REDUCE_SCATTER", "stream": "INTRA_NODE", "chunk": 1, "startS": 0, "endS": 1}],
    "communicationCtas": 8})";
  ExpectKeys<v1::PlanResponse>(R"({"workload": {"layer": {}}, "profileName": "p", "profileVersion": 2,
    "rules": {
      "parm": {"tBaselineS": 1, "tS1S": 2, "tS2S": 3, "choice": "PARM_S2"},
      "monta": {"tBaselineS": 1, "o1": {"timeS": 2}, "o2": {"chunks": 3, "timeS": 4}, "o3": {"chunks": 5, "timeS": 6},
                "choice": "MONTA_O3"},
      "schemoe": {"partitionDegree": 1, "optScheTimeS": 2, "optimalTimeS": 3, "order": ["C1.1", "A1.1"]},
      "lancet": {"weightGradients": [{"instruction": "w", "allToAll": "a"}],
                 "partitions": [{"first": "a", "last": "b", "parts": 2, "timeS": 1}],
                 "unscheduledTimeS": 3, "timeS": 2, "order": ["a#1"]}},
    "skippedRules": [{"rule": "parm", "reason": "r"}], "skippedCandidates": [{"schedule": "PARM_S1", "reason": "r"}],
    "warnings": ["w"], "search": {"stopReason": "OUT_OF_BUDGET", "timeFloorS": 1, "evaluated": 2},
    "best": )" + plan + R"(, "candidates": [)" +
                               plan + R"(], "explanation": "e"})");
}

TEST(ContractTest, PlanNames) {
  for (const std::string name :
       {"BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "MONTA_O2", "MONTA_O3", "PIPELINE",
        "ONCE_PER_NODE"}) {
    ExpectKeys<v1::Plan>(R"({"schedule": ")" + name + "\"}");
  }
  for (const std::string name : {"GATE", "PERMUTE", "ENCODE", "ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER",
                                 "ALL_REDUCE", "DECODE", "COPY", "EXPERT", "REDUCE", "COMBINE", "OTHER"}) {
    ExpectKeys<v1::TaskTiming>(R"({"kind": ")" + name + "\"}");
  }
  for (const std::string name : {"COMPUTE", "INTRA_NODE", "INTER_NODE", "COPY"}) {
    ExpectKeys<v1::TaskTiming>(R"({"stream": ")" + name + "\"}");
  }
  for (const std::string name : {"PROVED_BEST", "OUT_OF_BUDGET", "OUT_OF_TIME", "CANCELLED"}) {
    ExpectKeys<v1::Search>(R"({"stopReason": ")" + name + "\"}");
  }
}

TEST(ContractTest, SamplesKeys) {
  ExpectKeys<v1::Samples>(R"({"name": "s", "cluster": {"nodes": 1}, "samples": [
    {"collective": "ALL_TO_ALL_ALL_GATHER", "algorithm": "DIRECT", "groupSize": 4, "ranksPerNode": 2,
     "gatherGroupSize": 2, "shards": 2, "contention": "NONE", "bytes": 1024, "timeS": [1, 2],
     "provenance": {"hostname": "n1"}},
    {"kernel": "EXPERT_GEMM", "contention": "WITH_ALL_TO_ALL", "flops": 1e9, "timeS": [1]},
    {"kernel": "EXPERT_GEMM", "contention": "WITH_ALL_TO_ALL", "ctas": 8, "flops": 1e9, "timeS": [1]},
    {"kernel": "GATE", "bytes": 1e9, "timeS": [1]}]})");
}

TEST(ContractTest, TrainingGraphKeys) {
  ExpectKeys<v1::TrainingGraph>(R"({"instructions": [
    {"id": "i", "op": "LAYER_NORM", "phase": "BACKWARD", "timeS": 1, "partTimesS": [1, 0.6], "inputs": ["x"],
     "outputs": ["y"], "weightGradient": true, "gate": "BATCH_PRIORITIZED", "bytes": 5, "groupSize": 4,
     "ranksPerNode": 2}], "maxParts": 8, "groupS": 0, "maxRangeS": 0})");
  for (const std::string name : {"MATMUL", "ELEMENTWISE", "LAYER_NORM", "SOFTMAX", "ATTENTION", "GATE", "DISPATCH",
                                 "ALL_TO_ALL", "EXPERT", "COMBINE", "OTHER"}) {
    ExpectKeys<v1::Instruction>(R"({"op": ")" + name + "\"}");
  }
}

TEST(ContractTest, ClusterKeys) {
  ExpectKeys<v1::EmulatedCluster>(R"({"nodes": 2, "gpusPerNode": 2, "nic": {"bytesPerS": 2.5e7}})");
  ExpectKeys<v1::SimulatedCluster>(R"({"gpuLink": {"kind": "SWITCHED"}, "nic": {"perGpu": true}})");
  ExpectKeys<v1::SimulatedCluster>(R"({"gpuLink": {"kind": "MESH"}})");
}

TEST(ContractTest, ReportKeys) {
  ExpectKeys<v1::RunReport>(R"({"schedule": "PIPELINE", "predictedTimeS": 1, "measuredTimeS": 2, "spreadS": 3,
    "maxRelativeError": 4, "droppedTokens": 5, "ranks": [{"rank": 0, "timeline": [{"task": "a"}]}]})");
  ExpectKeys<v1::ValidationReport>(R"({"workloads": [{"name": "w", "chosen": {"schedule": "PARM_S1"},
    "candidates": [{"schedule": "PARM_S1", "chunks": 1, "partitionDegree": 2, "allToAll": "DIRECT",
                    "predictedTimeS": 1, "lowS": 2, "highS": 3, "measuredTimeS": 4}],
    "predictionError": 1, "regret": 2, "speedupOverBaseline": 3}],
    "predictionErrorP50": 1, "predictionErrorP95": 2, "regretMean": 3, "regretMax": 4, "coverage": 5,
    "speedupOverBaselineMean": 6})");
  ExpectKeys<v1::WhatIfResult>(R"({"rows": [{"fields": {"layer.sequenceLength": 4096}, "best": {"chunks": 1},
    "predictedTimeS": 1}]})");
  ExpectKeys<v1::LayoutResult>(R"({"layouts": [{"layout": {"tensorParallel": 8}, "stepTimeS": 1, "tokensPerS": 2,
    "mfu": 3, "memoryBytes": 4, "networkScale": 5}]})");
  ExpectKeys<v1::StepResult>(
      R"({"stepTimeS": 1, "lowS": 2, "highS": 3, "tokensPerS": 4, "tokensPerSPerGpu": 5, "mfu": 6,
    "memoryBytes": 7, "memory": {"weights": 1, "gradients": 2, "optimizer": 3, "activations": 4, "buffers": 5,
    "logits": 6, "other": 7}, "parts": [{"part": "bubble", "forwardS": 1, "backwardS": 2, "exposedS": 3}],
    "costs": ["a"], "warnings": ["b"], "extrapolated": true, "missingBytes": 8})");
  ExpectKeys<v1::StepLayout>(R"({"tensorParallel": 1, "expertParallel": 2, "expertShardingParallel": 3,
    "contextParallel": 4, "pipelineParallel": 5, "dataParallel": 6, "microBatch": 7, "virtualStages": 8, "stages": [9],
    "recompute": "FULL", "zeroStage": 10, "sequenceParallel": true, "attention": "STORED",
    "contextExchange": "ALL_TO_ALL", "dispatcher": "HYBRID_EP", "transport": "NVSHMEM", "overlapExpertParallel": true,
    "delayWeightGradients": true, "schedule": "PARM_S1", "plan": {"chunks": 2}, "precision": "NVFP4",
    "capacityFactor": 11})");
  ExpectKeys<v1::ProfileList>(R"({"profiles": [{"name": "p", "version": 1, "createdAt": "2025-01-02T03:04:05Z"}]})");
}

}  // namespace
}  // namespace moeplan
