#include "planner/search/explain.h"

#include <algorithm>
#include <cmath>

#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/ties.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

// ---- Terms.

struct Term {
  int key = 0;  // Into the candidate's keys.
  int uses = 0;
  double time_s = 0;  // Of all uses, before contention.
};

std::vector<Term> TermsLargestFirst(const GraphPrices& prices) {
  std::vector<Term> terms(prices.keys.size());
  for (size_t key = 0; key < terms.size(); ++key) terms[key].key = static_cast<int>(key);
  for (const TaskPrice& task : prices.tasks) {
    if (task.key < 0) continue;
    ++terms[task.key].uses;
    terms[task.key].time_s += task.time_s;
  }
  std::stable_sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.time_s > b.time_s; });
  return terms;
}

std::string LargestTerms(const Candidate& candidate) {
  constexpr size_t kShown = 3;
  std::vector<Term> terms = TermsLargestFirst(candidate.prices);
  std::erase_if(terms, [](const Term& term) { return term.time_s <= 0; });
  terms.resize(std::min(terms.size(), kShown));
  std::string text;
  for (const Term& term : terms) {
    text += StrCat(text.empty() ? "" : "; ", term.uses, " × ", Describe(candidate.prices.keys[term.key]), " = ",
                   Milliseconds(term.time_s));
  }
  return text;
}

// What contention adds to the tasks' own times.
double AddedByContention(const Candidate& candidate) {
  double added_s = 0;
  for (size_t i = 0; i < candidate.prices.tasks.size(); ++i) {
    added_s += candidate.played.end_s[i] - candidate.played.start_s[i] - candidate.prices.tasks[i].time_s;
  }
  return added_s;
}

// Models written by hand have no fit, and so no interval.
bool HasInterval(const Candidate& candidate) { return candidate.low_s < candidate.high_s; }

std::string IntervalOf(const Candidate& candidate) {
  if (!HasInterval(candidate)) return "no interval known";
  return StrCat("90 % interval ", Milliseconds(candidate.low_s), " to ", Milliseconds(candidate.high_s));
}

std::string GradientSentence(const GradientExchange& gradients) {
  if (gradients.slices.empty()) return "";
  const size_t count = gradients.slices.size();
  return StrCat(" Dense gradients are all-reduced in ", count, count == 1 ? " slice" : " slices", ": ",
                Milliseconds(gradients.hidden_s), " of that beside the layer, ", Milliseconds(gradients.exposed_s),
                " after it.");
}

std::string BestSentence(const Candidate& best) {
  std::string text = StrCat(Describe(best.knobs), " is predicted to take ", Milliseconds(best.time_s()), " (",
                            IntervalOf(best), "): communication ", Milliseconds(best.played.communication_time_s),
                            ", of which ", Milliseconds(best.played.exposed_communication_s),
                            " is not hidden by compute, and compute ", Milliseconds(best.played.compute_time_s), ".");
  if (const std::string terms = LargestTerms(best); !terms.empty()) text += StrCat(" Largest terms: ", terms, ".");
  if (const double added_s = AddedByContention(best); added_s > 1e-9 * best.time_s()) {
    text += StrCat(" Contention adds ", Milliseconds(added_s), " to its tasks.");
  }
  return text + GradientSentence(best.gradients);
}

// ---- The runner-up and where the answer flips.

std::string Behind(const Candidate& best, const Candidate& other) {
  const double behind_s = other.time_s() - best.time_s();
  if (behind_s < -kTie * best.time_s()) {
    return StrCat(ThreeDigits(-100 * behind_s / best.time_s()),
                  " % faster, which measurements cannot tell, but less simple");
  }
  if (behind_s <= kTie * best.time_s()) return "just as fast but less simple";
  return StrCat(ThreeDigits(100 * behind_s / best.time_s()), " % slower");
}

std::string RunnerUpSentence(const Candidate& best, const Candidate& other) {
  std::string text =
      StrCat("Runner-up: ", Describe(other.knobs), " at ", Milliseconds(other.time_s()), ", ", Behind(best, other));
  if (HasInterval(best) || HasInterval(other)) {
    text += other.low_s <= best.high_s ? "; their intervals overlap" : "; their intervals do not overlap";
  }
  return text + ".";
}

std::vector<TaskPrice> Scaled(const GraphPrices& prices, const CostKey& key, double factor) {
  std::vector<TaskPrice> scaled = prices.tasks;
  for (TaskPrice& task : scaled) {
    if (task.key >= 0 && prices.keys[task.key] == key) task.time_s *= factor;
  }
  return scaled;
}

