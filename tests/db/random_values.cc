#include "tests/db/random_values.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>

#include "models/text.h"

namespace moeplan {
namespace {

template <typename Point>
std::vector<Point> AnyPoints(RandomValues& random) {
  std::set<double> sizes;
  for (int i = random.Int(1, 20); i > 0; --i) sizes.insert(random.Positive());
  std::vector<Point> points;
  for (const double size : sizes) points.push_back({size, random.Positive()});
  return points;
}

}  // namespace

double RandomValues::Positive() {
  constexpr std::uint64_t kInfinityBits = 0x7ff0000000000000u;
  return std::bit_cast<double>(std::uniform_int_distribution<std::uint64_t>(1, kInfinityBits - 1)(engine_));
}

double RandomValues::Awkward() {
  using Limits = std::numeric_limits<double>;
  constexpr double kSpecial[] = {
      0,      -0.0, Limits::infinity(), -Limits::infinity(),  Limits::max(), Limits::denorm_min(),
      0x1p53, 0.1,  -Limits::max(),     1 + Limits::epsilon()};
  if (Coin()) return kSpecial[Int(0, std::size(kSpecial) - 1)];
  return Coin() ? Positive() : -Positive();
}

std::string RandomValues::Text() {
  static const std::string kPieces[] = {"a", "Z", " ", "'", "\"", "\\", ";--", "%s", "\n", std::string(1, '\0'),
                                        "é", "φ", "🂡"};
  std::string text;
  for (int i = Int(0, 12); i > 0; --i) text += kPieces[Int(0, std::size(kPieces) - 1)];
  return text;
}

Cluster RandomValues::AnyCluster() {
  return {.nodes = Int(1, 1000),
          .gpus_per_node = Int(1, 16),
          .peak_flops_per_s = Coin() ? Positive() : 0,
          .device_memory_bytes = Coin() ? Positive() : 0,
          .node_link_bytes_per_s = Coin() ? Positive() : 0,
          .network_bytes_per_s = Coin() ? Positive() : 0};
}

CollectiveKey RandomValues::AnyCollectiveKey() {
  CollectiveKey key;
  key.collective = Pick(Collective::kAllToAllAllGather);
  key.algorithm = Pick(AllToAllAlgorithm::kPipe);
  key.group.size = Int(1, 1 << 20);
  key.group.ranks_per_node = Int(1, key.group.size);
  if (key.collective == Collective::kAllToAllAllGather) {
    key.gather_group_size = Int(1, 64);
    key.shards = Int(1, 64);
  }
  key.contention = Pick(Contention::kWithExpertGemm);
  if (Coin()) key.bytes_per_element = Int(1, 8);
  if (Coin()) key.ctas = Int(1, kMostCtas);
  if (Coin()) key.stride = Int(1, 1 << 20);
  if (key.collective == Collective::kAllToAll && Coin()) {
    key.algorithm = AllToAllAlgorithm::kDirect;
    key.dispatcher = Coin() ? Dispatcher::kDeepEp : Dispatcher::kHybridEp;
    key.transport = Pick(Transport::kUccl);
  }
  return key;
}

KernelKey RandomValues::AnyKernelKey() {
  KernelKey key = {.kernel = Pick(Kernel::kOptimizer), .contention = Pick(Contention::kWithExpertGemm)};
  if (Coin()) key.bytes_per_element = Int(1, 8);
  if (Coin()) key.model_dim = Int(0, std::numeric_limits<int>::max());
  if (Coin()) key.hidden_dim = Int(0, std::numeric_limits<int>::max());
  if (Coin() && IsCommunication(key.contention)) key.ctas = Int(1, kMostCtas);
  const auto any = [&] { return Int(1, std::numeric_limits<int>::max()); };
  if (IsLinear(key.kernel)) key.shape = {.in_features = any(), .out_features = any(), .experts = any()};
  if (IsAttention(key.kernel)) {
    key.shape = {.heads = any(), .kv_heads = any(), .query_key_dim = any(), .value_dim = any(), .sequence = any()};
  }
  return key;
}

AlphaBeta RandomValues::AnyAlphaBeta() { return {.alpha_s = Positive(), .beta_s_per_unit = Coin() ? Positive() : 0}; }

Curve RandomValues::AnyCurve() {
  switch (Int(0, 3)) {
    case 0: return LogLog{AnyPoints<TimePoint>(*this)};
    case 1: return Efficiency{Positive(), AnyPoints<EfficiencyPoint>(*this)};
    case 2: return Interpolated{AnyPoints<TimePoint>(*this)};
    default: return AnyAlphaBeta();
  }
}

FitQuality RandomValues::AnyFit() {
  FitQuality fit = {.chosen = Text(),
                    .relative_error_p50 = Awkward(),
                    .relative_error_p95 = Awkward(),
                    .alpha_low_s = Awkward(),
                    .alpha_high_s = Awkward(),
                    .beta_low_s_per_unit = Awkward(),
                    .beta_high_s_per_unit = Awkward(),
                    .interval_low_ratio = Awkward(),
                    .interval_high_ratio = Awkward(),
                    .outliers = Int(-1, std::numeric_limits<int>::max()),
                    .points = Int(0, 1000)};
  for (int i = Int(0, 3); i > 0; --i) fit.breakpoints.push_back(Awkward());
  return fit;
}

CostModel RandomValues::AnyCostModel() {
  CostModel model = MakeCostModel(AnyCurve());
  if (Coin()) model.summary = AnyAlphaBeta();
  if (Coin()) model.fit = AnyFit();
  if (Coin()) model.size_low = Awkward();
  if (Coin()) model.size_high = Awkward();
  return model;
}

Profile RandomValues::AnyProfile(const std::string& name) {
  Profile profile = {.name = name, .version = Int(0, 100), .created_at = Text(), .cluster = AnyCluster()};
  std::set<CollectiveKey> collective_keys;
  std::set<KernelKey> kernel_keys;
  for (int i = Int(0, 30); i > 0; --i) {
    const CollectiveKey key = AnyCollectiveKey();
    if (collective_keys.insert(key).second) profile.collectives.push_back({key, AnyCostModel()});
  }
  for (int i = Int(0, 30); i > 0; --i) {
    const KernelKey key = AnyKernelKey();
    if (kernel_keys.insert(key).second) profile.kernels.push_back({key, AnyCostModel()});
  }
  return profile;
}

Sample RandomValues::AnySample() {
  Sample sample;
  if (Coin()) {
    sample.key = AnyCollectiveKey();
  } else {
    sample.key = AnyKernelKey();
  }
  sample.size = Positive();
  for (int i = Int(1, 9); i > 0; --i) sample.times_s.push_back(Positive());
  for (int i = Int(0, 4); i > 0; --i) sample.provenance[Text()] = Text();
  return sample;
}

SampleBatch RandomValues::AnyBatch(const std::string& request_id, int samples) {
  SampleBatch batch = {.request_id = request_id, .calibration = StrCat("of ", request_id)};
  batch.samples = {.name = "cluster a", .cluster = AnyCluster()};
  for (int i = 0; i < samples; ++i) batch.samples.samples.push_back(AnySample());
  return batch;
}

}  // namespace moeplan
