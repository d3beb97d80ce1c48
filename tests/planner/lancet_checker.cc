#include "tests/planner/lancet_checker.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

namespace moeplan {
namespace {

using nlohmann::json;

constexpr double kRounding = 1e-9;

bool Near(double a, double b) { return std::abs(a - b) <= kRounding * std::max({1e-12, std::abs(a), std::abs(b)}); }

// "id#2" to 2; "id" to 0. Ids of the tests have no '#'.
int PartOf(const std::string& launch) {
  const size_t mark = launch.find('#');
  return mark == std::string::npos ? 0 : std::stoi(launch.substr(mark + 1));
}
std::string IdOf(const std::string& launch) { return launch.substr(0, launch.find('#')); }

}  // namespace

LancetChecker::LancetChecker(const json& graph) : graph_(graph) {
  std::map<std::string, int> produced_by;
  for (const json& one : graph.at("instructions")) {
    const int i = static_cast<int>(instructions_.size());
    by_id_[one.at("id")] = i;
    ids_.push_back(one.at("id"));
    ops_.push_back(one.at("op"));
    forward_.push_back(one.value("phase", "FORWARD") == "FORWARD");
    weight_gradient_.push_back(one.value("weightGradient", false));
    forward_of_.push_back(one.contains("forward") ? by_id_.at(one.at("forward")) : -1);
    for (const std::string& tensor : one.value("outputs", std::vector<std::string>())) produced_by[tensor] = i;
    const std::vector<double> listed = one.value("partTimesS", std::vector<double>());
    const double whole_s = one.contains("timeS") ? one["timeS"].get<double>() : listed.at(0);
    std::vector<double>& part_s = part_s_.emplace_back(1, whole_s);
    for (int k = 2; k <= graph.value("maxParts", 8); ++k) {
      part_s.push_back(k <= static_cast<int>(listed.size()) ? listed[k - 1] : whole_s / k);
    }
    instructions_.push_back(one);
  }
  for (const json& reader : instructions_) {
    std::vector<int>& producers = producers_.emplace_back();
    for (const std::string& tensor : reader.value("inputs", std::vector<std::string>())) {
      if (const auto producer = produced_by.find(tensor); producer != produced_by.end()) {
        producers.push_back(producer->second);
      }
    }
  }
}

double LancetChecker::PartS(int instruction, int parts) const { return part_s_[instruction][parts - 1]; }

bool LancetChecker::Depends(int later, int earlier) const {
  std::vector<bool> seen(size(), false);
  std::function<bool(int)> reaches = [&](int i) {
    if (i == earlier) return true;
    if (seen[i]) return false;
    seen[i] = true;
    const std::vector<int> producers = ProducersOf(i);
    return std::ranges::any_of(producers, reaches);
  };
  return reaches(later);
}

std::vector<PlainSchedule::Range> LancetChecker::RangeOfEach(const PlainSchedule& schedule) const {
  std::vector<PlainSchedule::Range> each(size(), {.first = -1, .last = -1, .parts = 1});
  for (const auto& range : schedule.ranges) {
    std::fill(each.begin() + range.first, each.begin() + range.last + 1, range);
  }
  for (const std::string& launch : schedule.order) {
    const int i = by_id_.at(IdOf(launch));
    if (Forward(i) || PartOf(launch) == 0) continue;
    each[i] = each[forward_of_[i]];
    each[i].first += size();  // Another than the range itself.
  }
  return each;
}

PlainSchedule LancetChecker::Given() const { return Build({}, std::vector<int>(size(), -1)); }

double LancetChecker::ReplayS(const PlainSchedule& schedule) const {
  const std::vector<PlainSchedule::Range> range_of = RangeOfEach(schedule);
  struct Launched {
    int instruction, part;
  };
  const auto stream_of = [&](int i) {
    const std::string op = Op(i);
    if (op == "ALL_TO_ALL") return 1;
    return op == "ALL_GATHER" || op == "REDUCE_SCATTER" || op == "ALL_REDUCE" ? 2 : 0;
  };
  std::vector<Launched> queues[3];
  for (const std::string& launch : schedule.order) {
    const int i = by_id_.at(IdOf(launch));
    queues[stream_of(i)].push_back({i, PartOf(launch)});
  }
  size_t next[3] = {0, 0, 0};
  double free_s[3] = {0, 0, 0};
  std::vector<std::vector<double>> end_s(size());  // By part; negative: it has not run.
  for (int i = 0; i < size(); ++i) end_s[i].assign(range_of[i].parts + 1, -1);
  for (bool ran = true; ran;) {
    ran = false;
    for (const int stream : {0, 1, 2}) {
      if (next[stream] == queues[stream].size()) continue;
      const auto [i, part] = queues[stream][next[stream]];
      double start_s = free_s[stream];
      bool ready = true;
      for (const int producer : ProducersOf(i)) {
        const bool cut = range_of[producer].parts > 1;
        const bool same = cut && range_of[i].first == range_of[producer].first;
        for (int j = cut ? 1 : 0; j <= (cut ? range_of[producer].parts : 0); ++j) {
          if (same && j != part) continue;
          ready = ready && end_s[producer][j] >= 0;
          start_s = std::max(start_s, end_s[producer][j]);
        }
      }
      if (!ready) continue;
      free_s[stream] = end_s[i][part] = start_s + PartS(i, range_of[i].parts);
      ++next[stream];
      ran = true;
    }
  }
  for (const int stream : {0, 1, 2}) {
    if (next[stream] < queues[stream].size()) return -1;
  }
  return std::max({free_s[0], free_s[1], free_s[2]});
}

// ---- Ranges.

bool LancetChecker::AxesFit(int first, int last) const {
  const auto irregular_by_nature = [&](int i) {
    return Op(i) == "DISPATCH" || Op(i) == "ALL_TO_ALL" || Op(i) == "EXPERT";
  };
  bool only_experts = true;
  for (int i = first; i <= last; ++i) only_experts = only_experts && (Op(i) == "ALL_TO_ALL" || Op(i) == "EXPERT");
  if (only_experts) return true;
  std::map<int, std::string> axis;
  for (int i = first; i <= last; ++i) {
    std::multiset<std::string> read;
    for (const int producer : ProducersOf(i)) {
      if (producer >= first) {
        read.insert(axis[producer]);
      } else {
        if (irregular_by_nature(producer)) return false;
        read.insert("sample");
      }
    }
    const bool all_samples = read.count("sample") > 0 && read.count("irregular") == 0;
    const bool all_irregular = read.count("irregular") > 0 && read.count("sample") == 0;
    static const std::set<std::string> kOnSamples = {"MATMUL", "ELEMENTWISE", "LAYER_NORM", "SOFTMAX", "ATTENTION"};
    const std::string op = Op(i), gate = instructions_[i].value("gate", "TOP_K");
    bool fits = false;
    if (kOnSamples.contains(op)) fits = all_samples, axis[i] = "sample";
    if (op == "GATE") fits = all_samples && gate != "BATCH_PRIORITIZED" && gate != "EXPERT_CHOICE", axis[i] = "sample";
    if (op == "DISPATCH") fits = all_samples, axis[i] = "irregular";
    if (op == "ALL_TO_ALL" || op == "EXPERT") fits = all_irregular, axis[i] = "irregular";
    if (op == "COMBINE") fits = read.count("irregular") > 0, axis[i] = "sample";
    if (!fits) return false;
  }
  return true;
}

bool LancetChecker::LooksAtWholeBatch(int i) const {
  const std::string gate = instructions_[i].value("gate", "TOP_K");
  return Op(i) == "GATE" && (gate == "BATCH_PRIORITIZED" || gate == "EXPERT_CHOICE");
}

bool LancetChecker::WayBackMayBeCut(int first, int last) const {
  for (int between = 0; between < size(); ++between) {
    if (GoesBackOver(between, first, last)) continue;
    bool needs = false, needed = false;
    for (int i = 0; i < size(); ++i) {
      if (!GoesBackOver(i, first, last)) continue;
      needs = needs || Depends(between, i);
      needed = needed || Depends(i, between);
    }
    if (needs && needed) return false;
  }
  return true;
}

// Whether an instruction and the one before it are of one layer, or between those of one.
bool LancetChecker::InsideLayer(int i) const {
  std::set<std::string> before;
  for (int j = 0; j < i; ++j) before.insert(instructions_[j].value("layer", std::string()));
  for (int j = i; j < size(); ++j) {
    const std::string layer = instructions_[j].value("layer", std::string());
    if (!layer.empty() && before.contains(layer)) return true;
  }
  return false;
}

bool LancetChecker::OnBorders(int first, int last) const {
  const double group_s = graph_.value("groupS", 0.0);
  std::set<int> starts, ends;
  double sum_s = 0;
  bool open = false, full = false;
  for (int i = 0; i < size(); ++i) {
    if (!Forward(i)) continue;
    const bool whole = LooksAtWholeBatch(i);
    if (whole && open && !InsideLayer(i)) ends.insert(i - 1), open = false;
    if (!open) starts.insert(i), sum_s = 0, full = false;
    open = true;
    sum_s += PartS(i, 1);
    full = full || whole || sum_s >= group_s * (1 - 1e-12);
    const bool last = i + 1 == size() || !Forward(i + 1);
    if (last || (full && !InsideLayer(i + 1))) ends.insert(i), open = false;
  }
  return starts.contains(first) && ends.contains(last);
}

bool LancetChecker::MayBeCut(int first, int last) const {
  double sum_s = 0;
  for (int i = first; i <= last; ++i) {
    if (!Forward(i)) return false;
    sum_s += PartS(i, 1);
  }
  const double most_s = graph_.value("maxRangeS", 0.0);
  if (most_s > 0 && sum_s > most_s * (1 + 1e-12)) return false;
  return OnBorders(first, last) && AxesFit(first, last) && WayBackMayBeCut(first, last);
}

bool LancetChecker::MayRunBeside(int gradient, int exchange) const {
  return IsWeightGradient(gradient) && !Forward(gradient) && IsBackwardExchange(exchange) &&
         !Depends(gradient, exchange) && !Depends(exchange, gradient);
}

// ---- The answer.

std::string LancetChecker::Complaint(const json& answer) const {
  for (const char* absent : {"workload", "best", "search"}) {
    if (answer.contains(absent)) return std::string(absent) + " is there";
  }
  const json& lancet = answer.at("rules").at("lancet");
  PlainSchedule schedule;
  int end = 0;
  for (const json& one : lancet.at("partitions")) {
    const int first = by_id_.at(one.at("first")), last = by_id_.at(one.at("last")), parts = one.at("parts");
    const std::string name = Id(first) + " ... " + Id(last);
    if (first < end || last < first || parts < 2 || parts > graph_.value("maxParts", 8)) return name + ": out of place";
    if (!MayBeCut(first, last)) return name + ": may not be cut";
    end = last + 1;
    schedule.ranges.push_back({first, last, parts});
    PlainSchedule alone = Build({schedule.ranges.back()}, std::vector<int>(size(), -1));
    std::erase_if(alone.order,
                  [&](const std::string& launch) { return PartOf(launch) == 0 || !Forward(by_id_.at(IdOf(launch))); });
    json only = graph_;  // What comes from outside is there.
    for (int i = 0; i < size(); ++i) {
      if (i < first || i > last) only["instructions"][i]["outputs"] = json::array();
    }
    const LancetChecker range_only(only);
    if (!Near(range_only.ReplayS(alone), one.at("timeS"))) return name + ": another timeS";
  }
  for (const json& launch : lancet.at("order")) schedule.order.push_back(launch);
  std::set<std::string> placed;
  std::vector<int> beside(size(), -1);
  for (const json& one : lancet.at("weightGradients")) {
    const int gradient = by_id_.at(one.at("instruction")), exchange = by_id_.at(one.at("allToAll"));
    if (!placed.insert(Id(gradient)).second) return Id(gradient) + ": placed twice";
    if (!MayRunBeside(gradient, exchange)) return Id(gradient) + ": may not run beside " + Id(exchange);
    beside[gradient] = exchange;
  }
  const std::vector<std::string> built = Build(schedule.ranges, beside).order;
  std::vector<std::string> expected = built, found = schedule.order;
  std::ranges::sort(expected);
  std::ranges::sort(found);
  if (expected != found) return "order does not have every launch once";
  if (!IsTopological(schedule)) return "order launches something before what it reads";
  if (built != schedule.order) return "order is not that of ranges and places";
  if (!Near(ReplayS(schedule), lancet.at("timeS"))) return "timeS is not the end of order";
  if (!Near(ReplayS(Given()), lancet.at("unscheduledTimeS")))
    return "unscheduledTimeS is not the end of the given order";
  if (lancet.at("timeS") > lancet.at("unscheduledTimeS")) return "slower than the given order";
  return {};
}

bool LancetChecker::IsTopological(const PlainSchedule& schedule) const {
  const std::vector<PlainSchedule::Range> range_of = RangeOfEach(schedule);
  std::map<std::string, size_t> at;
  for (size_t i = 0; i < schedule.order.size(); ++i) at[schedule.order[i]] = i;
  for (const std::string& launch : schedule.order) {
    const int i = by_id_.at(IdOf(launch));
    for (const int producer : ProducersOf(i)) {
      const bool cut = range_of[producer].parts > 1;
      const bool same = cut && range_of[i].first == range_of[producer].first;
      for (int part = 1; part <= range_of[producer].parts; ++part) {
        if (same && part != PartOf(launch)) continue;
        if (at.at(cut ? Id(producer) + "#" + std::to_string(part) : Id(producer)) > at[launch]) return false;
      }
    }
  }
  return true;
}

// ---- Launch orders, and brute force.

// Everything keeps its place but for what the places ask: a weight gradient comes right after its all-to-all, several
// of one in the given order; what it needs, when given later, comes just before it. A range is launched as one, stage
// by stage. Of what could come next that with the smallest place comes first.
PlainSchedule LancetChecker::Build(const std::vector<PlainSchedule::Range>& ranges,
                                   const std::vector<int>& beside) const {
  std::vector<int> unit(size());                     // The first of what is launched as one, or the instruction.
  std::map<int, std::vector<std::string>> launches;  // Of a unit of several.
  for (int i = 0; i < size(); ++i) unit[i] = i;
  for (const auto& range : ranges) {
    std::vector<int> way_there, way_back;
    for (int i = 0; i < size(); ++i) {
      if (i >= range.first && i <= range.last) way_there.push_back(i);
      if (GoesBackOver(i, range.first, range.last) && beside[i] < 0) way_back.push_back(i);
    }
    for (const std::vector<int>& together : {way_there, way_back}) {
      for (const int i : together) unit[i] = together.front();
      if (!together.empty()) launches[together.front()] = InParts(together, range.parts);
    }
  }
  // A weight gradient comes behind the first part of an all-to-all that goes back in parts, if all parts that it needs
  // are launched by then, none of them covers something itself, and nothing of what goes back in parts needs it.
  for (int i = 0; i < size(); ++i) {
    if (beside[i] < 0 || !launches.contains(unit[beside[i]])) continue;
    std::vector<std::string>& order = launches[unit[beside[i]]];
    auto behind = std::ranges::find(order, Id(beside[i]) + "#1") + 1;
    bool there = true;
    for (const int producer : ProducersOf(i)) {
      if (unit[producer] != unit[beside[i]]) continue;
      there = there && beside[producer] < 0;
      for (auto later = behind - 1; later != order.end(); ++later) there = there && IdOf(*later) != Id(producer);
    }
    for (int reader = 0; reader < size(); ++reader) {
      const std::vector<int>& read = ProducersOf(reader);
      if (unit[reader] == unit[beside[i]]) there = there && std::ranges::find(read, i) == read.end();
    }
    if (!there) continue;
    while (behind != order.end() && PartOf(*behind) == 0) ++behind;
    order.insert(behind, Id(i));
    unit[i] = unit[beside[i]];
  }
  std::vector<std::array<int, 3>> place(size());  // In the given order; 1 when behind what stands there; its own.
  for (int i = 0; i < size(); ++i) {
    const bool behind = beside[i] >= 0 && unit[i] == i;
    place[i] = {behind ? unit[beside[i]] : i, behind ? 1 : 0, i};
  }
  for (int reader = size(); reader-- > 0;) {
    const std::array<int, 3>& own = place[unit[reader]];
    for (const int producer : ProducersOf(reader)) {
      if (unit[producer] == unit[reader]) continue;
      std::array<int, 3>& needed = place[unit[producer]];
      if (own[0] < needed[0]) needed = {own[0], own[1], needed[2]};
    }
  }
  PlainSchedule schedule = {.ranges = ranges};
  std::vector<bool> launched(size(), false);
  const auto may_come = [&](int first) {
    for (int i = 0; i < size(); ++i) {
      if (unit[i] != first) continue;
      if (beside[i] >= 0 && unit[beside[i]] != first && !launched[unit[beside[i]]]) return false;
      for (const int producer : ProducersOf(i)) {
        if (unit[producer] != first && !launched[unit[producer]]) return false;
      }
    }
    return true;
  };
  while (true) {
    int next = -1;
    bool done = true;
    for (int i = 0; i < size(); ++i) {
      if (unit[i] != i || launched[i]) continue;
      done = false;
      if ((next < 0 || place[i] < place[next]) && may_come(i)) next = i;
    }
    if (done) return schedule;
    if (next < 0) return {};
    const auto several = launches.find(next);
    if (several == launches.end()) schedule.order.push_back(Id(next));
    if (several != launches.end()) {
      schedule.order.insert(schedule.order.end(), several->second.begin(), several->second.end());
    }
    launched[next] = true;
  }
}

std::vector<std::string> LancetChecker::InParts(const std::vector<int>& instructions, int parts) const {
  std::vector<std::string> order;
  for (size_t first = 0; first < instructions.size();) {
    size_t end = first;
    const auto exchanges = [&](size_t i) { return Op(instructions[i]) == "ALL_TO_ALL"; };
    while (end < instructions.size() && exchanges(end) == exchanges(first)) ++end;
    for (int part = 1; part <= parts; ++part) {
      for (size_t i = first; i < end; ++i) order.push_back(Id(instructions[i]) + "#" + std::to_string(part));
    }
    first = end;
  }
  return order;
}

void LancetChecker::TryPlaces(size_t next, const std::vector<int>& gradients, std::vector<int>& beside,
                              const std::vector<PlainSchedule::Range>& ranges, double& best_s) const {
  if (next == gradients.size()) {
    const PlainSchedule schedule = Build(ranges, beside);
    if (!schedule.order.empty()) best_s = std::min(best_s, ReplayS(schedule));
    return;
  }
  TryPlaces(next + 1, gradients, beside, ranges, best_s);
  for (int a = 0; a < size(); ++a) {
    if (!MayRunBeside(gradients[next], a)) continue;
    beside[gradients[next]] = a;
    TryPlaces(next + 1, gradients, beside, ranges, best_s);
    beside[gradients[next]] = -1;
  }
}

void LancetChecker::TryRanges(int from, std::vector<PlainSchedule::Range>& ranges, double& best_s) const {
  if (from == size()) {
    std::vector<int> gradients, beside(size(), -1);
    for (int i = 0; i < size(); ++i) {
      if (IsWeightGradient(i)) gradients.push_back(i);
    }
    TryPlaces(0, gradients, beside, ranges, best_s);
    return;
  }
  TryRanges(from + 1, ranges, best_s);
  for (int last = from; last < size(); ++last) {
    if (!MayBeCut(from, last)) continue;
    for (int parts = 2; parts <= graph_.value("maxParts", 8); ++parts) {
      ranges.push_back({from, last, parts});
      TryRanges(last + 1, ranges, best_s);
      ranges.pop_back();
    }
  }
}

double LancetChecker::BruteForceS() const {
  std::vector<PlainSchedule::Range> ranges;
  double best_s = std::numeric_limits<double>::infinity();
  TryRanges(0, ranges, best_s);
  return best_s;
}

double LancetChecker::BruteForceOverlapS() const {
  std::vector<int> gradients, exchanges;
  for (int i = 0; i < size(); ++i) {
    if (IsWeightGradient(i)) gradients.push_back(i);
    if (IsBackwardExchange(i)) exchanges.push_back(i);
  }
  std::map<int, double> beside_s;
  double best_s = 0;
  std::function<void(size_t)> place = [&](size_t next) {
    if (next == gradients.size()) {
      double sum_s = 0;
      for (const int a : exchanges) sum_s += std::min(PartS(a, 1), beside_s[a]);
      best_s = std::max(best_s, sum_s);
      return;
    }
    place(next + 1);
    for (const int a : exchanges) {
      if (!MayRunBeside(gradients[next], a)) continue;
      beside_s[a] += PartS(gradients[next], 1);
      place(next + 1);
      beside_s[a] -= PartS(gradients[next], 1);
    }
  };
  place(0);
  return best_s;
}

}  // namespace moeplan
