#include "models/hardware/hardware.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "models/step/layer_work.h"
#include "models/text.h"

namespace moeplan {
namespace {

using Json = nlohmann::json;

constexpr int kMostGpus = 1 << 16;
constexpr int kBf16 = 2;

constexpr HardwareFigure kFigures[] = {
    {"peakFlopsPerS", &Hardware::peak_flops_per_s},
    {"fp8Speedup", &Hardware::fp8_speedup},
    {"mxfp8Speedup", &Hardware::mxfp8_speedup},
    {"fp4Speedup", &Hardware::fp4_speedup},
    {"memoryBytes", &Hardware::memory_bytes},
    {"memoryBytesPerS", &Hardware::memory_bytes_per_s},
    {"processors", &Hardware::processors},
    {"sustainedShare", &Hardware::sustained_share},
    {"attentionShare", &Hardware::attention_share},
    {"attentionGradientShare", &Hardware::attention_gradient_share},
    {"memoryShare", &Hardware::memory_share},
    {"launchS", &Hardware::launch_s},
    {"hostLaunchS", &Hardware::host_launch_s},
    {"allToAllBytesPerS", &Hardware::all_to_all_bytes_per_s},
    {"allGatherBytesPerS", &Hardware::all_gather_bytes_per_s},
    {"reduceScatterBytesPerS", &Hardware::reduce_scatter_bytes_per_s},
    {"allReduceBytesPerS", &Hardware::all_reduce_bytes_per_s},
    {"linkLatencyS", &Hardware::link_latency_s},
    {"networkBytesPerS", &Hardware::network_bytes_per_s},
    {"networkShare", &Hardware::network_share},
    {"networkLatencyS", &Hardware::network_latency_s},
    {"kernelErrorRatio", &Hardware::kernel_error_ratio},
    {"linkErrorRatio", &Hardware::link_error_ratio},
};

class HardwareReader {
 public:
  HardwareReader(const Json& root, std::string_view source_name) : root_(root), source_name_(source_name) {}

  StatusOr<Hardware> Read() {
    Hardware hardware = {.name = Text(root_, "", "name"), .title = Text(root_, "", "title")};
    const double gpus = Number(root_, "", "gpusPerDomain");
    if (gpus < 1 || gpus > kMostGpus || gpus != std::floor(gpus)) Fail("gpusPerDomain", "a whole number above 0");
    hardware.gpus_per_domain = static_cast<int>(gpus);
    const Json figures = root_.is_object() && root_.contains("figures") ? root_["figures"] : Json::object();
    for (const auto& [name, value] : kFigures) {
      const std::string path = StrCat("figures.", name);
      if (!figures.is_object() || !figures.contains(name)) {
        Fail(path, "a figure");
        continue;
      }
      hardware.*value = ReadFigure(figures[std::string(name)], path);
    }
    for (const auto& [name, figure] : figures.items()) {
      if (std::ranges::find(kFigures, name, &HardwareFigure::name) == std::end(kFigures)) {
        Fail(StrCat("figures.", name), "no such figure");
      }
    }
    if (!status_.ok()) return status_;
    return hardware;
  }

 private:
  Figure ReadFigure(const Json& json, const std::string& path) {
    Figure figure = {.value = Number(json, path, "value"), .source = Text(json, path, "source")};
    figure.assumed = json.is_object() && json.value("assumed", Json(false)) == Json(true);
    if (figure.assumed) return figure;
    figure.measured_by = Text(json, path, "measuredBy");
    figure.date = Text(json, path, "date");
    return figure;
  }

  double Number(const Json& json, const std::string& path, const char* name) {
    if (json.is_object() && json.contains(name) && json[name].is_number() && json[name].get<double>() >= 0) {
      return json[name].get<double>();
    }
    Fail(StrCat(path, path.empty() ? "" : ".", name), "a number of at least 0");
    return 0;
  }
  std::string Text(const Json& json, const std::string& path, const char* name) {
    if (json.is_object() && json.contains(name) && json[name].is_string() && json[name] != "") {
      return json[name].get<std::string>();
    }
    Fail(StrCat(path, path.empty() ? "" : ".", name), "a text");
    return "";
  }
  void Fail(const std::string& path, std::string_view expected) {
    if (status_.ok()) status_ = InvalidInput(StrCat(source_name_, ": ", path, ": expected ", expected));
  }

