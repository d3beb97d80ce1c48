#include "cli/reproduce/lancet/measured_models.h"

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "models/fit/fit.h"
#include "models/model/model_config.h"
#include "planner/lancet/model_graph.h"

namespace moeplan::cli {
namespace {

constexpr int kTokensOfSample = 512;
constexpr int kExpertsPerGpu = 2;
constexpr int kHeadDim = 64;
constexpr int kMostParts = 8;

// Every other layer has experts.
ModelConfig ConfigOf(const Model& model, int gpus) {
  ModelConfig config = {.model_dim = model.model_dim,
                        .dense_hidden_dim = 4 * model.model_dim,
                        .heads = model.model_dim / kHeadDim,
                        .kv_heads = model.model_dim / kHeadDim,
                        .head_dim = kHeadDim,
                        .experts = kExpertsPerGpu * gpus,
                        .top_k = 1,
                        .expert_hidden_dim = 4 * model.model_dim,
                        .vocab = 50257};
  for (int layer = 0; layer < model.layers; ++layer) config.moe_layer.push_back(layer % 2 == 1);
  return config;
}

// Whatever has a time, so that a graph can be made of which the sizes are read.
Profile PlaceholderProfile(const Cluster& cluster, int gpus) {
  const CostModel line = MakeCostModel(AlphaBeta{1e-6, 1e-12});
  const GroupShape all = {gpus, cluster.gpus_per_node};
  return {.cluster = cluster,
          .collectives = {{{.collective = Collective::kAllToAll, .group = all}, line},
                          {{.collective = Collective::kAllReduce, .group = all}, line}},
          .kernels = {{{.kernel = Kernel::kExpertGemm}, line}, {{.kernel = Kernel::kDeviceCopy}, line}}};
}

StatusOr<TrainingGraph> GraphOf(const MeasuredModel& of, const Gate& gate, const Cluster& cluster,
                                const Profile& profile) {
  PriceNotes notes;
  return planner::TrainingGraphOf(ConfigOf(*of.model, of.gpus),
                                  {.batch = of.batch,
                                   .sequence_length = kTokensOfSample,
                                   .expert_parallel = of.gpus,
                                   .ranks_per_node = cluster.gpus_per_node,
                                   .capacity_factor = 1,
                                   .bytes_per_element = 4,
                                   .gate = gate.kind,
                                   .max_parts = kMostParts,
                                   .zero_stage = 0},
                                  profile, notes);
}

// Tells whether one GPU computes it alone, which takes as long in a cluster of any size. A gate has as many experts as
// the cluster.
bool IsOfOneGpu(const CostKey& key) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  return kernel != nullptr && kernel->contention == Contention::kNone && kernel->kernel != Kernel::kGate;
}

// Samples of one GPU's kernels on one kind of machine, by what they are of.
using KnownSamples = std::map<std::pair<CostKey, double>, Sample>;

StatusOr<Profile> MeasureModel(Testbed& testbed, const TrainingGraph& sizes, KnownSamples& known) {
  ASSIGN_OR_RETURN(const std::vector<agent::Measurement> all, agent::MeasurementsOfGraph(sizes, testbed.cluster()));
  std::vector<agent::Measurement> unknown;
  std::vector<Sample> taken;
  for (const agent::Measurement& one : all) {
    const auto found = known.find({one.need.key, one.need.size});
    if (found == known.end()) {
      unknown.push_back(one);
    } else {
      taken.push_back(found->second);
    }
  }
  ASSIGN_OR_RETURN(SampleSet samples, testbed.Measure(unknown));
  for (const Sample& sample : samples.samples) {
    if (IsOfOneGpu(sample.key)) known.insert({{sample.key, sample.size}, sample});
  }
  samples.samples.insert(samples.samples.end(), taken.begin(), taken.end());
  return FitProfile(samples);
}

Status AddModel(Testbed& testbed, const Machines& machines, int gpus, const Model& model, int batch,
                KnownSamples& known, std::list<MeasuredModel>& models) {
  MeasuredModel measured = {
      .machines = &machines, .gpus = gpus, .batch = batch, .model = &model, .profile = {}, .graphs = {}};
  const Cluster cluster = testbed.cluster();
  ASSIGN_OR_RETURN(const TrainingGraph sizes, GraphOf(measured, kGates[0], cluster, PlaceholderProfile(cluster, gpus)));
  ASSIGN_OR_RETURN(measured.profile, MeasureModel(testbed, sizes, known));
  for (size_t i = 0; i < std::size(kGates); ++i) {
    ASSIGN_OR_RETURN(measured.graphs[i], GraphOf(measured, kGates[i], cluster, measured.profile));
  }
  models.push_back(std::move(measured));
  return OkStatus();
}

}  // namespace

StatusOr<Testbed> StartOn(const Machines& machines, int gpus, const ShowProgress& progress) {
  ASSIGN_OR_RETURN(SimulatedCluster cluster, FindTestbed(machines.testbed));
  cluster.nodes = gpus / cluster.gpus_per_node;
  return Testbed::Start(cluster, progress);
}

StatusOr<Setting> MeasureAll(const ShowProgress& progress) {
  Setting setting;
  for (const Machines& machines : kMachines) {
    KnownSamples known;
    for (const int gpus : kGpus) {
      ASSIGN_OR_RETURN(Testbed testbed, StartOn(machines, gpus, progress));
      for (size_t i = 0; i < std::size(kModels); ++i) {
        RETURN_IF_ERROR(AddModel(testbed, machines, gpus, kModels[i], machines.batches[i], known, setting.models));
      }
      if (&machines != &kMachines[0] || gpus != kRangeGpus) continue;
      RETURN_IF_ERROR(AddModel(testbed, machines, gpus, kModels[1], kSmallBatch, known, setting.small_batch));
    }
  }
  return setting;
}

}  // namespace moeplan::cli
