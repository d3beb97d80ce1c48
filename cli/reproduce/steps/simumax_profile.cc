#include "cli/reproduce/steps/simumax_profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/reproduce/steps/units.h"
#include "models/fit/statistics.h"
#include "models/step/layer_work.h"
#include "models/text.h"
#include "planner/shipped/names.h"

namespace moeplan::cli {
namespace {

using Json = nlohmann::json;

constexpr int kBf16 = 2;
constexpr const char* kKernels = "simumax_kernels.csv";

// SimuMax's constants of one machine, by their places in its file.
class System {
 public:
  System(Json root, std::string name, std::string machine, Constants& constants)
      : root_(std::move(root)), name_(std::move(name)), machine_(std::move(machine)), constants_(constants) {
    if (root_.contains("source") && root_["source"].is_string()) source_ = root_["source"].get<std::string>();
  }

  const Status& status() const { return status_; }

  const Json* Find(std::initializer_list<std::string> place) const {
    const Json* value = &root_;
    for (const std::string& key : place) {
      if (!value->is_object() || !value->contains(key)) return nullptr;
      value = &value->at(key);
    }
    return value;
  }
  bool Has(std::initializer_list<std::string> place) const { return Find(place) != nullptr; }

  bool Flag(std::initializer_list<std::string> place) const {
    const Json* value = Find(place);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  // A constant; absent where it is not there.
  std::optional<double> Maybe(std::initializer_list<std::string> place) {
    const Json* value = Find(place);
    if (value == nullptr) return std::nullopt;
    const double number = Plain(place);
    if (number < 0) Fail(Path(place), value->dump(), "at least 0");
    return constants_.Use(StrCat(machine_, " ", Path(place)), number, {.source = source_});
  }
  double Number(std::initializer_list<std::string> place) {
    const auto value = Maybe(place);
    if (!value) Fail(Path(place), "nothing", "a number");
    return value.value_or(1);
  }
  // A number that follows from what is counted, not from a measurement.
  double Plain(std::initializer_list<std::string> place) {
    const Json* value = Find(place);
    if (value != nullptr && value->is_number()) return value->get<double>();
    Fail(Path(place), value == nullptr ? "nothing" : value->dump(), "a number");
    return 1;
  }
  // Our own numbers.
  double Counted(const std::string& what, double value, const std::string& source, bool whole = false) {
    return constants_.Use(what, value, {.source = source, .whole = whole});
  }

 private:
  static std::string Path(std::initializer_list<std::string> place) {
    std::string path;
    for (const std::string& key : place) path += StrCat(path.empty() ? "" : ".", key);
    return path;
  }
  void Fail(const std::string& path, const std::string& found, const char* expected) {
    if (status_.ok()) status_ = InvalidInput(StrCat(name_, ": ", path, ": found ", found, ", expected ", expected));
  }

  Json root_;
  std::string name_, machine_, source_ = "SimuMax";
  Constants& constants_;
  Status status_;
};

// "m=4096, k=8192, layout=TN" of a row.
class ShapeText {
 public:
  explicit ShapeText(const std::string& text) {
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::string field = text.substr(begin, end - begin);
      const size_t name = field.find_first_not_of(' '), equals = field.find('=');
      if (name != std::string::npos && equals != std::string::npos) {
        fields_[field.substr(name, equals - name)] = field.substr(equals + 1);
      }
      begin = end + 1;
    }
  }

  std::string Text(const std::string& name) const {
    const auto found = fields_.find(name);
    return found == fields_.end() ? "" : found->second;
  }
  // 0: it is not there, or no number above 0.
  int Count(const std::string& name) const {
    const double value = std::atof(Text(name).c_str());
    return value >= 1 && value < (1 << 30) ? static_cast<int>(value) : 0;
  }
  bool Is(const std::string& name, const char* value) const { return Text(name) == value; }

