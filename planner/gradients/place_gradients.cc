#include "planner/gradients/place_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "models/check.h"
#include "models/measurement/cost_key.h"
#include "models/schedule/gradient_slices.h"
#include "models/schedule/streams.h"
#include "models/timeline/pricer.h"
#include "models/timeline/task_cost.h"
#include "models/timeline/timeline.h"
#include "planner/gradients/gaps.h"

namespace moeplan::planner {
namespace {

// What an all-reduce of the gradients is looked up by.
CostKey SliceKey(const TaskGraph& graph) {
  CollectiveKey key = KeyOf(Collective::kAllReduce, Group::kDenseReplicas, graph.layout, graph.gpus_per_node);
  key.bytes_per_element = graph.layer.bytes_per_element;
  key.ctas = graph.communication_ctas;
  return key;
}

// So many look-ups of one key go through a profile of nothing else.
Profile OnlyOf(const CostKey& key, const Profile& profile) {
  const auto& wanted = std::get<CollectiveKey>(key);
  Profile only;
  std::ranges::copy_if(profile.collectives, std::back_inserter(only.collectives), [&](const CollectiveModel& entry) {
    return entry.key.collective == wanted.collective && entry.key.group == wanted.group;
  });
  return only;
}

// How long slices take.
class SliceTimes {
 public:
  SliceTimes(const TaskGraph& graph, const Profile& profile)
      : key_(SliceKey(graph)), ctas_(graph.communication_ctas), profile_(OnlyOf(key_, profile)), pricer_(profile_) {}
  SliceTimes(const SliceTimes&) = delete;  // The pricer borrows the profile.

  Status Known(const Layout& layout) const {
    return pricer_.Has(key_) ? OkStatus() : NotFound(MissingReason({Essential(key_)}, layout));
  }

  // When a slice ends that starts with the gap; infinity when that is after it.
  double EndIn(const Gap& gap, double bytes) {
    std::array<std::optional<double>, kContentions> known;
    const auto slowdown = [&](const ContentionSet& beside) {
      double most = 1;
      for (int kind = 0; kind < kContentions; ++kind) {
        if (!beside.test(kind)) continue;
        if (!known[kind]) known[kind] = pricer_.Slowdown(key_, static_cast<Contention>(kind), bytes, ctas_).mid;
        most = std::max(most, *known[kind]);
      }
      return most;
    };
    return planner::EndIn(gap, pricer_.Price(key_, bytes).time_s, slowdown);
  }

 private:
  const CostKey key_;
  const int ctas_;
  const Profile profile_;
  Pricer pricer_;
};

// How many times longer tasks take beside an all-reduce.
class Sensitivity {
 public:
  Sensitivity(const TaskGraph& graph, const Profile& profile) : graph_(graph), pricer_(profile) {}

  double Of(TaskId task) {
    const std::optional<TaskCost> cost = CostOf(graph_.tasks[task], graph_);
    if (!cost) return 1;
    const auto [known, fresh] = known_.try_emplace({cost->key, cost->size});
    if (!fresh) return known->second;
    known->second = pricer_.Slowdown(cost->key, Contention::kWithAllGather, cost->size, graph_.communication_ctas).mid;
    return known->second;
  }

 private:
  const TaskGraph& graph_;
  Pricer pricer_;
  std::map<std::pair<CostKey, double>, double> known_;
};

// ---- Bytes to gaps.

struct Piece {
  const Gap* gap = nullptr;
  double bytes = 0;
};

class Division {
 public:
  Division(const std::vector<Gap>& gaps, double total_s, const TaskGraph& graph, const Workload& workload,
           SliceTimes& times, const StopSignals& stop)
      : gaps_(gaps),
        total_s_(total_s),
        times_(times),
        stop_(stop),
        element_(graph.layer.bytes_per_element),
        bytes_(workload.gradient_bytes),
        least_(std::min(std::ceil(workload.min_chunk_bytes / element_) * element_, bytes_)) {}

  // By start.
  std::vector<Piece> Run() && {
    MeasureGaps();
    Choose();
    std::vector<Piece> pieces(inside_.begin(), inside_.begin() + chosen_count_);
    double left = chosen_bytes_ - chosen_count_ * least_;
    for (Piece& piece : pieces) {
      const double more = std::min(left, piece.bytes - least_);
      piece.bytes = least_ + more;
      left -= more;
    }
    std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.gap->start_s; });
    if (chosen_bytes_ < bytes_) pieces.push_back({&gaps_.back(), bytes_ - chosen_bytes_});
    return pieces;
  }

 private:
  // What fits into each gap but the last, largest first.
  void MeasureGaps() {
    for (size_t i = 0; i + 1 < gaps_.size() && !stop_.Requested(); ++i) {
      if (const double most = MostIn(gaps_[i]); most > 0) inside_.push_back({&gaps_[i], most});
    }
    std::ranges::stable_sort(inside_, std::greater(), &Piece::bytes);
  }

  bool Fits(const Gap& gap, double bytes) { return std::isfinite(times_.EndIn(gap, bytes)); }

  double MostIn(const Gap& gap) {
    if (Fits(gap, bytes_)) return bytes_;
    double fits = least_ / element_, fails = bytes_ / element_;
    if (fits >= fails || !Fits(gap, least_)) return 0;
    while (fails - fits > 1) {
      const double middle = std::floor((fits + fails) / 2);
      (Fits(gap, middle * element_) ? fits : fails) = middle;
    }
    return fits * element_;
  }

