// Prints SAMPLES.json (docs/contract.md) of what the layers of known models need of a card: kernels by bytes, products
// by flops, copies; as `moeplan calibrate --backend cuda` measures them, on a machine that has models and executor
// alone. `moeplan fit --samples` makes a profile of it. With --small: of a layer of no use, for a test of this program.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string_view>
#include <utility>

#include "agent/operation.h"
#include "executor/build_facts.h"
#include "executor/cuda/card_facts.h"
#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/in_process_exchange.h"
#include "models/cost/samples.h"
#include "models/measurement/needs.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kWarmUps = 3, kRepeats = 9;
constexpr Cluster kCluster = {.nodes = 8, .gpus_per_node = 8, .peak_flops_per_s = 1e15};

// What fails ends the program.
void CheckOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_samples: %s\n", status.message().c_str());
  std::exit(1);
}

template <typename T>
T ValueOf(StatusOr<T> value) {
  CheckOk(value.status());
  return *std::move(value);
}

// An MoE layer of a published model, over as many GPUs as leave few experts on each: weights are made on the host.
struct ModelLayer {
  Layer layer;
  int expert_parallel = 1;
};
std::vector<ModelLayer> LayersOfModels() {
  const Layer mixtral_8x7b = {.model_dim = 4096, .hidden_dim = 14336, .experts = 8, .top_k = 2};
  const Layer deepseek_v3 = {
      .model_dim = 7168, .hidden_dim = 2048, .experts = 256, .top_k = 8, .shared_hidden_dim = 2048};
  const Layer qwen3_235b = {.model_dim = 4096, .hidden_dim = 1536, .experts = 128, .top_k = 8};
  return {{mixtral_8x7b, 8}, {deepseek_v3, 64}, {qwen3_235b, 64}};
}

std::vector<Workload> WorkloadsOf(const std::vector<ModelLayer>& models, int tokens) {
  std::vector<Workload> workloads;
  for (ModelLayer model : models) {
    model.layer.batch = 1;
    model.layer.sequence_length = tokens;
    model.layer.capacity_factor = 1;
    model.layer.expert_matrices = 3;
    for (const int bytes_per_element : {2, 4}) {
      for (const Phase phase : {Phase::kForward, Phase::kTraining}) {
        model.layer.bytes_per_element = bytes_per_element;
        const Workload workload = {.layer = model.layer,
                                   .layout = {.expert_parallel = model.expert_parallel},
                                   .allow_lossy = true,
                                   .phase = phase};
        workloads.push_back(ValueOf(ResolveWorkload(workload, kCluster)));
      }
    }
  }
  return workloads;
}

std::vector<double> Time(const KernelKey& key, double size, CudaRank& rank, const Workload& workload) {
  const std::unique_ptr<agent::Operation> operation = ValueOf(agent::MakeKernel(key, size, rank, workload));
  CheckOk(rank.SettleClocks());  // The card was idle while weights were made.
  CudaDevice& device = rank.device();
  Stream& stream = rank.runtime().streams()[StreamKind::kCompute];
  const std::unique_ptr<Event> start = device.MakeEvent(), end = device.MakeEvent();
  std::vector<double> times_s;
  for (int run = 0; run < kWarmUps + kRepeats; ++run) {
    CheckOk(rank.CoolCaches());
    device.Label(stream, "measure");
    device.Record(*start, stream);
    operation->Enqueue(stream);
    device.Record(*end, stream);
    CheckOk(device.Synchronize());
    if (run >= kWarmUps) times_s.push_back((device.TimeS(*end) - device.TimeS(*start)) * operation->share());
  }
  return times_s;
}