 private:
  std::map<std::string, std::string> fields_;
};

struct KernelPoint {
  KernelKey key;
  double flops = 0;
  double counted_flops = 0;  // Of the pass alone, as the file counts.
  int rank = 0;              // Of several measurements of the same, the one with the highest counts.
};

std::optional<KernelPoint> ProductOf(const ShapeText& shape) {
  const int m = shape.Count("m"), n = shape.Count("n"), k = shape.Count("k");
  if (m == 0 || n == 0 || k == 0 || shape.Count("b") != 1) return std::nullopt;
  KernelPoint point;
  point.flops = point.counted_flops = 2.0 * m * n * k;
  KernelShape& linear = point.key.shape;
  linear.experts = 1;
  const bool accumulates = shape.Is("accumulate", "True");
  if (shape.Is("layout", "TN") && !accumulates) {
    point.key.kernel = Kernel::kLinear, linear.in_features = k, linear.out_features = n;
  } else if (shape.Is("layout", "NN") && !accumulates) {
    point.key.kernel = Kernel::kLinearInputGradient, linear.in_features = n, linear.out_features = k;
  } else if (shape.Is("layout", "NT") && accumulates) {
    point.key.kernel = Kernel::kLinearWeightGradient, linear.in_features = n, linear.out_features = m;
  } else {
    return std::nullopt;  // Weight gradients are accumulated, and nothing else is.
  }
  point.rank = shape.Is("out_dtype", "bf16") ? 1 : 0;
  return point;
}

std::optional<KernelPoint> GroupedProductOf(const ShapeText& shape) {
  const int experts = shape.Count("ng"), m = shape.Count("M"), n = shape.Count("N"), k = shape.Count("K");
  if (experts == 0 || m == 0 || n == 0 || k == 0) return std::nullopt;
  KernelPoint point;
  point.flops = point.counted_flops = 2.0 * experts * m * n * k;
  point.key.shape = {.in_features = k, .out_features = n, .experts = experts};
  if (shape.Is("stage", "fwd")) {
    point.key.kernel = Kernel::kLinear;
  } else if (shape.Is("stage", "bwd_grad_act")) {
    point.key.kernel = Kernel::kLinearInputGradient;
  } else if (shape.Is("stage", "bwd_grad_w")) {
    point.key.kernel = Kernel::kLinearWeightGradient;
    point.rank = (shape.Is("accumulate", "True") ? 2 : 0) + (shape.Is("main_grad_dtype", "fp32") ? 1 : 0);
  } else {
    return std::nullopt;
  }
  return point;
}

std::optional<KernelPoint> AttentionOf(const ShapeText& shape, bool forward) {
  KernelPoint point;
  KernelShape& attention = point.key.shape;
  attention = {.heads = shape.Count("head_num"),
               .kv_heads = shape.Count("kv_head_num"),
               .query_key_dim = shape.Count("qk_head_dim"),
               .value_dim = shape.Count("v_head_dim"),
               .sequence = shape.Count("seq_len")};
  if (attention.heads == 0 || attention.kv_heads == 0 || attention.query_key_dim == 0 || attention.value_dim == 0 ||
      attention.sequence == 0 || shape.Count("batch") == 0) {
    return std::nullopt;
  }
  point.key.kernel = forward ? Kernel::kAttention : Kernel::kAttentionGradient;
  const double sequence = attention.sequence;
  point.flops = 2.0 * shape.Count("batch") * sequence * sequence * attention.heads *
                (attention.query_key_dim + attention.value_dim);
  // Backward computes the scores again, and then two gradients of each of both products.
  point.counted_flops = forward ? point.flops : 2.5 * point.flops;
  // Queries and keys come out of the rotary embedding contiguous.
  point.rank = shape.Is("qkv_contiguous", "True") ? 1 : 0;
  return point;
}

std::optional<KernelPoint> PointOf(const std::string& op, const ShapeText& shape) {
  if (op == "matmul") return ProductOf(shape);
  if (op == "group_matmul") return GroupedProductOf(shape);
  if (op == "sdp_fwd" || op == "sdp_bwd") return AttentionOf(shape, op == "sdp_fwd");
  return std::nullopt;
}

Status AddKernels(const DataFolder& folder, const std::string& machine, Constants& constants, Profile& profile) {
  // The same measured several times counts as their mean.
  struct Measured {
    double sum_s = 0;
    int times = 0, rank = -1;
  };
  ASSIGN_OR_RETURN(const CsvTable table, folder.Table(kKernels));
  std::map<KernelKey, std::map<double, Measured>> kernels;
  for (size_t i = 0; i < table.rows(); ++i) {
    CsvRow row(table, i);
    if (MachineOf(row.Text("gpu")) != machine) continue;
    const std::string op = row.Text("op");
    auto point = PointOf(op, ShapeText(row.Text("shape")));
    const double rate = row.Number("tflops") * kTera;
    RETURN_IF_ERROR(row.status());
    if (!point || rate <= 0) continue;
    const double scale = constants.Use(StrCat(machine, " rates of ", op), 1, {.source = StrCat("SimuMax, ", kKernels)});
    point->key.bytes_per_element = kBf16;
    Measured& measured = kernels[point->key][point->flops];
    if (point->rank > measured.rank) measured = {.rank = point->rank};
    if (point->rank == measured.rank) measured.sum_s += point->counted_flops / (rate * scale), ++measured.times;
  }
  if (kernels.empty()) return NotFound(StrCat(kKernels, ": found no row of ", machine, ", expected some"));
  for (const auto& [key, by_flops] : kernels) {
    LogLog curve;
    for (const auto& [flops, measured] : by_flops) curve.points.push_back({flops, measured.sum_s / measured.times});
    profile.kernels.push_back({key, MakeCostModel(std::move(curve))});
  }
  return OkStatus();
}

// launches · latency + passes · bytes at the rate of that kind of kernel, a size of `launches_in` calls at once.
void AddMoved(System& system, const std::string& kind, Kernel kernel, double passes, double launches,
              Profile& profile) {
  const std::string found = system.Has({"bandwidth", kind}) ? kind : "default";
  const double rate =
      system.Number({"bandwidth", found, "efficient_factor"}) * system.Number({"bandwidth", found, "gbps"}) * kGibi;
  const double latency_s = system.Number({"bandwidth", found, "latency_us"}) * kMicro;
  const double moved =
      system.Counted(StrCat("bytes of ", Name(kernel)), passes, "counted from what the kernel reads and writes");
  profile.kernels.push_back(
      {{.kernel = kernel, .bytes_per_element = kBf16}, MakeCostModel(AlphaBeta{launches * latency_s, moved / rate})});
}

void AddMemoryKernels(System& system, const SimumaxUse& use, Profile& profile) {
  for (const Kernel kernel : {Kernel::kNorm, Kernel::kRotary, Kernel::kActivation, Kernel::kResidual,
                              Kernel::kEmbedding, Kernel::kOptimizer}) {
    AddMoved(system, "default", kernel, 1, 1, profile);
  }
  // A copy of n bytes reads and writes 2n.
  AddMoved(system, "default", Kernel::kDeviceCopy, 2, 1, profile);
  // The fused loss reads and writes each logit once a pass, which is what its bytes count (models/step/layer_work).
  // Unfused, FP32 copies, maxima, exponentials and sums move 38 bytes a BF16 logit forward and 14 backward.
  constexpr double kUnfused = (38.0 + 14.0) / (2 * 2 * kBf16);
  AddMoved(system, use.fused_loss ? "ce_fusion" : "ce", Kernel::kCrossEntropy, use.fused_loss ? 1 : kUnfused, 1,
           profile);
  if (use.experts == 0) return;
  AddMoved(system, "permute_fwd", Kernel::kPermute, PermutePasses(use.top_k), kPermuteLaunches, profile);
  const double launches = system.Counted("launches of the router", kRouterLaunches,
                                         "counted in Megatron Core's moe/router.py", /*whole=*/true);
  AddMoved(system, "default", Kernel::kGate, RouterPasses(use.experts, use.model_dim, kBf16), launches, profile);
}

struct CollectiveName {
  Collective collective;
  const char* name;
  const char* nccl_name;
};
constexpr CollectiveName kCollectives[] = {{Collective::kAllReduce, "all_reduce", "all_reduce"},
                                           {Collective::kAllGather, "all_gather", "all_gather"},
                                           {Collective::kReduceScatter, "reduce_scatter", "reduce_scatter"},
                                           {Collective::kAllToAll, "all2all", "alltoall"}};

// SimuMax's: (latency · hops + fixed latency) + bytes · hops / ranks over the bandwidth.
CostModel CollectiveModelOf(System& system, const std::string& network, const std::string& op, int ranks,
                            bool beside_others) {
  const std::string of = "networks";
  const auto either = [&](const std::string& name) {
    const auto own = system.Maybe({of, network, "op", op, name});
    return own ? *own : system.Number({of, network, "bandwidth", name});
  };
  const double hops =
      system.Plain({of, network, "op", op, "scale"}) * (ranks + system.Plain({of, network, "op", op, "offset"}));
  const std::string size = StrCat(ranks);
  auto fixed_s = system.Maybe({of, network, "op", op, "fixed_latency_us_by_comm_num", size});
  if (!fixed_s) fixed_s = system.Maybe({of, network, "op", op, "fixed_latency_us"});
  std::optional<double> rate;  // GiB/s
  if (beside_others) rate = system.Maybe({of, network, "op", op, "dp_fixed_bw", size});
  if (!rate) rate = either("efficient_factor") * system.Number({of, network, "bandwidth", "gbps"});
  const double latency_s = (either("latency_us") * hops + fixed_s.value_or(0)) * kMicro;
  return MakeCostModel(AlphaBeta{latency_s, hops / ranks / (*rate * kGibi)});
}

// The same collectives as nccl-tests measured them on that machine, alone: how far both are apart, 90 % of the sizes,
// is how far either may be from what a step sees. Nothing where nobody measured them.
class MeasuredCollectives {
 public:
  static StatusOr<MeasuredCollectives> Read(const DataFolder& folder, const std::string& machine) {
    MeasuredCollectives measured;
    const std::string name = StrCat("nccl_", machine, ".csv");
    if (!folder.Has(name)) return measured;
    ASSIGN_OR_RETURN(const CsvTable table, folder.Table(name));
    for (size_t i = 0; i < table.rows(); ++i) {
      CsvRow row(table, i);
      const TimePoint point = {.size = row.Number("bytes"), .time_s = row.Number("time_s")};
      const std::string collective = row.Text("collective");
      for (const auto& [kind, name, nccl_name] : kCollectives) {
        if (collective == nccl_name && point.size >= kLeastBytes && point.time_s > kLeastS) {
          measured.points_[{kind, row.Count("gpus")}].push_back(point);
        }
      }
      RETURN_IF_ERROR(row.status());
    }
    return measured;
  }

