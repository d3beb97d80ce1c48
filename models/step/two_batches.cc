#include "models/step/two_batches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/check.h"
#include "models/text.h"
#include "models/timeline/timeline.h"

namespace moeplan {
namespace {

class Builder {
 public:
  Builder(const HalfLayers& layer, bool delays) : layer_(layer), delays_(delays) {}

  PricedTwoBatches Build(int layers) {
    for (int i = 0; i < layers; ++i) AddPair(i, layers - 1 - i);
    return std::move(built_);
  }

 private:
  // In the order in which the streams take them.
  void AddPair(int forward, int back) {
    const TaskId combined = Exchange("combine_back", back, layer_.combine_back_s, back_);
    const TaskId attended = Compute("attention", forward, layer_.attention_forward_s, forward_);
    const double experts_weights_s = delays_ ? 0 : layer_.experts_weights_s;
    const TaskId returned = Compute("experts_back", back, layer_.experts_backward_s + experts_weights_s, combined);
    const TaskId dispatched = Exchange("dispatch", forward, layer_.dispatch_s, attended);
    if (delays_) Compute("experts_weights", back, layer_.experts_weights_s, returned);
    const TaskId sent_back = Exchange("dispatch_back", back, layer_.dispatch_back_s, returned);
    const TaskId computed = Compute("experts", forward, layer_.experts_forward_s, dispatched);
    forward_ = Exchange("combine", forward, layer_.combine_s, computed);
    const double attention_weights_s = delays_ ? 0 : layer_.attention_weights_s;
    back_ = Compute("attention_back", back, layer_.attention_backward_s + attention_weights_s, sent_back);
    if (delays_) Compute("attention_weights", back, layer_.attention_weights_s, back_);
  }

  TaskId Compute(const char* name, int layer, double time_s, TaskId after) {
    TaskPrice price = {.time_s = time_s, .imposes = Contention::kWithExpertGemm};
    price.slowdown[static_cast<size_t>(Contention::kWithAllToAll)] = layer_.compute_slowdown;
    return Add(name, layer, {TaskKind::kOther, StreamKind::kCompute}, price, after);
  }
  TaskId Exchange(const char* name, int layer, double time_s, TaskId after) {
    TaskPrice price = {.time_s = time_s, .imposes = Contention::kWithAllToAll};
    price.slowdown[static_cast<size_t>(Contention::kWithExpertGemm)] = layer_.exchange_slowdown;
    return Add(name, layer, {TaskKind::kAllToAll, StreamKind::kInterNode}, price, after);
  }

  struct Place {
    TaskKind kind;
    StreamKind stream;
  };
  TaskId Add(const char* name, int layer, const Place& place, TaskPrice price, TaskId after) {
    price.low_s = price.high_s = price.time_s;
    Task task = {.name = StrCat(name, ".", layer), .kind = place.kind, .stream = place.stream};
    if (after != kNoTask) task.dependencies.push_back(after);
    built_.graph.tasks.push_back(std::move(task));
    built_.prices.push_back(price);
    built_.graph.first_backward = static_cast<TaskId>(built_.graph.tasks.size());
    return built_.graph.first_backward - 1;
  }

  const HalfLayers& layer_;
  const bool delays_;
  PricedTwoBatches built_;
  TaskId forward_ = kNoTask, back_ = kNoTask;  // What the next layer waits for.
};

double PlayedS(const HalfLayers& layer, int layers, bool delays) {
  const PricedTwoBatches built = BuildTwoBatches(layer, layers, delays);
  return Play(built.graph, built.prices).total_s;
}

}  // namespace

double HalfLayers::serial_s() const { return compute_s() + exchange_s(); }

double HalfLayers::compute_s() const {
  return attention_forward_s + attention_backward_s + attention_weights_s + experts_forward_s + experts_backward_s +
         experts_weights_s;
}

double HalfLayers::exchange_s() const { return dispatch_s + combine_s + combine_back_s + dispatch_back_s; }

PricedTwoBatches BuildTwoBatches(const HalfLayers& layer, int layers, bool delays_weight_gradients) {
  MOEPLAN_CHECK(layers >= 0);
  return Builder(layer, delays_weight_gradients).Build(layers);
}

double TwoBatchesS(const HalfLayers& layer, int layers, bool delays_weight_gradients) {
  constexpr int kSettled = 4, kMostPlayed = 8;
  const double played_s = PlayedS(layer, std::min(layers, kMostPlayed), delays_weight_gradients);
  if (layers <= kMostPlayed) return played_s;
  const double more_s = (played_s - PlayedS(layer, kSettled, delays_weight_gradients)) / (kMostPlayed - kSettled);
  return played_s + (layers - kMostPlayed) * more_s;
}

double HiddenS(const HalfLayers& layer, double alone_s, int layers, int passes, bool delays_weight_gradients) {
  MOEPLAN_CHECK(passes >= 1);
  double hidden_s = layers * alone_s;
  // Passes differ by at most one layer.
  const int fewer = layers / passes, longer = layers % passes;
  if (longer > 0) hidden_s -= longer * TwoBatchesS(layer, fewer + 1, delays_weight_gradients);
  if (fewer > 0) hidden_s -= (passes - longer) * TwoBatchesS(layer, fewer, delays_weight_gradients);
  return hidden_s;
}

}  // namespace moeplan
