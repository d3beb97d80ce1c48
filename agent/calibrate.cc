#include "agent/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "agent/libraries/library_kernels.h"
#include "agent/operation_buffers.h"
#include "models/cost/plausible.h"
#include "models/fit/peak_flops.h"
#include "models/fit/statistics.h"
#include "models/measurement/cost_key.h"
#include "models/measurement/graph_needs.h"
#include "models/text.h"
#include "proto/convert/samples.h"
#include "proto/convert/workload.h"

namespace moeplan::agent {
namespace {

constexpr int kEnoughRepeats = 15;
constexpr int kFewestRepeats = 5;
constexpr double kTightError = 0.005;      // Of the median, relative.
constexpr double kSlowMeasurementS = 0.1;  // From here on, one repeat at a time.
constexpr int kMostImplausible = 3;        // Visits, before a measurement is left as it is.
constexpr int kMostBeside = 200;
// What runs beside lasts so many times as long as the measured alone: at first, and at most, where the measured is
// slowed down by so much that it outlasts that. What outlasts the most is slowed down by more than was measured.
constexpr double kCover = 1.5, kMostCover = 24;
constexpr double kMostBytesBeside = 268435456;  // Of its buffers, where devices do not say what they hold.
constexpr int kEnoughBeside = 4;                // One after the other; beside what takes longer runs something larger.

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool Sound(const std::vector<double>& times_s) {
  return std::ranges::all_of(times_s, [](double time_s) { return std::isfinite(time_s) && time_s > 0; });
}

// A time that is below 0 or not a number is kept, so that the sample shows it.
double Slower(double one_s, double other_s) {
  if (!(one_s >= 0)) return one_s;
  return other_s >= 0 ? std::max(one_s, other_s) : other_s;
}

// A measurement as it goes: what was taken so far.
struct Progress {
  Measurement measurement;
  std::vector<double> times_s;
  double visit_s = 0;     // Wall time of the last visit for each of its repeats, warm-up included.
  int implausible = 0;    // Visits whose times cannot be right, and are not in times_s.
  bool left_out = false;  // No library on the ranks has the kernel.
  std::string library;    // That it was timed through; empty: the executor's own.

  double MedianS() const { return Median(times_s); }

  // Roughly the relative standard error of the median, from the median deviation.
  double RelativeError() const {
    if (times_s.size() < 3) return 1;
    const double middle_s = MedianS();
    std::vector<double> deviations;
    for (const double time_s : times_s) deviations.push_back(std::abs(time_s - middle_s) / middle_s);
    return 1.86 * Median(deviations) / std::sqrt(static_cast<double>(times_s.size()));
  }

  bool Tight() const {
    if (left_out || implausible >= kMostImplausible) return true;
    const int count = static_cast<int>(times_s.size());
    // A slowdown enters a prediction as a ratio, where tasks meet; the plain time enters everywhere.
    if (ContentionOf(measurement.need.key) != Contention::kNone) return count >= kFewestRepeats;
    return count >= kEnoughRepeats || (count >= kFewestRepeats && RelativeError() < kTightError);
  }
};

// What is run beside a contended measurement.
struct Beside {
  Sample operation;
  double time_s = 0;  // Of one, alone.
};

class Calibrator {
 public:
  Calibrator(Fleet& fleet, const std::vector<Measurement>& measurements, const CalibrationOptions& options)
      : fleet_(fleet), options_(options), start_s_(NowS()) {
    for (const Measurement& measurement : measurements) progress_.push_back(Begin(measurement));
    provenance_ = fleet.provenance();
    provenance_["takenAt"] = options.taken_at;
  }

  StatusOr<SampleSet> Run() {
    RETURN_IF_ERROR(FirstPass());
    RETURN_IF_ERROR(TighterPasses());
    options_.progress({.done = 1, .what = "done"});
    TellOfTheRest();
    return Samples();
  }

 private:
  // Says where a step will be priced from other sizes than it asks for, as the budget was short.
  void TellOfTheRest() const {
    int wanted = 0, missing = 0;
    for (const Progress& one : progress_) {
      const auto* kernel = std::get_if<KernelKey>(&one.measurement.need.key);
      if (kernel == nullptr || !IsOfTheRestOfAStep(kernel->kernel) || one.left_out) continue;
      ++wanted;
      missing += one.times_s.empty();
    }
    if (missing == 0) return;
    options_.left_out(StrCat("not measured for want of time: ", missing, " of ", wanted,
                             " sizes of kernels that steps need; a longer budget takes them"));
  }

