#include "planner/lancet/weight_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "planner/ties.h"

namespace moeplan::planner {
namespace {

constexpr int kMostCutsOneByOne = 12;  // All-to-alls whose every subset is tried as a cut.
constexpr int kMostBranched = 512;     // Gradients; the search is as deep.

// Which instructions `from` needs (or, along consumers, which need it), itself included.
std::vector<bool> Reached(const std::vector<std::vector<int>>& next, int from) {
  std::vector<bool> reached(next.size(), false);
  std::vector<int> open = {from};
  reached[from] = true;
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    for (const int other : next[i]) {
      if (reached[other]) continue;
      reached[other] = true;
      open.push_back(other);
    }
  }
  return reached;
}

std::vector<double> ResidualS(const OverlapProblem& problem, std::span<const int> choice) {
  std::vector<double> residual_s = problem.exchange_s;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] != kUnassigned) residual_s[choice[i]] -= problem.gradient_s[i];
  }
  return residual_s;
}

class Improvement {
 public:
  Improvement(const OverlapProblem& problem, const OverlapChoice& known, int budget_nodes,
              const std::stop_token& cancelled)
      : problem_(problem), budget_nodes_(budget_nodes), cancelled_(cancelled), best_(known), choice_(known) {
    best_s_ = OverlapS(problem, known);
    bound_s_ = OverlapBoundS(problem, cancelled);
  }

  OverlapOutcome Run() {
    Climb();
    if (!AtBound() && problem_.gradients.size() <= kMostBranched) Branch();
    const bool proved = AtBound() || exhausted_;
    return {.stop_reason = proved ? StopReason::kProvedBest : StopReason::kOutOfBudget,
            .choice = best_,
            .overlap_s = best_s_,
            .bound_s = proved ? best_s_ : bound_s_,
            .nodes = nodes_};
  }

 private:
  bool AtBound() const { return best_s_ >= bound_s_ * (1 - kNoGain); }
  bool Spent() const { return nodes_ >= budget_nodes_ || cancelled_.stop_requested(); }
  bool Better(double overlap_s) const { return overlap_s > best_s_ * (1 + kNoGain); }

  static double CoveredS(double time_s, double residual_s) { return time_s - std::max(residual_s, 0.0); }

  // ---- Moves and swaps, the first that helps.

  void Climb() {
    residual_s_ = ResidualS(problem_, choice_);
    for (bool helped = true; helped && !AtBound() && !Spent();) helped = MoveOne() || SwapTwo();
    choice_ = best_;
  }

  bool MoveOne() {
    for (int i = 0; i < static_cast<int>(choice_.size()) && !Spent(); ++i) {
      const int before = choice_[i];
      for (const int place : problem_.fits[i]) {
        if (place == before || Spent()) continue;
        Put(i, place);
        if (KeepIfBetter()) return true;
        Put(i, before);
      }
    }
    return false;
  }

  bool SwapTwo() {
    for (int i = 0; i < static_cast<int>(choice_.size()) && !Spent(); ++i) {
      for (int j = i + 1; j < static_cast<int>(choice_.size()); ++j) {
        const int of_i = choice_[i], of_j = choice_[j];
        if (of_i == of_j || !Fits(i, of_j) || !Fits(j, of_i) || Spent()) continue;
        Put(i, of_j);
        Put(j, of_i);
        if (KeepIfBetter()) return true;
        Put(i, of_i);
        Put(j, of_j);
      }
    }
    return false;
  }

  bool Fits(int i, int place) const {
    return place == kUnassigned || std::ranges::binary_search(problem_.fits[i], place);
  }

  void Put(int i, int place) {
    const double time_s = problem_.gradient_s[i];
    if (choice_[i] != kUnassigned) residual_s_[choice_[i]] += time_s;
    if (place != kUnassigned) residual_s_[place] -= time_s;
    choice_[i] = place;
  }

  bool KeepIfBetter() {
    ++nodes_;
    double overlap_s = 0;
    for (size_t j = 0; j < residual_s_.size(); ++j) overlap_s += CoveredS(problem_.exchange_s[j], residual_s_[j]);
    if (!Better(overlap_s)) return false;
    best_s_ = overlap_s;
    best_ = choice_;
    return true;
  }