  const Json& root_;
  std::string source_name_;
  Status status_;
};

CostModel WithError(Curve curve, double ratio) {
  CostModel model = MakeCostModel(std::move(curve));
  model.fit = FitQuality{.interval_low_ratio = 1 / ratio, .interval_high_ratio = ratio};
  return model;
}

class ProfileMaker {
 public:
  ProfileMaker(const Hardware& hardware, int domains, int gpus_per_domain, const Network& network)
      : hardware_(hardware), network_(network) {
    profile_.name = hardware.name;
    profile_.cluster = {.nodes = domains,
                        .gpus_per_node = gpus_per_domain,
                        .peak_flops_per_s = hardware.peak_flops_per_s.value,
                        .device_memory_bytes = hardware.memory_bytes.value};
  }

  Profile Make(const ModelConfig& model) {
    const double peak = hardware_.peak_flops_per_s.value;
    profile_.roofline = Roofline{.launch_s = hardware_.launch_s.value,
                                 .flops_per_s = peak * hardware_.sustained_share.value,
                                 .bytes_per_s = MovedPerS(),
                                 .processors = hardware_.processors.value,
                                 .attention_flops_per_s = peak * hardware_.attention_share.value,
                                 .attention_gradient_flops_per_s = peak * hardware_.attention_gradient_share.value,
                                 .fp8_speedup = hardware_.fp8_speedup.value,
                                 .mxfp8_speedup = hardware_.mxfp8_speedup.value,
                                 .fp4_speedup = hardware_.fp4_speedup.value,
                                 .error_ratio = hardware_.kernel_error_ratio.value};
    AddKernels(model);
    AddCollectives();
    return std::move(profile_);
  }

 private:
  double MovedPerS() const { return hardware_.memory_bytes_per_s.value * hardware_.memory_share.value; }

  // `passes` over the bytes that the kernel's size counts.
  void AddMoved(Kernel kernel, double passes, double launches = 1) {
    profile_.kernels.push_back({{.kernel = kernel, .bytes_per_element = kBf16},
                                WithError(AlphaBeta{launches * hardware_.launch_s.value, passes / MovedPerS()},
                                          hardware_.kernel_error_ratio.value)});
  }

  void AddKernels(const ModelConfig& model) {
    for (const Kernel kernel : {Kernel::kNorm, Kernel::kRotary, Kernel::kActivation, Kernel::kResidual,
                                Kernel::kEmbedding, Kernel::kOptimizer, Kernel::kCrossEntropy}) {
      AddMoved(kernel, 1);
    }
    AddMoved(Kernel::kDeviceCopy, 2);
    if (const double host_s = hardware_.host_launch_s.value; host_s > 0) {
      profile_.kernels.push_back(
          {{.kernel = Kernel::kHostLaunch}, WithError(AlphaBeta{0, host_s}, hardware_.kernel_error_ratio.value)});
    }
    if (model.experts == 0) return;
    AddMoved(Kernel::kPermute, PermutePasses(model.top_k), kPermuteLaunches);
    AddMoved(Kernel::kGate, RouterPasses(model.experts, model.model_dim, kBf16), kRouterLaunches);
  }

  double CardBytesPerS() const {
    return network_.bytes_per_s.value_or(hardware_.network_bytes_per_s.value) * hardware_.network_share.value;
  }