  // With what was taken of it earlier.
  Progress Begin(const Measurement& measurement) const {
    Progress one = {.measurement = measurement};
    for (const Sample& sample : options_.taken) {
      if (sample.key != measurement.need.key || sample.size != measurement.need.size) continue;
      one.times_s.insert(one.times_s.end(), sample.times_s.begin(), sample.times_s.end());
    }
    if (!one.times_s.empty()) one.visit_s = one.MedianS();
    return one;
  }

  double SpentS() const { return NowS() - start_s_; }
  double LeftS() const { return options_.budget_s - SpentS(); }

  // Every need a few times, the most useful first, while there is budget. The uncontended ones come first: contended
  // runs are dimensioned by them.
  Status FirstPass() {
    for (const bool contended : {false, true}) {
      for (Progress& one : progress_) {
        if ((ContentionOf(one.measurement.need.key) != Contention::kNone) != contended) continue;
        if (!one.times_s.empty() || one.left_out) continue;
        if (fleet_.repeats_times()) {
          if (LeftS() < Forecast(one.measurement)) continue;
          RETURN_IF_ERROR(Visit(one, /*warm_ups=*/0, /*repeats=*/1));
          continue;
        }
        // What is left for contention must not starve the plain curves of their repeats.
        const double reserve_s = contended ? 0.55 * options_.budget_s : 0;
        if (LeftS() - reserve_s < Forecast(one.measurement)) continue;
        RETURN_IF_ERROR(Visit(one, /*warm_ups=*/1, /*repeats=*/contended ? 3 : 2));
      }
    }
    return OkStatus();
  }

  Status TighterPasses() {
    for (bool visited = !fleet_.repeats_times(); visited;) {
      visited = false;
      for (Progress& one : progress_) {
        if (one.times_s.empty() || one.Tight()) continue;
        const int repeats = one.MedianS() > kSlowMeasurementS ? 1 : 3;
        if (LeftS() < (repeats + 1) * one.visit_s) continue;
        RETURN_IF_ERROR(Visit(one, one.MedianS() > kSlowMeasurementS ? 0 : 1, repeats));
        visited = true;
      }
    }
    return OkStatus();
  }

  // A guess at a first visit: the same operation at the nearest size measured, in proportion.
  double Forecast(const Measurement& measurement) const {
    double nearest_s = 0.01, nearest_ratio = 0;
    for (const Progress& other : progress_) {
      if (other.times_s.empty() || KindOf(other.measurement.need.key) != KindOf(measurement.need.key)) continue;
      const double ratio = other.measurement.need.size / measurement.need.size;
      if (std::min(ratio, 1 / ratio) > nearest_ratio) {
        nearest_ratio = std::min(ratio, 1 / ratio);
        nearest_s = 4 * other.visit_s * std::max(1.0, 1 / ratio);
      }
    }
    return nearest_s;
  }

  // Two keys of one kind take about as long at the same size: an operation is one, whatever runs beside it, and so are
  // products and attention, whatever their shapes.
  static CostKey KindOf(const CostKey& key) {
    CostKey kind = WithContention(key, Contention::kNone);
    if (auto* kernel = std::get_if<KernelKey>(&kind)) kernel->shape = {};
    return kind;
  }

  Status Visit(Progress& one, int warm_ups, int repeats) {
    options_.progress(
        {.done = std::min(1.0, SpentS() / options_.budget_s), .what = Describe(one.measurement.need.key)});
    const double before_s = NowS();
    ASSIGN_OR_RETURN(const Taken taken, Take(one.measurement, warm_ups, repeats));
    one.visit_s = (NowS() - before_s) / (warm_ups + repeats);
    if (!taken.left_out.empty()) return LeaveOut(one, taken.left_out);
    one.library = taken.library;
    Sample sample = SampleOf(one.measurement.need);
    sample.times_s = taken.times_s;
    sample.provenance = ProvenanceOf(one);
    if (WhyImplausible(sample, fleet_.cluster())) {
      ++one.implausible;
    } else {
      one.times_s.insert(one.times_s.end(), taken.times_s.begin(), taken.times_s.end());
    }
    return options_.keep(sample);
  }

