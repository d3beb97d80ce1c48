// The costs that the papers' formulas name, looked up for one workload.
//
// A missing entry reads as 0 and is remembered, so that a rule can write its formulas down as printed and ask once, at
// the end, whether they held.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "models/cost/profile.h"
#include "models/measurement/cost_key.h"
#include "models/status.h"
#include "models/timeline/pipeline_time.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"
#include "planner/rules/explained_rule.h"

namespace moeplan::planner {

// The error of a rule that was asked to stop.
Status StoppedBeforeAnswer(std::string_view rule);

class RuleCosts {
 public:
  // All are borrowed; `explained` may be null: nothing is written down.
  RuleCosts(const Workload& workload, const Profile& profile, ExplainedRule* explained = nullptr)
      : workload_(workload),
        profile_(profile),
        gpus_per_node_(profile.cluster.gpus_per_node),
        pricer_(profile),
        explained_(explained) {}

  // ---- What a formula asks. `symbol` is how it writes the term, and lives for ever.

  // Seconds of a DIRECT collective over a group; 0 for a group of one rank.
  double TimeS(Collective collective, Group group, double bytes, const char* symbol) {
    return TimeS(KeyOver(collective, group), bytes, symbol);
  }

  // Of what is asked over and over, under its key.
  double TimeS(const CostKey& key, double bytes, const char* symbol) {
    const double time_s = pricer_.Price(key, bytes).time_s;
    if (writing_ != nullptr) WriteDown(symbol, key, bytes, time_s);
    return time_s;
  }

  // As many times that.
  double TimesS(double count, Collective collective, Group group, double bytes, const char* symbol) {
    const double time_s = TimeS(collective, group, bytes, symbol);
    if (writing_ != nullptr) writing_->terms.back().count = count;
    return count * time_s;
  }

  // PipelineTime of stages that are sums of the terms last asked, `terms` of them each, in order.
  template <size_t kStages>
  double PipelineS(const std::array<double, kStages>& stage_s, const std::array<int, kStages>& terms, int chunks) {
    if (writing_ != nullptr) CountStages(stage_s, terms, chunks);
    return PipelineTime(stage_s, chunks);
  }

  // Of a schedule: every term so many times.
  void CountEach(int count) {
    if (writing_ == nullptr) return;
    for (RuleTerm& term : writing_->terms) term.count = count;
  }

  // ---- What is explained.

  bool explains() const { return explained_ != nullptr; }

  // What `time_s()` returns; its terms are those of the time `name`.
  template <typename Time>
  double Named(const char* name, const char* formula, const Time& time_s) {
    if (!explains()) return time_s();
    writing_ = &explained_->times.emplace_back(RuleTime{.name = name, .formula = formula});
    const double result_s = time_s();
    std::exchange(writing_, nullptr)->time_s = result_s;
    return result_s;
  }

  // Only where something is explained.
  void Define(std::string definition) { explained_->definitions.push_back(std::move(definition)); }
  void Choose(const std::string& name) {
    if (!explains()) return;
    for (RuleTime& time : explained_->times) time.chosen = time.name == name;
  }

  // ---- The keys.

  CostKey KeyOver(Collective collective, Group group, Contention contention = Contention::kNone) const {
    return WithContention(Key(collective, group), contention);
  }
  CostKey CopyKey(Contention contention = Contention::kNone) const {
    return WithContention(KeyOf(Kernel::kDeviceCopy, workload_.layer, workload_.layout), contention);
  }

  // Seconds of a kernel that the rule cannot do without.
  double KernelS(Kernel kernel, double size, const char* symbol) {
    const CostKey key = KeyOf(kernel, workload_.layer, workload_.layout);
    if (!pricer_.Has(key)) missing_kernels_.insert(Essential(key));
    return pricer_.Has(key) ? TimeS(key, size, symbol) : 0;
  }

  bool Has(Collective collective, Group group) const { return pricer_.Has(Key(collective, group)); }
  bool HasCopy() const { return pricer_.Has(CopyKey()); }

  // OK, or kNotFound with the keys that were asked in vain and the command that would measure them.
  Status Missing() const {
    std::vector<CostKey> missing = pricer_.missing();
    missing.insert(missing.end(), missing_kernels_.begin(), missing_kernels_.end());
    return missing.empty() ? OkStatus() : NotFound(MissingReason(missing, workload_.layout));
  }
  const PriceNotes& notes() const { return pricer_.notes(); }

 private:
  CostKey Key(Collective collective, Group group) const {
    CollectiveKey key = KeyOf(collective, group, workload_.layout, gpus_per_node_);
    key.bytes_per_element = workload_.layer.bytes_per_element;
    return key;
  }

  void WriteDown(const char* symbol, const CostKey& key, double size, double time_s);
  void CountStages(std::span<const double> stage_s, std::span<const int> terms, int chunks);

  const Workload& workload_;
  const Profile& profile_;
  int gpus_per_node_;
  Pricer pricer_;
  std::set<CostKey> missing_kernels_;
  ExplainedRule* const explained_;
  RuleTime* writing_ = nullptr;  // The time whose terms are being asked; null: none is explained.
};

}  // namespace moeplan::planner