  // ---- Branch and bound, the longest gradients first.

  void Branch() {
    by_time_.resize(problem_.gradients.size());
    std::iota(by_time_.begin(), by_time_.end(), 0);
    std::ranges::stable_sort(by_time_, std::ranges::greater(), [&](int i) { return problem_.gradient_s[i]; });
    rest_s_.assign(by_time_.size() + 1, 0);
    for (size_t depth = by_time_.size(); depth-- > 0;) {
      rest_s_[depth] = rest_s_[depth + 1] + problem_.gradient_s[by_time_[depth]];
    }
    choice_.assign(by_time_.size(), kUnassigned);
    residual_s_ = problem_.exchange_s;
    open_s_ = std::accumulate(residual_s_.begin(), residual_s_.end(), 0.0);
    exhausted_ = true;
    Extend(0, 0);
  }

  // `overlap_s` of the first `depth` gradients.
  void Extend(size_t depth, double overlap_s) {
    if (Spent()) exhausted_ = false;
    if (Spent() || AtBound()) return;
    ++nodes_;
    if (Better(overlap_s)) {
      best_s_ = overlap_s;
      best_ = choice_;
    }
    if (depth == by_time_.size() || !Better(overlap_s + std::min(rest_s_[depth], open_s_))) return;
    const int i = by_time_[depth];
    std::vector<int> places;
    for (const int place : problem_.fits[i]) {
      if (residual_s_[place] > 0) places.push_back(place);
    }
    const double time_s = problem_.gradient_s[i];
    const auto misfit_s = [&](int place) { return std::abs(residual_s_[place] - time_s); };
    std::ranges::stable_sort(places, {}, misfit_s);
    for (const int place : places) {
      const double before_s = residual_s_[place], open_before_s = open_s_;
      const double gain_s = std::min(before_s, time_s);
      residual_s_[place] = before_s - gain_s;
      open_s_ -= gain_s;
      choice_[i] = place;
      Extend(depth + 1, overlap_s + gain_s);
      choice_[i] = kUnassigned;
      residual_s_[place] = before_s;
      open_s_ = open_before_s;
    }
    Extend(depth + 1, overlap_s);
  }

  const OverlapProblem& problem_;
  const int budget_nodes_;
  const std::stop_token& cancelled_;
  OverlapChoice best_, choice_;
  double best_s_ = 0, bound_s_ = 0;
  std::vector<double> residual_s_;  // Of each all-to-all: what nothing covers yet; negative while climbing.
  int nodes_ = 0;
  bool exhausted_ = false;
  std::vector<int> by_time_;
  std::vector<double> rest_s_;  // Sum of the gradients from a depth on.
  double open_s_ = 0;           // Sum of the residuals.
};

// The cut that leaves the all-to-alls in `uncut` to the gradients: those that fit any of them, and the other
// all-to-alls.
double CutS(const OverlapProblem& problem, const std::vector<bool>& uncut) {
  double cut_s = 0;
  for (size_t j = 0; j < uncut.size(); ++j) cut_s += uncut[j] ? 0 : problem.exchange_s[j];
  for (size_t i = 0; i < problem.fits.size(); ++i) {
    const bool reaches = std::ranges::any_of(problem.fits[i], [&](int place) { return uncut[place]; });
    cut_s += reaches ? problem.gradient_s[i] : 0;
  }
  return cut_s;
}

}  // namespace

std::vector<GradientPlace> PlacesOf(const OverlapProblem& problem, std::span<const int> choice) {
  std::vector<GradientPlace> places;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] != kUnassigned) places.push_back({problem.gradients[i], problem.exchanges[choice[i]]});
  }
  return places;
}

