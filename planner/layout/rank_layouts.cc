#include "planner/layout/rank_layouts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/priced_layout.h"
#include "planner/layout/rank_memory.h"
#include "planner/layout/step_time.h"

namespace moeplan::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Questions at once: enough for the threads, few enough that the best so far gets to rule the rest out.
constexpr size_t kPlannedAtOnce = 8;

struct Candidate {
  LayoutPoint point;
  double least_step_s = 0;
};

// Layouts that are told apart in an answer.
auto IdentityOf(const LayoutPoint& point) {
  const Layout& layout = point.layout;
  return std::tuple(layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel,
                    layout.expert_sharding_parallel, layout.expert_parallel,
                    point.horizontal_contexts != RuleLiesAcross(layout));
}
using Identity = decltype(IdentityOf(LayoutPoint()));

Status TooManyPoints() {
  return InvalidInput(StrCat("gpus: the model has more than ", kMostLayoutPoints,
                             " layouts on so many GPUs, expected at most as many; ask for fewer GPUs, a smaller "
                             "globalBatch, or a model of fewer experts or layers"));
}

Status Stopped() { return Cancelled("ranking layouts was cancelled"); }

class LayoutSearch {
 public:
  LayoutSearch(const LayoutRequest& request, const Profile& profile, const LayoutOptions& options)
      : request_(request),
        profile_(profile),
        options_(options),
        stop_{.cancelled = options.cancelled, .out_of_time = {}},
        book_(profile_, request.model.model_dim, request.bytes_per_element, {}, request.precision) {
    profile_.cluster = ClusterOf(request, profile.cluster);
  }

  StatusOr<LayoutAnswer> Run() {
    const std::vector<LayoutPoint> points = AllLayoutPoints(request_, profile_.cluster, stop_);
    // Points of an enumeration that was stopped say nothing about the request.
    if (stop_.Requested()) return Stopped();
    if (points.size() > kMostLayoutPoints) return TooManyPoints();
    answer_.enumerated = static_cast<int>(points.size());
    answer_.most_pieces = kMostPieces;
    if (points.empty()) return NothingDivides();
    candidates_ = Fitting(points);
    answer_.fitting = static_cast<int>(candidates_.size());
    while (MayEnter(NextLeastS(), last_step_s_) && !stop_.Requested()) PriceNext();
    if (stop_.Requested()) return Stopped();
    return Answer();
  }

 private:
  double device_bytes() const { return DeviceBytes(profile_); }

  // Memory first: the least that a point needs. What is left, by rising bound.
  std::vector<Candidate> Fitting(const std::vector<LayoutPoint>& points) {
    std::vector<Candidate> fitting;
    for (const LayoutPoint& point : points) {
      if (stop_.Requested()) break;
      const double bytes = RankMemoryOf(request_, point, {}).total_bytes();
      if (bytes > device_bytes()) {
        least_bytes_ = std::min(least_bytes_, bytes);
        continue;
      }
      fitting.push_back({point, prunes() ? LeastStepS(request_, point, book_) : 0});
    }
    std::ranges::stable_sort(fitting, {}, &Candidate::least_step_s);
    return fitting;
  }

  // Whether bounds can rule anything out.
  bool prunes() const { return options_.prune && request_.top > 0; }

  // The bound that comes next, infinite where none does.
  double NextLeastS() const { return next_ < candidates_.size() ? candidates_[next_].least_step_s : kInfinity; }

  // Bounds and steps are sums in other orders, so a tie may look like the last digits.
  static bool MayEnter(double least_step_s, double last_step_s) {
    return std::isfinite(least_step_s) && least_step_s <= last_step_s * (1 + 1e-8);
  }

  // The step of the last layout that would be answered; no point above it can change the answer.
  double LastStepS() const {
    const size_t top = request_.top;
    if (!prunes() || best_.size() < top) return kInfinity;
    std::vector<double> steps;
    steps.reserve(best_.size());
    for (const auto& [identity, ranked] : best_) steps.push_back(ranked.time.step_s);
    std::ranges::nth_element(steps, steps.begin() + static_cast<std::ptrdiff_t>(top) - 1);
    return steps[top - 1];
  }

  // Plans what the next candidates ask, and prices those.
  void PriceNext() {
    std::vector<MoeQuestion> fresh;
    const size_t first = next_;
    for (; MayEnter(NextLeastS(), last_step_s_); ++next_) {
      const MoeQuestion question = QuestionOf(request_, candidates_[next_].point);
      if (request_.model.moe_layers() == 0 || moe_.contains(question)) continue;
      if (fresh.size() == kPlannedAtOnce) break;
      moe_[question];
      fresh.push_back(question);
    }
    const std::vector<Profile> profiles = ProfilesFor(fresh);
    std::vector<MoePlans> planned = Plan(fresh, profiles);
    for (size_t i = 0; i < fresh.size(); ++i) {
      MoePlans& plans = moe_[fresh[i]];
      planned[i].extrapolated = plans.extrapolated;
      planned[i].warnings.insert(planned[i].warnings.begin(), plans.warnings.begin(), plans.warnings.end());
      plans = std::move(planned[i]);
    }
    for (size_t i = first; i < next_ && !stop_.Requested(); ++i) {
      if (MayEnter(candidates_[i].least_step_s, last_step_s_)) PriceCandidate(candidates_[i].point);
    }
  }

  // Returns the profile of each question's layer; its plans get the book's warnings about it.
  std::vector<Profile> ProfilesFor(const std::vector<MoeQuestion>& questions) {
    std::vector<Profile> profiles;
    for (const MoeQuestion& question : questions) {
      const Workload workload = WorkloadOf(request_, question);
      book_.Forget();
      profiles.push_back(book_.ForLayer(workload.layer, workload.layout, DispatchingOf(request_)));
      MoePlans& plans = moe_[question];
      plans.extrapolated = book_.extrapolated();
      plans.warnings = book_.notes().Warnings();
    }
    return profiles;
  }

