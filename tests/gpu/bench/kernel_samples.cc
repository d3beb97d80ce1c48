// Prints SAMPLES.json (docs/contract.md) of what the layers of known models need of a card: kernels by bytes, products
// by flops, copies; as `moeplan calibrate --backend cuda` measures them, on a machine that has models and executor
// alone. `moeplan fit --samples` makes a profile of it.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <tuple>

#include "agent/operation.h"
#include "executor/build_facts.h"
#include "executor/cuda/card_facts.h"
#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/in_process_exchange.h"
#include "models/measurement/needs.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::cuda {
namespace {

constexpr int kWarmUps = 3, kRepeats = 9;
constexpr Cluster kNode = {.nodes = 1, .gpus_per_node = 8, .peak_flops_per_s = 1e15};

// The MoE layers of published models, on the GPUs of a node.
std::vector<Workload> LayersOfModels() {
  const Layer mixtral_8x7b = {.model_dim = 4096, .hidden_dim = 14336, .experts = 8, .top_k = 2};
  const Layer deepseek_v3 = {
      .model_dim = 7168, .hidden_dim = 2048, .experts = 256, .top_k = 8, .shared_hidden_dim = 2048};
  const Layer qwen3_235b = {.model_dim = 4096, .hidden_dim = 1536, .experts = 128, .top_k = 8};
  std::vector<Workload> workloads;
  for (Layer layer : {mixtral_8x7b, deepseek_v3, qwen3_235b}) {
    layer.batch = 1;
    layer.sequence_length = 4096;
    layer.capacity_factor = 1;
    layer.expert_matrices = 3;
    for (const Phase phase : {Phase::kForward, Phase::kTraining}) {
      const Workload workload = {.layer = layer, .layout = {.expert_parallel = 8}, .allow_lossy = true, .phase = phase};
      workloads.push_back(*ResolveWorkload(workload, kNode));
    }
  }
  return workloads;
}

template <typename T>
T Need(StatusOr<T> value) {
  CheckOk(value.status());
  return *std::move(value);
}

std::vector<double> Time(const KernelKey& key, double size, CudaRank& rank, const Workload& workload) {
  const std::unique_ptr<Operation> operation = Need(MakeKernel(key, size, rank, workload));
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

void Main() {
  const std::unique_ptr<CudaRank> rank =
      Need(MakeCudaRank({}, [](CudaDevice& device) -> StatusOr<std::unique_ptr<PartExchange>> {
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

  std::printf("{\"name\": \"one-card\", \"cluster\": {\"nodes\": 1, \"gpusPerNode\": 8, \"deviceMemoryBytes\": %zu},\n",
              total);
  std::printf("\"samples\": [");
  std::set<std::pair<std::string, double>> taken;
  for (const Workload& workload : LayersOfModels()) {
    for (const moeplan::Need& need : NeedsOf({workload}, kNode)) {
      const auto* key = std::get_if<KernelKey>(&need.key);
      if (key == nullptr || key->contention != Contention::kNone) continue;
      if (!taken.emplace(Describe(*key), need.size).second) continue;
      Print(*key, need.size, Time(*key, need.size, *rank, workload), taken.size() == 1);
      PrintFacts(facts);
    }
  }
  std::printf("\n]}\n");
}

}  // namespace
}  // namespace moeplan::cuda

int main() { moeplan::cuda::Main(); }
