#include "planner/lancet/graph/hidden_exchanges.h"

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/text.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

// The prefixes of the names that instructions of the run's layers have.
std::vector<std::string> LayersOf(const LayerRun& run, int next_tokens) {
  std::vector<std::string> layers;
  for (int i = run.first; i < run.first + run.count; ++i) layers.push_back(StrCat("layer", i, "."));
  for (int i = 1; run.predicts && i <= next_tokens; ++i) layers.push_back(StrCat("next", i, "."));
  return layers;
}

void Shorten(double factor, Instruction& one) {
  *one.time_s *= factor;
  for (double& part_s : one.part_times_s) part_s *= factor;
}

// Leaves of exchanges what `step` counts beyond what runs beside them.
class Hider {
 public:
  explicit Hider(TrainingGraph& graph) {
    for (Instruction& one : graph.instructions) by_id_[one.id] = &one;
  }

  // Leaves what exchanges of keys and values take beyond the scores.
  void HideContexts(const std::string& layer) {
    Hide(layer, {"contexts"}, {"attention"}, 0);
    Hide(layer, {"contexts.recomputed"}, {"attention.recomputed"}, 0);
    Hide(layer, {"contexts.again", "contexts.dx"}, {"attention.dx"}, 0);
  }
  // Leaves what exchanges over tensor-parallel ranks take beyond a block's products, and at least one piece a rank.
  void HideTensorExchanges(const std::string& layer, int tensor_parallel) {
    using Names = std::array<std::string, 4>;
    for (const auto& [gather, first, last, sum] :
         {Names{"qkv_in", "qkv", "out", "out_sum"}, Names{"up_in", "up", "down", "down_sum"},
          Names{"shared_up_in", "shared_up", "shared_down", "shared_down_sum"},
          Names{"join_in", "join", "", "join_sum"}}) {
      const double least = 1.0 / tensor_parallel;
      Hide(layer, {gather, sum}, {first, last}, least);
      Hide(layer, {gather + ".recomputed", sum + ".recomputed"}, {first + ".recomputed", last + ".recomputed"}, least);
      Ids back = {first + ".dx", first + ".dw", last + ".dx", last + ".dw"};
      // A product alone that is computed again hides exchanges of the way back.
      if (!by_id_.contains(layer + gather + ".recomputed")) back.push_back(first + ".recomputed");
      Hide(layer, {gather + ".again", gather + ".dx", sum + ".dx"}, back, least);
    }
  }

 private:
  using Ids = std::vector<std::string>;

  // Shortens a layer's exchanges, as far as it has them, by the time of the instructions beside them, but to no less
  // than the share `least` of their own.
  void Hide(const std::string& layer, const Ids& exchanges, const Ids& beside, double least) {
    const double exchanged_s = SumS(layer, exchanges);
    if (exchanged_s <= 0) return;
    const double left = WaitedS(exchanged_s, SumS(layer, beside), least) / exchanged_s;
    for (const std::string& id : exchanges) {
      if (by_id_.contains(layer + id)) Shorten(left, *by_id_.at(layer + id));
    }
  }
  double SumS(const std::string& layer, const Ids& ids) const {
    double sum_s = 0;
    for (const std::string& id : ids) sum_s += by_id_.contains(layer + id) ? *by_id_.at(layer + id)->time_s : 0;
    return sum_s;
  }

  std::unordered_map<std::string, Instruction*> by_id_;
};

}  // namespace

void HideExchanges(const LayoutRequest& request, const LayoutPoint& point, const LayerRun& run, TrainingGraph& graph) {
  Hider hider(graph);
  const bool pieces = request.overlaps_tensor && request.sequence_parallel;
  for (const std::string& layer : LayersOf(run, request.next_tokens)) {
    hider.HideContexts(layer);
    if (pieces) hider.HideTensorExchanges(layer, point.layout.tensor_parallel);
  }
}

}  // namespace moeplan::planner
