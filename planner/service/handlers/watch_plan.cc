#include "planner/service/handlers/watch_plan.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "models/cost/operation.h"
#include "models/routing/expert_load.h"
#include "models/text.h"
#include "planner/search/price_plan.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/wording.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr double kDefaultMinGain = 0.05;

double MinGainOf(const v1::WatchPlanRequest& request) {
  return request.has_min_gain() ? request.min_gain() : kDefaultMinGain;
}

std::string NameOf(const v1::PlanResponse& answer) {
  return StrCat("profile ", answer.profile_name(), " version ", answer.profile_version());
}

// What each cost of the plan takes by itself, all of its tasks together.
std::map<CostKey, double> CostsOf(const planner::Candidate& candidate) {
  std::map<CostKey, double> costs;
  for (const TaskPrice& price : candidate.prices.tasks) {
    if (price.key >= 0) costs[candidate.prices.keys[price.key]] += price.time_s;
  }
  return costs;
}

// "; since version 3, ALL_TO_ALL groupSize 4 ranksPerNode 2 takes 1.50 times as long": the cost of the held plan that
// has changed by most seconds. Empty where none has by a hundredth, or the old version is not known.
std::string WhatChanged(const Store& store, const HeldPlan& held, const Workload& resolved, const Profile& profile,
                        const planner::Candidate& now) {
  constexpr double kLeastChange = 0.01;
  if (held.profile_version < 1 || held.profile_name != profile.name) return "";
  const StatusOr<Profile> old = store.LoadProfile({.name = held.profile_name, .version = held.profile_version});
  if (!old.ok()) return "";
  const StatusOr<planner::Candidate> then = planner::PriceFilledIn(held.plan, resolved, *old);
  if (!then.ok()) return "";
  const std::map<CostKey, double> before = CostsOf(*then);
  double most_s = 0, ratio = 1;
  std::string cost;
  for (const auto& [key, time_s] : CostsOf(now)) {
    const auto found = before.find(key);
    if (found == before.end() || !(found->second > 0) || std::abs(time_s - found->second) <= most_s) continue;
    most_s = std::abs(time_s - found->second);
    ratio = time_s / found->second;
    cost = Describe(key);
  }
  if (std::abs(ratio - 1) < kLeastChange) return "";
  char times[32];
  std::snprintf(times, sizeof times, "%.2f", ratio);
  return StrCat("; since version ", held.profile_version, ", ", cost, " takes ", times, " times as long");
}

v1::WatchPlanResponse ResponseOf(const v1::PlanResponse& fresh, std::string why) {
  v1::WatchPlanResponse response;
  *response.mutable_plan() = fresh;
  response.set_why(std::move(why));
  return response;
}

}  // namespace

Status ValidateWatch(const v1::WatchPlanRequest& request) {
  const auto refuse = [](const char* field, const char* found, const char* expected) {
    return moeplan::error::Mismatch(field, found, expected);
  };
  if (!request.request().has_workload()) return refuse("request.workload", "nothing", "an object");
  if (request.request().has_graph()) return refuse("request.graph", "a value", "none: workloads can be watched");
  if (request.request().has_profile()) return refuse("request.profile", "a value", "none: stored profiles change");
  if (request.request().has_profile_version()) {
    return refuse("request.profileVersion", "a value", "none: the newest version counts");
  }
  if (!(MinGainOf(request) >= 0 && MinGainOf(request) <= 1)) {
    return moeplan::error::Mismatch("minGain", StrCat(request.min_gain()), "0 to 1");
  }
  return request.has_held() ? HeldPlanFromProto(request.held(), "held").status() : OkStatus();
}

StatusOr<std::optional<v1::WatchPlanResponse>> Reconsider(const Environment& environment,
                                                          const v1::WatchPlanRequest& request,
                                                          const v1::PlanResponse& fresh) {
  if (!request.has_held()) return ResponseOf(fresh, StrCat("the best plan of ", NameOf(fresh)));
  ASSIGN_OR_RETURN(const HeldPlan held, HeldPlanFromProto(request.held(), "held"));
  ASSIGN_OR_RETURN(const HeldPlan best, HeldPlanFromProto(fresh, "plan"));
  ASSIGN_OR_RETURN(const Profile profile,
                   environment.store.LoadProfile({.name = fresh.profile_name(), .version = fresh.profile_version()}));
  ASSIGN_OR_RETURN(Workload resolved, ResolveWorkload(best.workload, profile.cluster));
  resolved = WithExpectedSlots(std::move(resolved));
  const StatusOr<planner::Candidate> now = planner::PriceFilledIn(held.plan, resolved, profile);
  if (!now.ok()) {
    return ResponseOf(fresh, StrCat("the best plan of ", NameOf(fresh),
                                    ", which cannot price the held one: ", now.status().message()));
  }
  const double held_s = now->time_s(), best_s = best.plan.predicted_time_s;
  const double gain = 1 - best_s / held_s;
  if (!(gain > 0 && gain >= MinGainOf(request))) return std::nullopt;
  v1::WatchPlanResponse response = ResponseOf(
      fresh, StrCat(NameOf(fresh), ": ", planner::Describe(best.plan.knobs), " takes ", planner::Milliseconds(best_s),
                    ", the held ", planner::Describe(held.plan.knobs), " ", planner::Milliseconds(held_s),
                    WhatChanged(environment.store, held, resolved, profile, *now)));
  response.set_held_time_s(held_s);
  return response;
}

}  // namespace moeplan::service