OverlapProblem LabelWeightGradients(const TimedGraph& graph, const std::stop_token& cancelled) {
  std::vector<std::vector<int>> producers(graph.size()), consumers(graph.size());
  for (int i = 0; i < graph.size(); ++i) {
    producers[i] = graph.instructions[i].producers;
    for (const int producer : producers[i]) consumers[producer].push_back(i);
  }
  OverlapProblem problem;
  std::vector<std::vector<int>> fits(graph.size());
  for (int i = 0; i < graph.size() && !cancelled.stop_requested(); ++i) {
    const TimedInstruction& exchange = graph.instructions[i];
    if (!exchange.exchanges() || exchange.phase != Pass::kBackward) continue;
    const std::vector<bool> before = Reached(producers, i), after = Reached(consumers, i);
    for (int w = 0; w < graph.size(); ++w) {
      const TimedInstruction& gradient = graph.instructions[w];
      if (!gradient.weight_gradient || gradient.phase != Pass::kBackward) continue;
      if (!before[w] && !after[w]) fits[w].push_back(static_cast<int>(problem.exchanges.size()));
    }
    problem.exchanges.push_back(i);
    problem.exchange_s.push_back(exchange.whole_s());
  }
  for (int w = 0; w < graph.size(); ++w) {
    if (fits[w].empty()) continue;
    problem.gradients.push_back(w);
    problem.gradient_s.push_back(graph.instructions[w].whole_s());
    problem.fits.push_back(std::move(fits[w]));
  }
  return problem;
}

double OverlapS(const OverlapProblem& problem, std::span<const int> choice) {
  const std::vector<double> residual_s = ResidualS(problem, choice);
  double overlap_s = 0;
  for (size_t j = 0; j < residual_s.size(); ++j) overlap_s += problem.exchange_s[j] - std::max(residual_s[j], 0.0);
  return overlap_s;
}

OverlapChoice BestFitGreedy(const OverlapProblem& problem, const std::stop_token& cancelled) {
  OverlapChoice choice(problem.gradients.size(), kUnassigned);
  for (int place = 0; place < static_cast<int>(problem.exchanges.size()); ++place) {
    double open_s = problem.exchange_s[place];
    while (open_s > 0 && !cancelled.stop_requested()) {
      int best = kUnassigned;
      for (int i = 0; i < static_cast<int>(choice.size()); ++i) {
        if (choice[i] != kUnassigned || !std::ranges::binary_search(problem.fits[i], place)) continue;
        const auto misfit_s = [&](int w) { return std::abs(open_s - problem.gradient_s[w]); };
        if (best == kUnassigned || misfit_s(i) < misfit_s(best)) best = i;
      }
      if (best == kUnassigned) break;
      choice[best] = place;
      open_s -= problem.gradient_s[best];
    }
  }
  return choice;
}

double OverlapBoundS(const OverlapProblem& problem, const std::stop_token& cancelled) {
  const int count = static_cast<int>(problem.exchanges.size());
  std::vector<bool> uncut(count, false);
  double bound_s = CutS(problem, uncut);
  if (count <= kMostCutsOneByOne) {
    for (unsigned subset = 1; subset < 1u << count && !cancelled.stop_requested(); ++subset) {
      for (int j = 0; j < count; ++j) uncut[j] = subset >> j & 1;
      bound_s = std::min(bound_s, CutS(problem, uncut));
    }
    return bound_s;
  }
  // Nested sets: only those of the all-to-alls with the fewest gradients can be the best.
  std::vector<double> fitting_s(count, 0);
  for (size_t i = 0; i < problem.fits.size(); ++i) {
    for (const int place : problem.fits[i]) fitting_s[place] += problem.gradient_s[i];
  }
  std::vector<int> by_fitting(count);
  std::iota(by_fitting.begin(), by_fitting.end(), 0);
  std::ranges::stable_sort(by_fitting, {}, [&](int j) { return fitting_s[j]; });
  std::vector<std::vector<int>> fitting(count);
  for (size_t i = 0; i < problem.fits.size(); ++i) {
    for (const int place : problem.fits[i]) fitting[place].push_back(static_cast<int>(i));
  }
  std::vector<bool> reached(problem.fits.size(), false);
  double cut_s = bound_s;  // Of the all-to-alls that are uncut so far.
  for (const int j : by_fitting) {
    cut_s -= problem.exchange_s[j];
    for (const int i : fitting[j]) {
      if (!reached[i]) cut_s += problem.gradient_s[i];
      reached[i] = true;
    }
    bound_s = std::min(bound_s, cut_s);
  }
  return bound_s;
}

OverlapOutcome ImproveOverlap(const OverlapProblem& problem, const OverlapChoice& known, int budget_nodes,
                              const std::stop_token& cancelled) {
  return Improvement(problem, known, budget_nodes, cancelled).Run();
}

}  // namespace moeplan::planner