  // Says so once for each reason: a library that is missing lacks many kernels.
  Status LeaveOut(Progress& one, const std::string& why) {
    one.left_out = true;
    if (reasons_.insert(why).second) {
      options_.left_out(StrCat("left out: ", Describe(one.measurement.need.key),
                               ", and whatever else of a step has the same reason: ", why));
    }
    return OkStatus();
  }

  Provenance ProvenanceOf(const Progress& one) const {
    Provenance provenance = provenance_;
    if (!one.library.empty()) provenance["library"] = one.library;
    return provenance;
  }

  // One visit brings these.
  struct Taken {
    std::vector<double> times_s;  // The slowest rank of each repeat.
    std::string library, left_out;
  };

  StatusOr<Taken> Take(const Measurement& measurement, int warm_ups, int repeats) {
    v1::RankCommand command;
    v1::RankCommand::Measure& measure = *command.mutable_measure();
    *measure.mutable_what() = ToProto(SampleOf(measurement.need));
    *measure.mutable_context() = ToProto(measurement.context);
    measure.set_warm_ups(warm_ups);
    measure.set_repeats(repeats);
    const std::string what = StrCat("measure ", Describe(measurement.need.key), " of ",
                                    BriefNumber(measurement.need.size), " ", UnitOf(measurement.need.key));
    if (ContentionOf(measurement.need.key) == Contention::kNone) return CallMeasure(command, what, warm_ups + repeats);
    double& cover = cover_.try_emplace(measurement.need.key, kCover).first->second;
    for (;; cover *= 2) {
      const double cover_s = cover * AloneS(measurement);
      ASSIGN_OR_RETURN(const Beside beside, BesideOf(measurement, cover_s));
      const double count = std::clamp(std::ceil(cover_s / beside.time_s), 1.0, static_cast<double>(kMostBeside));
      *measure.mutable_beside() = ToProto(beside.operation);
      measure.set_beside_count(static_cast<int>(count));
      ASSIGN_OR_RETURN(Taken taken, CallMeasure(command, what, warm_ups + repeats));
      const std::vector<double>& times_s = taken.times_s;
      if (!Sound(times_s) || Median(times_s) <= count * beside.time_s || count == kMostBeside || 2 * cover > kMostCover)
        return taken;
    }
  }

  // Ranks that time a kernel through libraries wait for none of the others, and may start those libraries first.
  StatusOr<std::vector<v1::RankReply>> Ask(const v1::RankCommand& command, const std::string& what, int runs) {
    constexpr double kOnTheWayS = 10;
    const double deadline_s = fleet_.collective_deadline_s();
    const StatusOr<Sample> asked = SampleFromProto(command.measure().what(), "what");
    const auto* kernel = asked.ok() ? std::get_if<KernelKey>(&asked->key) : nullptr;
    if (kernel != nullptr && IsOfTheRestOfAStep(kernel->kernel)) {
      return fleet_.Call(command, what, kOnTheWayS + kLibrariesStartWithinS + LibraryAnswersWithinS(runs, deadline_s));
    }
    return fleet_.CallInStep(command, what, kOnTheWayS + deadline_s * (runs + 1));
  }

  StatusOr<Taken> CallMeasure(const v1::RankCommand& command, const std::string& what, int runs) {
    ASSIGN_OR_RETURN(const std::vector<v1::RankReply> replies, Ask(command, what, runs));
    std::vector<double> slowest_s(command.measure().repeats(), 0);
    Taken taken = {.library = replies.front().measured().library()};
    for (const v1::RankReply& reply : replies) {
      if (reply.measured().left_out().empty()) continue;
      taken.left_out = reply.measured().left_out();
      return taken;
    }
    for (int rank = 0; rank < std::ssize(replies); ++rank) {
      const auto& times_s = replies[static_cast<size_t>(rank)].measured().time_s();
      if (times_s.size() != command.measure().repeats()) {
        return InternalError(StrCat("rank ", rank, ": found ", times_s.size(), " times, expected ",
                                    command.measure().repeats(), "; is every rank of the same build?"));
      }
      for (int i = 0; i < times_s.size(); ++i) slowest_s[i] = Slower(slowest_s[i], times_s[i]);
    }
    taken.times_s = std::move(slowest_s);
    return taken;
  }

  static Sample SampleOf(const Need& need) {
    return {.key = need.key, .size = need.size, .times_s = {}, .provenance = {}};
  }