  std::vector<MoePlans> Plan(const std::vector<MoeQuestion>& questions, const std::vector<Profile>& profiles) {
    std::vector<MoePlans> answers(questions.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < questions.size(); i = next++) {
        answers[i] = PlanMoe(request_, questions[i], profiles[i], stop_);
      }
    };
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min<size_t>(options_.threads, questions.size()); ++i) threads.emplace_back(work);
    work();
    threads.clear();
    return answers;
  }

  std::optional<PricedLayout> Fit(const LayoutPoint& point) {
    if (request_.model.moe_layers() == 0) return WithoutExperts(request_, point);
    const MoePlans& plans = moe_.at(QuestionOf(request_, point));
    if (plans.plans.empty()) NotPriced(plans.reason);
    return BestThatFits(request_, point, plans, device_bytes(), least_bytes_);
  }

  // The first that could not be priced tells why.
  void NotPriced(const std::string& reason) {
    ++not_priced_[reason];
    if (reason_.empty()) reason_ = reason;
  }

  void PriceCandidate(const LayoutPoint& point) {
    std::optional<PricedLayout> ranked = Fit(point);
    if (!ranked) return;
    book_.Forget();
    ranked->time = PriceStep(request_, point, ranked->moe.time, book_);
    if (!book_.missing().empty()) {
      return NotPriced(MissingReason({book_.missing().begin(), book_.missing().end()}, point.layout));
    }
    ++answer_.priced;
    const auto [place, fresh] = best_.try_emplace(IdentityOf(point), *ranked);
    const bool better = !fresh && Better(*ranked, place->second);
    if (better) place->second = *std::move(ranked);
    if ((fresh || better) && place->second.time.step_s < last_step_s_) last_step_s_ = LastStepS();
  }

  // Equal steps: smaller micro-batches, which need less memory.
  static bool Better(const PricedLayout& a, const PricedLayout& b) {
    return std::pair(a.time.step_s, a.point.micro_batch) < std::pair(b.time.step_s, b.point.micro_batch);
  }

  // Of those that came so far; others may be among the layouts that a bound ruled out.
  void WarnOfNotPriced(std::set<std::string>& warnings) const {
    for (const auto& [reason, layouts] : not_priced_) {
      warnings.insert(StrCat(layouts, layouts == 1 ? " layout that may be fast has" : " layouts that may be fast have",
                             " no price: ", reason));
    }
  }

  Status NothingDivides() const {
    const ModelConfig& model = request_.model;
    return InvalidInput(StrCat("no layout: ", request_.gpus, " GPUs in nodes of ", profile_.cluster.gpus_per_node, ", ",
                               request_.global_batch, " samples of ", request_.sequence_length, " tokens, ",
                               model.layers(), " layers, ", model.heads, " heads and ", model.experts,
                               " experts have no divisors in common; a global batch that the GPUs divide has"));
  }

  StatusOr<LayoutAnswer> Answer() {
    if (best_.empty() && !std::isfinite(least_bytes_))
      return InvalidInput(StrCat("no layout can be priced: ", reason_));
    if (best_.empty() && !reason_.empty()) return InvalidInput(StrCat("no layout that fits can be priced: ", reason_));
    if (best_.empty()) answer_.least_missing_bytes = least_bytes_ - device_bytes();
    std::vector<const PricedLayout*> order;
    for (const auto& [identity, ranked] : best_) order.push_back(&ranked);
    std::ranges::stable_sort(order, {}, [](const PricedLayout* ranked) { return ranked->time.step_s; });
    if (request_.top > 0 && order.size() > static_cast<size_t>(request_.top)) order.resize(request_.top);
    std::set<std::string> warnings;
    for (const PricedLayout* ranked : order) answer_.layouts.push_back(Describe(*ranked, warnings));
    WarnOfPeak(profile_, book_, warnings);
    WarnOfNotPriced(warnings);
    answer_.warnings.assign(warnings.begin(), warnings.end());
    return std::move(answer_);
  }

  RankedLayout Describe(const PricedLayout& ranked, std::set<std::string>& warnings) {
    const MoePlans* const plans =
        request_.model.moe_layers() > 0 ? &moe_.at(QuestionOf(request_, ranked.point)) : nullptr;
    return planner::Describe(request_, profile_, ranked, plans, book_, warnings);
  }

  const LayoutRequest& request_;
  Profile profile_;
  const LayoutOptions& options_;
  const StopSignals stop_;
  CostBook book_;
  std::vector<Candidate> candidates_;  // By rising bound.
  size_t next_ = 0;                    // Of them: those before it are priced, or were ruled out.
  std::map<MoeQuestion, MoePlans> moe_;
  std::map<Identity, PricedLayout> best_;
  double last_step_s_ = kInfinity;         // LastStepS of them.
  double least_bytes_ = kInfinity;         // Of the points that do not fit.
  std::map<std::string, int> not_priced_;  // By why.
  std::string reason_;
  LayoutAnswer answer_;
};

}  // namespace

StatusOr<LayoutAnswer> RankLayouts(const LayoutRequest& request, const Profile& profile, const LayoutOptions& options) {
  RETURN_IF_ERROR(CheckPrecision(request, profile));
  RETURN_IF_ERROR(CheckLayoutRequest(request, profile.cluster));
  return LayoutSearch(request, profile, options).Run();
}

}  // namespace moeplan::planner