  // Domains stand so far apart in the group; `stride` 0: an entry for groups of any.
  void Add(Collective collective, const GroupShape& group, double bytes_per_s, int apart, int stride) {
    const double domains = static_cast<double>(group.size) / group.ranks_per_node, size = group.size;
    // Each byte counts inside a domain, whether it leaves that or not: those that rails bring to another card's GPU
    // first are among them.
    double seconds_per_byte = BusFactor(collective, group.size) / bytes_per_s;
    double latency_s = hardware_.link_latency_s.value;
    if (domains > 1) {
      const double card = CardBytesPerS();
      // Of an all-to-all, what other domains get goes through the own card; the others pass all of it on to the next
      // domain once, over all cards of a domain.
      const double crossing = collective == Collective::kAllToAll
                                  ? (size - group.ranks_per_node) / size / card
                                  : BusFactor(collective, group.size) / (card * group.ranks_per_node);
      const DomainSpan span = {.domains = static_cast<int>(std::ceil(domains)), .apart = apart};
      seconds_per_byte = std::max(seconds_per_byte, crossing * UplinkSlowdown(collective, span));
      latency_s += hardware_.network_latency_s.value * std::log2(std::max(2.0, domains));
    }
    profile_.collectives.push_back(
        {{.collective = collective, .group = group, .bytes_per_element = kBf16, .stride = stride},
         WithError(AlphaBeta{latency_s, seconds_per_byte}, hardware_.link_error_ratio.value)});
  }

  double UplinkSlowdown(Collective collective, const DomainSpan& span) const {
    const int domains = profile_.cluster.nodes;
    return collective == Collective::kAllToAll ? AllToAllSlowdown(network_, domains, span)
                                               : RingSlowdown(network_, domains, span);
  }

  void AddAll(const GroupShape& group, int apart = 1, int stride = 0) {
    Add(Collective::kAllToAll, group, hardware_.all_to_all_bytes_per_s.value, apart, stride);
    Add(Collective::kAllGather, group, hardware_.all_gather_bytes_per_s.value, apart, stride);
    Add(Collective::kReduceScatter, group, hardware_.reduce_scatter_bytes_per_s.value, apart, stride);
    Add(Collective::kAllReduce, group, hardware_.all_reduce_bytes_per_s.value, apart, stride);
  }

  void AddCollectives() {
    const int gpus = profile_.cluster.nodes * profile_.cluster.gpus_per_node;
    for (int size = 2; size <= gpus; ++size) {
      if (gpus % size != 0) continue;
      for (int inside = 1; inside <= std::min(size, profile_.cluster.gpus_per_node); ++inside) {
        // Members stand a fixed number of ranks apart, so a domain has as many as divide it, or all of them; the last
        // domain may have fewer.
        if (profile_.cluster.gpus_per_node % inside != 0 && inside != size) continue;
        if ((size + inside - 1) / inside > profile_.cluster.nodes) continue;
        AddAll({size, inside});
      }
    }
    if (HasSlowUplinks(network_, profile_.cluster.nodes)) AddGroupsApart(gpus);
  }

  // Groups of one rank a domain whose domains do not follow one another.
  void AddGroupsApart(int gpus) {
    const int domains = profile_.cluster.nodes, gpus_per_domain = profile_.cluster.gpus_per_node;
    for (int size = 2; size <= domains; ++size) {
      if (gpus % size != 0) continue;
      for (int apart = 2; apart <= domains / size; ++apart) {
        if (domains % apart == 0) AddAll({size, 1}, apart, apart * gpus_per_domain);
      }
    }
  }

  const Hardware& hardware_;
  const Network& network_;
  Profile profile_;
};

}  // namespace

std::span<const HardwareFigure> HardwareFigures() { return kFigures; }

StatusOr<Hardware> HardwareFromJson(std::string_view text, std::string_view source_name) {
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return InvalidInput(StrCat(source_name, ": found no JSON object, expected a machine"));
  return HardwareReader(root, source_name).Read();
}

Profile ProfileOf(const Hardware& hardware, int domains, int gpus_per_domain, const ModelConfig& model,
                  const Network& network) {
  return ProfileMaker(hardware, domains, gpus_per_domain, network).Make(model);
}

}  // namespace moeplan
