#include "agent/compare/settle.h"

#include <algorithm>
#include <utility>

#include "agent/compare/run_plan.h"
#include "models/check.h"
#include "models/fit/statistics.h"
#include "models/measurement/cost_key.h"
#include "models/schedule/chunk_units.h"
#include "models/text.h"
#include "proto/enum_names.h"

namespace moeplan::agent {
namespace {

// Where times repeat, they differ by what rounding the clock leaves.
constexpr double kSameTime = 1e-9;

bool IntervalsMeet(const Plan& chosen, const Plan& other) {
  const bool known = chosen.low_s < chosen.high_s || other.low_s < other.high_s;
  return known && other.low_s <= chosen.high_s;
}

v1::MeasuredCandidate ToMessage(Contender contender, double measured_s) {
  contender.measured_s = measured_s;
  return ToMessage(contender);
}

// By how much `other_s` is longer, round by round.
std::vector<double> LeadsOf(const std::vector<double>& times_s, const std::vector<double>& other_s) {
  std::vector<double> leads;
  for (size_t round = 0; round < times_s.size(); ++round) leads.push_back(other_s[round] / times_s[round] - 1);
  return leads;
}

std::string Percent(double share) { return StrCat(BriefNumber(100 * share), " %"); }

}  // namespace

std::optional<size_t> NearTieOf(const std::vector<Contender>& contenders) {
  std::optional<size_t> runner_up;
  for (size_t i = 1; i < contenders.size(); ++i) {
    if (contenders[i].ready == contenders[0].ready) continue;
    const bool other_family = contenders[i].plan.knobs.family != contenders[0].plan.knobs.family;
    if (!runner_up || other_family) runner_up = i;
    if (other_family) break;
  }
  if (!runner_up || !IntervalsMeet(contenders[0].plan, contenders[*runner_up].plan)) return std::nullopt;
  return runner_up;
}

v1::Settlement Settle(const Contest& contest) {
  const std::vector<size_t> entrants = contest.Entrants();
  MOEPLAN_CHECK(entrants.size() >= 2 && contest.final_times_s.size() == entrants.size());
  std::vector<double> medians_s;
  for (const std::vector<double>& times_s : contest.final_times_s) medians_s.push_back(Median(times_s));
  size_t fastest = std::ranges::min_element(medians_s) - medians_s.begin();
  size_t other = fastest > 0 ? 0 : std::min_element(medians_s.begin() + 1, medians_s.end()) - medians_s.begin();
  std::vector<double> leads = LeadsOf(contest.final_times_s[fastest], contest.final_times_s[other]);
  if (Median(leads) < 0) {  // Round by round it is the other way about.
    std::swap(fastest, other);
    leads = LeadsOf(contest.final_times_s[fastest], contest.final_times_s[other]);
  }
  MedianInterval interval = MedianInterval90(leads);
  if (contest.repeats_times) interval = {.low = Median(leads), .high = Median(leads)};
  v1::Settlement settlement;
  *settlement.mutable_fastest() = ToMessage(contest.contenders[entrants[fastest]], medians_s[fastest]);
  *settlement.mutable_other() = ToMessage(contest.contenders[entrants[other]], medians_s[other]);
  settlement.set_lead(Median(leads));
  settlement.set_lead_low(interval.low);
  settlement.set_lead_high(interval.high);
  settlement.set_rounds(static_cast<int>(leads.size()));
  settlement.set_runs(contest.repeats_times ? 1 : kRunsOfFinalRound);
  settlement.set_settled(interval.low > (contest.repeats_times ? kSameTime : 0));
  return settlement;
}

std::string Label(const v1::MeasuredCandidate& candidate) {
  std::string text = EnumNameOf(candidate.schedule());
  if (candidate.all_to_all() != v1::AllToAll::DIRECT) text += StrCat(" ", EnumNameOf(candidate.all_to_all()));
  if (candidate.communication_ctas() > 0) text += StrCat(" ", candidate.communication_ctas(), " CTAs");
  if (candidate.chunks() > 1) text += StrCat(" N=", candidate.chunks());
  if (candidate.partition_degree() > 1) text += StrCat(" r=", candidate.partition_degree());
  if (candidate.chunk_shares_size() > 0) {
    text += StrCat(" ", RatioOf({candidate.chunk_shares().begin(), candidate.chunk_shares().end()}));
  }
  if (candidate.overlapped_gather()) text += " overlapped";
  if (candidate.dispatch_codec() != v1::Codec::NONE)
    text += StrCat(" ", EnumNameOf(candidate.dispatch_codec()), " out");
  if (candidate.combine_codec() != v1::Codec::NONE) text += StrCat(" ", EnumNameOf(candidate.combine_codec()), " back");
  return text;
}

std::string SettlementSentence(const v1::ValidatedWorkload& workload) {
  if (!workload.has_settlement()) return "";
  const v1::Settlement& settlement = workload.settlement();
  const std::string fastest = Label(settlement.fastest()), other = Label(settlement.other());
  if (settlement.rounds() == 1 && settlement.runs() == 1) {
    const std::string verdict = settlement.settled() ? StrCat("is ahead of ", other, " by ", Percent(settlement.lead()))
                                                     : StrCat("takes as long as ", other);
    return StrCat(workload.name(), ": predictions could not tell the fastest; here, where runs repeat exactly, ",
                  fastest, " ", verdict);
  }
  const std::string rounds = StrCat(settlement.rounds(), " rounds of ", settlement.runs(), " runs each");
  const std::string interval =
      StrCat("90 % interval ", Percent(settlement.lead_low()), " to ", Percent(settlement.lead_high()));
  if (!settlement.settled()) {
    return StrCat(workload.name(), ": predictions could not tell the fastest, and ", rounds,
                  " leave it undecided: ", fastest, " and ", other, " differ by ", Percent(settlement.lead()),
                  ", within the noise (", interval, ")");
  }
  return StrCat(workload.name(), ": predictions could not tell the fastest; ", rounds, " settle it: ", fastest,
                ", ahead of ", other, " by ", Percent(settlement.lead()), " (", interval, ")");
}

}  // namespace moeplan::agent