  // The time without anything beside it, measured already where the budget allowed.
  double AloneS(const Measurement& measurement) const {
    for (const Progress& other : progress_) {
      if (other.measurement.need.size == measurement.need.size && !other.times_s.empty() &&
          other.measurement.need.key == WithContention(measurement.need.key, Contention::kNone)) {
        return other.MedianS();
      }
    }
    return 0.01;
  }

  // Something to run beside it for about `cover_s`.
  StatusOr<Beside> BesideOf(const Measurement& measurement, double cover_s) {
    constexpr double kMostScale = 4096;
    for (double scale = 1;; scale *= 4) {
      ASSIGN_OR_RETURN(const Beside beside, ScaledBeside(measurement, scale));
      if (cover_s <= kEnoughBeside * beside.time_s || scale >= kMostScale) return beside;
      if (!FitsBeside(measurement, beside.operation.key, 4 * beside.operation.size)) return beside;
    }
  }

  bool FitsBeside(const Measurement& measurement, const CostKey& beside, double size) const {
    const double beside_bytes = OperationBytes(beside, size, measurement.context);
    const double device_bytes = fleet_.cluster().device_memory_bytes;
    if (device_bytes <= 0) return beside_bytes <= kMostBytesBeside;
    return OperationBytes(measurement.need.key, measurement.need.size, measurement.context) + beside_bytes <=
           kShareForOperations * device_bytes;
  }

  StatusOr<Beside> ScaledBeside(const Measurement& measurement, double scale) {
    const Contention contention = ContentionOf(measurement.need.key);
    const int ctas = CtasOf(measurement.need.key);
    const auto known = beside_.find({contention, ctas, scale});
    if (known != beside_.end()) return known->second;
    ASSIGN_OR_RETURN(Beside beside, MakeBeside(contention, measurement.context));
    beside.operation.size *= scale;
    if (auto* collective = std::get_if<CollectiveKey>(&beside.operation.key)) collective->ctas = ctas;
    ASSIGN_OR_RETURN(
        const Taken taken,
        Take({.need = {.key = beside.operation.key, .size = beside.operation.size}, .context = measurement.context},
             /*warm_ups=*/fleet_.repeats_times() ? 0 : 1, /*repeats=*/fleet_.repeats_times() ? 1 : 3));
    if (!Sound(taken.times_s)) {
      return Unavailable(StrCat("found ", Describe(beside.operation.key), " measured as ", taken.times_s.front(),
                                " s, expected finite numbers above 0; look at the clocks of the ranks"));
    }
    beside.time_s = Median(taken.times_s);
    return beside_.emplace(std::tuple(contention, ctas, scale), beside).first->second;
  }

  // An all-to-all over all ranks, an all-gather inside a node, a copy, or the layer's own experts: each of middling
  // size, to be scaled.
  StatusOr<Beside> MakeBeside(Contention contention, const Workload& context) const {
    const Cluster cluster = fleet_.cluster();
    const int node = cluster.gpus_per_node > 1 ? cluster.gpus_per_node : Ranks(cluster);
    const auto collective = [](Collective kind, int size, int ranks_per_node) {
      return CostKey(CollectiveKey{.collective = kind, .group = {size, ranks_per_node}});
    };
    constexpr double kCollectiveBytes = 262144, kCopyBytes = 1048576;
    switch (contention) {
      case Contention::kWithAllToAll:
        return Beside{SampleOf({.key = collective(Collective::kAllToAll, Ranks(cluster), cluster.gpus_per_node),
                                .size = kCollectiveBytes})};
      case Contention::kWithAllGather:
        return Beside{SampleOf({.key = collective(Collective::kAllGather, node, std::min(node, cluster.gpus_per_node)),
                                .size = kCollectiveBytes})};
      case Contention::kWithCopy:
        return Beside{SampleOf({.key = KernelKey{.kernel = Kernel::kDeviceCopy}, .size = kCopyBytes})};
      case Contention::kWithExpertGemm: {
        const double rows = 64.0 * context.layer.experts / context.layout.expert_parallel;
        return Beside{SampleOf({.key = KernelKey{.kernel = Kernel::kExpertGemm},
                                .size = ExpertFlops(context.layer, context.layout.expert_sharding_parallel, rows)})};
      }
      case Contention::kNone: break;
    }
    return InternalError("nothing to run beside an uncontended measurement");
  }