  void SetInterval(Collective collective, int ranks, CostModel& model) const {
    const auto found = points_.find({collective, ranks});
    if (found == points_.end()) return;
    std::vector<double> apart;
    for (const TimePoint& point : found->second) {
      apart.push_back(std::abs(std::log(TimeS(model.curve, point.size, /*bus_factor=*/1) / point.time_s)));
    }
    const double ratio = std::exp(Quantile(apart, kShare));
    model.fit = FitQuality{.interval_low_ratio = 1 / ratio, .interval_high_ratio = ratio};
  }

 private:
  // Rows of a micro-batch are more.
  static constexpr double kLeastBytes = 1 << 24, kLeastS = 1e-9, kShare = 0.9;
  std::map<std::pair<Collective, int>, std::vector<TimePoint>> points_;
};

void AddCollectives(System& system, const SimumaxUse& use, const MeasuredCollectives& measured, Profile& profile) {
  // Where GPUs share a host bridge, the network depends on how far a group reaches, and groups whose members are apart
  // cross it side by side.
  const bool bridged = system.Flag({"networks", "intra_with_pcie"});
  const auto network_of = [&](int ranks, int stride) -> std::string {
    if (!bridged) return "high_intra_node";
    if (stride > 1 || ranks > 4) return "intra_node_pcie_8x";
    return ranks > 2 ? "intra_node_pcie_4x" : "intra_node_pcie_2x";
  };
  for (int ranks = 2; ranks <= use.gpus_per_node; ranks *= 2) {
    for (int stride = 1; ranks * stride <= use.gpus_per_node; stride *= 2) {
      if (stride > 1 && !bridged) break;
      const std::string network = network_of(ranks, stride);
      for (const auto& [collective, op, nccl_op] : kCollectives) {
        CollectiveKey key = {.collective = collective, .group = {ranks, ranks}, .bytes_per_element = kBf16};
        key.stride = stride > 1 ? stride : 0;
        CostModel model = CollectiveModelOf(system, network, op, ranks, stride > 1);
        measured.SetInterval(collective, ranks, model);
        profile.collectives.push_back({key, std::move(model)});
      }
    }
  }
}

}  // namespace

std::string MachineOf(std::string_view gpu) {
  std::string machine;
  for (const char c : gpu.substr(0, gpu.find_first_of("- _"))) {
    machine += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return machine;
}

StatusOr<Profile> SimumaxProfile(const DataFolder& folder, const std::string& machine, const SimumaxUse& use,
                                 Constants& constants) {
  const std::vector<std::string> names = folder.Names(StrCat("simumax_system_", machine, "_"), ".json");
  if (names.empty()) {
    return NotFound(StrCat("found no simumax_system_", machine, "_*.json, expected SimuMax's constants of ", machine));
  }
  ASSIGN_OR_RETURN(const std::string text, folder.Text(names.front()));
  Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object())
    return InvalidInput(StrCat(names.front(), ": found no JSON object, expected SimuMax's system"));
  System system(std::move(root), names.front(), machine, constants);
  Profile profile = {.name = names.front(), .cluster = {.nodes = 1, .gpus_per_node = use.gpus_per_node}};
  profile.cluster.peak_flops_per_s = system.Number({"op_defaults", "matmul", "tflops"}) * kTera;
  // SimuMax does not say how much memory a GPU has; the hardware that ships does.
  if (const std::string hardware = planner::HardwareMeant(machine); !hardware.empty()) {
    ASSIGN_OR_RETURN(const Hardware known, planner::HardwareOf(hardware));
    profile.cluster.device_memory_bytes = known.memory_bytes.value;
  }
  RETURN_IF_ERROR(AddKernels(folder, machine, constants, profile));
  AddMemoryKernels(system, use, profile);
  ASSIGN_OR_RETURN(const MeasuredCollectives measured, MeasuredCollectives::Read(folder, machine));
  AddCollectives(system, use, measured, profile);
  RETURN_IF_ERROR(system.status());
  RETURN_IF_ERROR(ValidateProfile(profile).Within(names.front()));
  return profile;
}

}  // namespace moeplan::cli