// The collective that takes most of the best's time, or the kernel where it has no collective.
std::optional<CostKey> DominatingKey(const Candidate& best) {
  const std::vector<Term> terms = TermsLargestFirst(best.prices);
  for (const Term& term : terms) {
    if (std::holds_alternative<CollectiveKey>(best.prices.keys[term.key]) && term.time_s > 0) {
      return best.prices.keys[term.key];
    }
  }
  if (terms.empty() || terms.front().time_s <= 0) return std::nullopt;
  return best.prices.keys[terms.front().key];
}

std::string FlipSentence(const Candidate& best, const Candidate& other, const StopSignals& stop) {
  const std::optional<CostKey> key = DominatingKey(best);
  if (!key || other.time_s() < best.time_s()) return "";  // It wins already, by less than counts.
  const std::optional<double> factor = FlipFactor(best, other, *key, stop);
  if (stop.Requested()) return "";
  if (!factor) {
    return StrCat(" No speed of ", Describe(*key), " within a factor of 1000 lets ", Describe(other.knobs), " win.");
  }
  return StrCat(" ", Describe(other.knobs), " is faster than that once ", Describe(*key), " takes ",
                ThreeDigits(*factor), " times as long as measured.");
}

// ---- The baseline.

std::string BaselineSentence(const std::vector<Candidate>& best_first) {
  const Candidate& best = best_first.front();
  const std::optional<size_t> place = FasterBaseline(best_first);
  if (!place) return " No baseline could be priced.";
  if (IsBaseline(best.knobs.family)) {
    return StrCat(" It is ", place == 0u ? "the faster" : "a",
                  " baseline: no other schedule beats it by more than measurements can tell.");
  }
  const Candidate& baseline = best_first[*place];
  return StrCat(" The faster baseline is ", Describe(baseline.knobs), " at ", Milliseconds(baseline.time_s()),
                ": a speedup of ", ThreeDigits(baseline.time_s() / best.time_s()), ".");
}

}  // namespace

std::optional<size_t> RunnerUp(const std::vector<Candidate>& best_first) {
  std::optional<size_t> same_family;
  for (size_t i = 1; i < best_first.size(); ++i) {
    if (SameTasks(best_first[i].graph, best_first[0].graph)) continue;
    if (best_first[i].knobs.family != best_first[0].knobs.family) return i;
    if (!same_family) same_family = i;
  }
  return same_family;
}

std::optional<size_t> FasterBaseline(const std::vector<Candidate>& best_first) {
  // Not the first of them: of ties the simplest stands in front.
  std::optional<size_t> fastest;
  for (size_t i = 0; i < best_first.size(); ++i) {
    if (!IsBaseline(best_first[i].knobs.family)) continue;
    if (!fastest || best_first[i].time_s() < best_first[*fastest].time_s()) fastest = i;
  }
  return fastest;
}

std::optional<double> FlipFactor(const Candidate& best, const Candidate& other, const CostKey& key,
                                 const StopSignals& stop) {
  const auto other_wins = [&](double factor) {
    return Play(other.graph, Scaled(other.prices, key, factor)).total_s <
           Play(best.graph, Scaled(best.prices, key, factor)).total_s;
  };
  constexpr double kStep = 1.1, kFarthest = 1000;
  for (const double step : {kStep, 1 / kStep}) {
    for (double factor = step; std::abs(std::log(factor)) <= std::log(kFarthest); factor *= step) {
      if (stop.Requested()) return std::nullopt;
      if (!other_wins(factor)) continue;
      double keeps = factor / step, flips = factor;
      for (int i = 0; i < 50 && !stop.Requested(); ++i)
        (other_wins(std::sqrt(keeps * flips)) ? flips : keeps) = std::sqrt(keeps * flips);
      return flips;
    }
  }
  return std::nullopt;
}

std::string Explain(const std::vector<Candidate>& best_first, const StopSignals& stop) {
  const Candidate& best = best_first.front();
  std::string text = BestSentence(best);
  if (const std::optional<size_t> runner_up = RunnerUp(best_first)) {
    const Candidate& other = best_first[*runner_up];
    text += StrCat(" ", RunnerUpSentence(best, other), FlipSentence(best, other, stop));
  } else {
    text += " No candidate has other tasks.";
  }
  return text + BaselineSentence(best_first);
}

}  // namespace moeplan::planner