  SampleSet Samples() const {
    SampleSet samples{.name = options_.name, .cluster = fleet_.cluster(), .samples = {}};
    for (const Progress& one : progress_) {
      if (one.times_s.empty()) continue;
      Sample sample = SampleOf(one.measurement.need);
      sample.times_s = one.times_s;
      sample.provenance = ProvenanceOf(one);
      samples.samples.push_back(std::move(sample));
    }
    samples.cluster.peak_flops_per_s = FastestGemmFlopsPerS(samples.samples);
    return samples;
  }

  Fleet& fleet_;
  const CalibrationOptions& options_;
  double start_s_;
  Provenance provenance_;          // What is taken now has it.
  std::set<std::string> reasons_;  // Why kernels were left out.
  std::vector<Progress> progress_;
  std::map<CostKey, double> cover_;                               // By contended key.
  std::map<std::tuple<Contention, int, double>, Beside> beside_;  // By limit on its CTAs and scale, too.
};

// The workload that a kernel key was made for: the one whose shapes, and kind of expert, it carries.
const Workload* ContextOf(const CostKey& key, const std::vector<Workload>& workloads) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  const bool has_own_shape = kernel == nullptr || IsOfTheRestOfAStep(kernel->kernel);
  const auto fits = [&](const Workload& workload) { return has_own_shape || IsKernelOf(*kernel, workload); };
  const auto found = std::ranges::find_if(workloads, fits);
  return found == workloads.end() ? nullptr : &*found;
}

std::vector<Measurement> WithContexts(const std::vector<Need>& needs, const std::vector<Workload>& workloads) {
  std::vector<Measurement> measurements;
  for (const Need& need : needs) {
    if (const Workload* context = ContextOf(need.key, workloads))
      measurements.push_back({.need = need, .context = *context});
  }
  return measurements;
}

// What of one key is left out, whatever runs beside it.
struct LeftOut {
  double least_size = 0, least_bytes = 0;
};

std::string Sentence(const CostKey& key, const LeftOut& left_out, double device_memory_bytes) {
  return StrCat("left out: ", Describe(key), " from ", BriefNumber(left_out.least_size), " ", UnitOf(key),
                " on, whose ", "buffers take ", BriefNumber(left_out.least_bytes), " bytes, more than ",
                100 * kShareForOperations, " % of cluster.deviceMemoryBytes, which is ",
                BriefNumber(device_memory_bytes));
}

std::vector<Measurement> ThoseThatFit(const std::vector<Measurement>& measurements, double device_memory_bytes,
                                      const CalibrationOptions& options) {
  if (device_memory_bytes <= 0) return measurements;
  std::vector<Measurement> fit;
  std::map<CostKey, LeftOut> left_out;
  for (const Measurement& one : measurements) {
    const double bytes = OperationBytes(one.need.key, one.need.size, one.context);
    if (bytes <= kShareForOperations * device_memory_bytes) {
      fit.push_back(one);
      continue;
    }
    LeftOut& least = left_out[WithoutCtas(WithContention(one.need.key, Contention::kNone))];
    if (least.least_size == 0 || one.need.size < least.least_size) least = {one.need.size, bytes};
  }
  for (const auto& [key, least] : left_out) options.left_out(Sentence(key, least, device_memory_bytes));
  return fit;
}

}  // namespace

std::vector<Measurement> MeasurementsOf(const std::vector<Workload>& resolved, const Cluster& cluster) {
  std::vector<Need> needs = NeedsOf(resolved, cluster);
  std::ranges::stable_sort(needs, std::ranges::greater(), &Need::weight);
  return WithContexts(needs, resolved);
}

std::vector<Measurement> MeasurementsOfLayouts(const Cluster& cluster, const std::vector<Need>& of_steps) {
  return WithContexts(MergedNeeds(NeedsOfLayouts(cluster), of_steps), DefaultWorkloads(cluster));
}

StatusOr<std::vector<Measurement>> MeasurementsOfGraph(const TrainingGraph& graph, const Cluster& cluster) {
  const std::vector<Need> needs = NeedsOfGraph(graph, cluster);
  if (needs.empty()) return InvalidInput("graph: found neither work nor collectives, expected what can be measured");
  if (!graph.workload) return WithContexts(needs, DefaultWorkloads(cluster));
  const StatusOr<Workload> resolved = ResolveWorkload(*graph.workload, cluster);
  if (!resolved.ok()) return resolved.status().Within("graph: workload");
  return WithContexts(needs, {*resolved});
}