  // With the `count` roomiest gaps, the rest in the last one: the more bytes they take, the shorter the rest.
  void Choose() {
    double room = 0, least_exposed_s = 0;
    for (size_t count = 0; count <= inside_.size() && !stop_.Requested(); ++count) {
      if (count > 0) room += inside_[count - 1].bytes;
      const double at_least = static_cast<double>(count) * least_;
      const bool all = count > 0 && (count == 1 || at_least <= bytes_) && room >= bytes_;
      const double hidden = all ? bytes_ : count == 0 ? 0 : std::min(room, bytes_ - least_);
      if (hidden < std::min(at_least, bytes_)) continue;
      const double rest_s = hidden < bytes_ ? times_.EndIn(gaps_.back(), bytes_ - hidden) : 0;
      const double exposed_s = std::max(0.0, rest_s - total_s_);
      if (count > 0 && exposed_s >= least_exposed_s) continue;
      least_exposed_s = exposed_s;
      chosen_count_ = count;
      chosen_bytes_ = hidden;
    }
  }

  const std::vector<Gap>& gaps_;
  const double total_s_;
  SliceTimes& times_;
  const StopSignals& stop_;
  const double element_, bytes_, least_;
  std::vector<Piece> inside_;
  size_t chosen_count_ = 0;
  double chosen_bytes_ = 0;  // In that many of inside_.
};

// ---- Slices.

std::string NameOf(TaskId task, const TaskGraph& graph) { return task == kNoTask ? "" : graph.tasks[task].name; }

std::vector<GradientSlice> SlicesOf(const std::vector<Piece>& pieces, const TaskGraph& graph) {
  std::vector<GradientSlice> slices;
  for (const Piece& piece : pieces) {
    slices.push_back({.after_task = NameOf(piece.gap->after, graph),
                      .before_task = NameOf(piece.gap->before, graph),
                      .bytes = piece.bytes});
  }
  return slices;
}

bool IsSlice(const Task& task) {
  const auto* op = std::get_if<CollectiveOp>(&task.op);
  return op != nullptr && op->group == Group::kDenseReplicas;
}

// Sets when the slices run; whether no other task ends later than before.
bool Replay(const PlayedGraph& before, PlacedGradients& placed) {
  GradientExchange& exchange = placed.exchange;
  const PlayedGraph after = Play(placed.graph, placed.prices.tasks);
  size_t original = 0, slice = 0;
  double run_s = 0;
  for (size_t task = 0; task < placed.graph.tasks.size(); ++task) {
    if (!IsSlice(placed.graph.tasks[task])) {
      if (after.end_s[task] > before.end_s[original++]) return false;
      continue;
    }
    exchange.slices[slice].start_s = after.start_s[task];
    exchange.slices[slice++].end_s = after.end_s[task];
    run_s += after.end_s[task] - after.start_s[task];
  }
  exchange.exposed_s = std::max(0.0, after.total_s - before.total_s);
  exchange.hidden_s = std::max(0.0, run_s - exchange.exposed_s);
  return true;
}

// Whether `pieces` delay nothing.
bool Apply(const std::vector<Piece>& pieces, const TaskGraph& graph, const PlayedGraph& before, const Profile& profile,
           PlacedGradients& placed) {
  placed.exchange.slices = SlicesOf(pieces, graph);
  StatusOr<TaskGraph> sliced = WithGradientSlices(graph, placed.exchange.slices);
  MOEPLAN_CHECK(sliced.ok());
  placed.graph = *std::move(sliced);
  placed.prices = PriceGraph(placed.graph, profile);
  return Replay(before, placed);
}

// All in one, when everything else is done.
Gap AfterAll(const PlayedGraph& played) {
  const auto last = std::ranges::max_element(played.end_s);
  return {.after = last == played.end_s.end() ? kNoTask : static_cast<TaskId>(last - played.end_s.begin())};
}

}  // namespace

StatusOr<PlacedGradients> PlaceGradients(TaskGraph graph, GraphPrices prices, const Workload& workload,
                                         const Profile& profile, const StopSignals& stop) {
  if (workload.gradient_bytes == 0 || GroupSize(Group::kDenseReplicas, graph.layout) == 1) {
    return PlacedGradients{.graph = std::move(graph), .prices = std::move(prices)};
  }
  SliceTimes times(graph, profile);
  RETURN_IF_ERROR(times.Known(graph.layout));
  Sensitivity sensitivity(graph, profile);
  const PlayedGraph played = Play(graph, prices.tasks);
  const StreamKind stream = StreamOf(Group::kDenseReplicas, graph.layout, graph.gpus_per_node);
  const std::vector<Gap> gaps =
      GapsOf(graph, prices.tasks, played, stream, [&](TaskId task) { return sensitivity.Of(task); });
  PlacedGradients placed;
  const std::vector<Piece> pieces = Division(gaps, played.total_s, graph, workload, times, stop).Run();
  if (stop.Requested()) return Cancelled("placing gradients was stopped");
  if (!Apply(pieces, graph, played, profile, placed)) {
    const Gap after_all = AfterAll(played);
    Apply({{&after_all, workload.gradient_bytes}}, graph, played, profile, placed);
  }
  return placed;
}

}  // namespace moeplan::planner