void Print(const KernelKey& key, double size, const std::vector<double>& times_s, bool first) {
  std::printf("%s\n  {\"kernel\": \"%s\", \"%s\": %.17g", first ? "" : ",", std::string(Name(key.kernel)).c_str(),
              std::string(UnitOf(key)).c_str(), size);
  if (key.bytes_per_element) std::printf(", \"bytesPerElement\": %d", *key.bytes_per_element);
  if (key.model_dim) std::printf(", \"modelDim\": %d", *key.model_dim);
  if (key.hidden_dim) std::printf(", \"hiddenDim\": %d", *key.hidden_dim);
  std::printf(", \"timeS\": [");
  for (size_t i = 0; i < times_s.size(); ++i) std::printf("%s%.9g", i == 0 ? "" : ", ", times_s[i]);
  std::printf("], \"provenance\": {");
}

void PrintFacts(const std::map<std::string, std::string>& facts) {
  bool first = true;
  for (const auto& [name, value] : facts) {
    std::string escaped;
    for (const char letter : value) {
      if (letter == '"' || letter == '\\') escaped += '\\';
      if (static_cast<unsigned char>(letter) >= ' ') escaped += letter;
    }
    std::printf("%s\"%s\": \"%s\"", first ? "" : ", ", name.c_str(), escaped.c_str());
    first = false;
  }
  std::printf("}}");
}

void Main(const std::vector<Workload>& workloads) {
  const std::unique_ptr<CudaRank> rank =
      ValueOf(MakeCudaRank({}, [](CudaDevice& device) -> StatusOr<std::unique_ptr<PartExchange>> {
        return MakeInProcessExchange(std::move(MakeInProcessMeshes(1)[0]), device, /*deadline_s=*/60);
      }));
  CheckOk(rank->SettleClocks());
  std::map<std::string, std::string> facts = BuildFacts();
  facts.merge(CardFacts(/*card=*/0));
  facts["backend"] = "cuda";
  char now[32];
  const std::time_t time = std::time(nullptr);
  std::strftime(now, sizeof now, "%FT%TZ", std::gmtime(&time));
  facts["takenAt"] = now;
  size_t free = 0, total = 0;
  CheckOk(StatusOf(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));

  std::vector<Sample> samples;
  double peak_flops_per_s = 0;  // Of any product here.
  std::set<std::pair<std::string, double>> taken;
  for (const Workload& workload : workloads) {
    for (const Need& need : NeedsOf({workload}, kCluster)) {
      const auto* key = std::get_if<KernelKey>(&need.key);
      if (key == nullptr || key->contention != Contention::kNone) continue;
      if (!taken.emplace(Describe(*key), need.size).second) continue;
      samples.push_back(
          {.key = *key, .size = need.size, .times_s = Time(*key, need.size, *rank, workload), .provenance = {}});
      const double fastest_s = *std::ranges::min_element(samples.back().times_s);
      if (CountsFlops(key->kernel)) peak_flops_per_s = std::max(peak_flops_per_s, need.size / fastest_s);
    }
  }
  std::printf(
      "{\"name\": \"one-card\", \"cluster\": {\"nodes\": 1, \"gpusPerNode\": 1, \"peakFlopsPerS\": %.6g, "
      "\"deviceMemoryBytes\": %zu},\n\"samples\": [",
      peak_flops_per_s, total);
  for (size_t i = 0; i < samples.size(); ++i) {
    Print(std::get<KernelKey>(samples[i].key), samples[i].size, samples[i].times_s, i == 0);
    PrintFacts(facts);
  }
  std::printf("\n]}\n");
}

}  // namespace
}  // namespace moeplan::executor::cuda

int main(int count, char** arguments) {
  using namespace moeplan::executor::cuda;  // NOLINT
  const bool small = count > 1 && std::string_view(arguments[1]) == "--small";
  const moeplan::Layer tiny = {.model_dim = 16, .hidden_dim = 16, .experts = 8, .top_k = 2};
  Main(small ? WorkloadsOf({{tiny, 8}}, /*tokens=*/16) : WorkloadsOf(LayersOfModels(), /*tokens=*/4096));
}
