#include "planner/lancet/price_step.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/links/fitted_links.h"
#include "models/timeline/task_cost.h"
#include "models/timeline/timeline.h"

namespace moeplan::planner {
namespace {

constexpr std::array<double, kContentions> kNotSlowed = {1, 1, 1, 1, 1};

// In a step tasks of no kind that layers have compute, too.
Contention ImposedIn(const Task& task) {
  return task.kind == TaskKind::kOther ? Contention::kWithExpertGemm : Imposed(task);
}

bool CrossesNetwork(const StepTask& step) {
  const auto* key = step.work.empty() ? nullptr : std::get_if<CollectiveKey>(&step.work.front().key);
  return key != nullptr && Spans(key->group);
}

}  // namespace

StepPricer::StepPricer(const TimedGraph& graph, const Profile* profile) : graph_(graph), profile_(profile) {
  if (profile == nullptr) return;
  pricer_.emplace(*profile);
  for (const CollectiveModel& entry : profile->collectives) {
    has_contention_ = has_contention_ || entry.key.contention != Contention::kNone;
  }
  for (const KernelModel& entry : profile->kernels) {
    has_contention_ = has_contention_ || entry.key.contention != Contention::kNone;
    const bool product = entry.key.kernel == Kernel::kExpertGemm && entry.key.contention == Contention::kNone;
    if (product_ || !product || !std::isfinite(entry.model.size_high)) continue;
    product_ = entry.key;
    product_size_ = entry.model.size_high;
  }
}

std::vector<TaskPrice> StepPricer::Price(const StepTasks& tasks) {
  std::vector<TaskPrice> prices(tasks.tasks.size());
  for (size_t i = 0; i < prices.size(); ++i) {
    const Task& task = tasks.graph.tasks[i];
    prices[i].time_s = prices[i].low_s = prices[i].high_s = AloneS(task, tasks.tasks[i]);
    const Contention imposes = TradesHeads(tasks.tasks[i]) ? Contention::kWithAllGather : ImposedIn(task);
    prices[i].imposes = prices[i].time_s > 0 ? imposes : Contention::kNone;
    if (has_contention_) prices[i].slowdown = SlowdownsOf(task, tasks.tasks[i]);
  }
  if (profile_ != nullptr) ShareNetwork(tasks, prices);
  return prices;
}

void StepPricer::ShareNetwork(const StepTasks& tasks, std::vector<TaskPrice>& prices) {
  const auto shares = [&](size_t i) {
    const bool measured =
        has_contention_ && tasks.graph.tasks[i].kind == TaskKind::kAllToAll && !TradesHeads(tasks.tasks[i]);
    return prices[i].time_s > 0 && !measured && CrossesNetwork(tasks.tasks[i]);
  };
  std::set<StreamKind> streams;
  for (size_t i = 0; i < prices.size(); ++i) {
    if (shares(i)) streams.insert(tasks.graph.tasks[i].stream);
  }
  if (streams.size() < 2) return;
  if (!links_) links_ = LineOf(*profile_);
  if (!*links_) return;
  const LinkLine& line = **links_;
  constexpr auto kNetwork = static_cast<size_t>(LinkClass::kInterNode);
  for (size_t i = 0; i < prices.size(); ++i) {
    if (!shares(i)) continue;
    const Work& work = tasks.tasks[i].work.front();
    const std::optional<LinkLoad> load = LoadOf(std::get<CollectiveKey>(work.key), line.use.route);
    if (!load) continue;
    const double busy_s = line.costs.beta_s_per_byte[kNetwork] * load->shares[kNetwork] * work.size;
    prices[i].network_share = std::min(1.0, busy_s / prices[i].time_s);
    shares_network_ = shares_network_ || busy_s > 0;
  }
}

bool StepPricer::TradesHeads(const StepTask& step) const {
  return graph_.instructions[step.instruction].op == InstructionOp::kHeadExchange;
}

double StepPricer::AloneS(const Task&, const StepTask& step) {
  if (step.role == StepRole::kPart) return graph_.instructions[step.instruction].PartS(step.parts, step.axis);
  if (!pricer_) return 0;
  double time_s = 0;
  for (const Work& work : step.work) time_s += pricer_->Price(work.key, work.size).time_s;
  return time_s;
}

const StepPricer::Slowdowns& StepPricer::SlowdownsOf(const Task& task, const StepTask& step) {
  CostKey key;
  double size = 0;
  if (Communicates(task.kind)) {
    if (step.work.empty()) return kNotSlowed;
    key = step.work.front().key;
    size = step.work.front().size;
  } else {
    if (!product_) return kNotSlowed;
    key = *product_;
    size = product_size_;
  }
  const auto [place, fresh] = known_.try_emplace({key, size});
  if (fresh) place->second = LookUp(key, size);
  return place->second;
}

StepPricer::Slowdowns StepPricer::LookUp(const CostKey& key, double size) {
  Slowdowns slowdowns = kNotSlowed;
  if (!pricer_->Has(key)) return slowdowns;
  for (int kind = 1; kind < kContentions; ++kind) {
    slowdowns[kind] = pricer_->Slowdown(key, static_cast<Contention>(kind), size).mid;
  }
  return slowdowns;
}

}  // namespace moeplan::planner
