// The contract's example files as domain types, read without the wire format, so that the rules are checked on their
// own.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/cost/profile.h"
#include "models/workload/workload.h"

namespace moeplan {

inline nlohmann::json ReadContractFile(const std::string& name) {
  std::ifstream file(std::string(MOEPLAN_TEST_DATA) + "/contract/" + name);
  EXPECT_TRUE(file.good()) << name;
  return nlohmann::json::parse(file);
}

// The enumerator whose contract name is `name`. Requires one below 64.
template <typename Enum>
Enum ByName(std::string_view name) {
  for (int i = 0; i < 64; ++i) {
    if (Name(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  ADD_FAILURE() << "no enumerator is called " << name;
  return {};
}

inline AlphaBeta LineFromJson(const nlohmann::json& json) {
  return {json.at("alphaS"), json.contains("betaSPerFlop") ? json.at("betaSPerFlop") : json.at("betaSPerByte")};
}

inline CostModel ModelFromJson(const nlohmann::json& json) {
  if (json.contains("efficiency")) {
    Efficiency curve{.peak_per_s = json["efficiency"]["peakBytesPerS"]};
    for (const auto& point : json["efficiency"]["points"])
      curve.points.push_back({point["bytes"], point["efficiency"]});
    return MakeCostModel(curve);
  }
  if (json.contains("logLog")) {
    LogLog curve;
    for (const auto& point : json["logLog"]["points"]) curve.points.push_back({point["bytes"], point["timeS"]});
    return MakeCostModel(curve);
  }
  return MakeCostModel(LineFromJson(json.at("alphaBeta")));
}

inline Contention ContentionFromJson(const nlohmann::json& json) {
  return ByName<Contention>(json.value("contention", "NONE"));
}

inline Profile ExampleProfile() {
  const nlohmann::json json = ReadContractFile("profile.example.json");
  Profile profile{.name = json["name"]};
  profile.cluster = {.nodes = json["cluster"]["nodes"],
                     .gpus_per_node = json["cluster"]["gpusPerNode"],
                     .peak_flops_per_s = json["cluster"]["peakFlopsPerS"],
                     .device_memory_bytes = json["cluster"]["deviceMemoryBytes"]};
  for (const auto& entry : json["collectives"]) {
    profile.collectives.push_back({{.collective = ByName<Collective>(entry["collective"].get<std::string>()),
                                    .group = {entry["groupSize"], entry["ranksPerNode"]},
                                    .gather_group_size = entry.value("gatherGroupSize", 0),
                                    .shards = entry.value("shards", 0),
                                    .contention = ContentionFromJson(entry)},
                                   ModelFromJson(entry)});
  }
  for (const auto& entry : json["kernels"]) {
    profile.kernels.push_back(
        {{.kernel = ByName<Kernel>(entry["kernel"].get<std::string>()), .contention = ContentionFromJson(entry)},
         ModelFromJson(entry)});
  }
  return profile;
}

inline Workload ExampleWorkload() {
  const nlohmann::json json = ReadContractFile("workload.example.json");
  Workload workload;
  const auto& layer = json["layer"];
  workload.layer = {.batch = layer["batch"],
                    .sequence_length = layer["sequenceLength"],
                    .model_dim = layer["modelDim"],
                    .hidden_dim = layer["hiddenDim"],
                    .experts = layer["experts"],
                    .top_k = layer["topK"],
                    .capacity_factor = layer["capacityFactor"],
                    .bytes_per_element = layer["bytesPerElement"],
                    .expert_matrices = layer["expertMatrices"]};
  const auto& layout = json["layout"];
  workload.layout = {.tensor_parallel = layout["tensorParallel"],
                     .expert_parallel = layout["expertParallel"],
                     .expert_sharding_parallel = layout["expertShardingParallel"],
                     .data_parallel = layout["dataParallel"]};
  workload.min_chunk_bytes = json["minChunkBytes"];
  workload.max_partition_degree = json["maxPartitionDegree"];
  workload.dispatch_codec = ByName<Codec>(json["dispatchCodec"].get<std::string>());
  workload.combine_codec = ByName<Codec>(json["combineCodec"].get<std::string>());
  return workload;
}

}  // namespace moeplan