StatusOr<std::vector<Measurement>> MeasurementsOfOperations(const std::vector<Sample>& operations,
                                                            const std::vector<Workload>& resolved,
                                                            const Cluster& cluster) {
  const std::vector<Workload> workloads = resolved.empty() ? DefaultWorkloads(cluster) : resolved;
  std::vector<Measurement> measurements;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Sample& operation = operations[i];
    const Workload* context = ContextOf(operation.key, workloads);
    if (context == nullptr) {
      return InvalidInput(StrCat("operations[", i, "]: found ", Describe(operation.key),
                                 ", expected a kernel with the shapes of a workload of the grid"));
    }
    measurements.push_back({.need = {.key = operation.key, .size = operation.size}, .context = *context});
  }
  return measurements;
}

std::vector<Measurement> WithCtaLimits(const std::vector<Measurement>& measurements, const std::vector<int>& limits) {
  std::vector<Measurement> all;
  for (const Measurement& one : measurements) {
    all.push_back(one);
    const Contention contention = ContentionOf(one.need.key);
    for (const int limit : limits) {
      Measurement limited = one;
      if (auto* collective = std::get_if<CollectiveKey>(&limited.need.key)) {
        collective->ctas = limit;
      } else if (IsCommunication(contention)) {
        limited.need.key = WithContention(limited.need.key, contention, limit);
      } else {
        continue;
      }
      all.push_back(std::move(limited));
    }
  }
  return all;
}

Status CannotLimitCtas(int ctas) {
  return InvalidInput(StrCat("--ctas: found ", ctas,
                             ", expected none, as these collectives have no CTAs to limit; those ",
                             "of NCCL have, with --backend cuda where each rank has a GPU for itself"));
}

StatusOr<SampleSet> Calibrate(Fleet& fleet, const std::vector<Measurement>& measurements,
                              const CalibrationOptions& options) {
  if (!(options.budget_s > 0))
    return InvalidInput(StrCat("--budget: found ", options.budget_s, " s, expected more than 0"));
  if (measurements.empty())
    return InvalidInput("nothing to measure: no layout of this cluster communicates or computes");
  for (const Measurement& one : measurements) {
    if (CtasOf(one.need.key) > 0 && !fleet.limits_ctas()) return CannotLimitCtas(CtasOf(one.need.key));
  }
  const double device_memory_bytes = fleet.cluster().device_memory_bytes;
  const std::vector<Measurement> fit = ThoseThatFit(measurements, device_memory_bytes, options);
  if (fit.empty()) {
    return Infeasible(StrCat("nothing to measure fits the ", BriefNumber(device_memory_bytes),
                             " bytes of cluster.deviceMemoryBytes; lower layer.batch or layer.sequenceLength"));
  }
  return Calibrator(fleet, fit, options).Run();
}

StatusOr<std::vector<Drift>> DriftSince(Fleet& fleet, const std::vector<Measurement>& measurements,
                                        const SampleSet& before) {
  const auto first = [&](const auto& wanted) {
    return std::ranges::find_if(measurements, [&](const Measurement& one) {
      return ContentionOf(one.need.key) == Contention::kNone && wanted(one.need.key);
    });
  };
  std::vector<Measurement> again;
  for (const auto& found : {first([](const CostKey& key) {
                              const auto* kernel = std::get_if<KernelKey>(&key);
                              return kernel != nullptr && CountsFlops(kernel->kernel);
                            }),
                            first([](const CostKey& key) {
                              const auto* collective = std::get_if<CollectiveKey>(&key);
                              return collective != nullptr && collective->collective == Collective::kAllToAll;
                            })}) {
    if (found != measurements.end()) again.push_back(*found);
  }
  if (again.empty()) return std::vector<Drift>();
  ASSIGN_OR_RETURN(const SampleSet samples, Calibrate(fleet, again, {.budget_s = 2}));
  std::vector<Drift> drifts;
  for (const Sample& sample : samples.samples) {
    const auto earlier = std::ranges::find_if(
        before.samples, [&](const Sample& one) { return one.key == sample.key && one.size == sample.size; });
    if (earlier == before.samples.end()) continue;
    drifts.push_back({sample.key, Median(sample.times_s) / Median(earlier->times_s)});
  }
  return drifts;
}

}  // namespace moeplan::agent
