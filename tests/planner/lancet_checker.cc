#include "tests/planner/lancet_checker.h"

#include <algorithm>
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
  for (const json& one : graph.at("instructions")) {
    by_id_[one.at("id")] = static_cast<int>(instructions_.size());
    instructions_.push_back(one);
  }
  for (const json& reader : instructions_) {
    std::vector<int>& producers = producers_.emplace_back();
    for (const std::string& tensor : reader.value("inputs", std::vector<std::string>())) {
      for (int p = 0; p < size(); ++p) {
        const auto outputs = instructions_[p].value("outputs", std::vector<std::string>());
        if (std::ranges::find(outputs, tensor) != outputs.end()) producers.push_back(p);
      }
    }
  }
}

double LancetChecker::PartS(int instruction, int parts) const {
  const json& one = instructions_[instruction];
  const std::vector<double> listed = one.value("partTimesS", std::vector<double>());
  if (parts == 1) return one.contains("timeS") ? one["timeS"].get<double>() : listed.at(0);
  return parts <= static_cast<int>(listed.size()) ? listed[parts - 1] : PartS(instruction, 1) / parts;
}

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

PlainSchedule LancetChecker::Given() const { return Build({}, std::vector<int>(size(), -1)); }

double LancetChecker::ReplayS(const PlainSchedule& schedule) const {
  std::map<int, PlainSchedule::Range> range_of;
  for (const auto& range : schedule.ranges) {
    for (int i = range.first; i <= range.last; ++i) range_of[i] = range;
  }
  std::map<bool, std::vector<std::string>> queues;
  for (const std::string& launch : schedule.order) {
    queues[Op(by_id_.at(IdOf(launch))) == "ALL_TO_ALL"].push_back(launch);
  }
  std::map<bool, size_t> next;
  std::map<bool, double> free_s;
  std::map<std::string, double> end_s;
  while (end_s.size() < schedule.order.size()) {
    const size_t before = end_s.size();
    for (const bool exchanges : {false, true}) {
      if (next[exchanges] == queues[exchanges].size()) continue;
      const std::string launch = queues[exchanges][next[exchanges]];
      const int i = by_id_.at(IdOf(launch));
      double start_s = free_s[exchanges];
      bool ready = true;
      for (const int producer : ProducersOf(i)) {
        const bool cut = range_of.contains(producer);
        const bool same = cut && range_of.contains(i) && range_of[i].first == range_of[producer].first;
        for (int part = 1; part <= (cut ? range_of[producer].parts : 1); ++part) {
          if (same && part != PartOf(launch)) continue;
          const auto end = end_s.find(cut ? Id(producer) + "#" + std::to_string(part) : Id(producer));
          ready = ready && end != end_s.end();
          if (ready) start_s = std::max(start_s, end->second);
        }
      }
      if (!ready) continue;
      free_s[exchanges] = end_s[launch] = start_s + PartS(i, range_of.contains(i) ? range_of[i].parts : 1);
      ++next[exchanges];
    }
    if (end_s.size() == before) return -1;
  }
  return std::max(free_s[false], free_s[true]);
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

bool LancetChecker::OnBorders(int first, int last) const {
  const double group_s = graph_.value("groupS", 0.0);
  std::set<int> starts, ends;
  double sum_s = 0;
  bool open = false;
  for (int i = 0; i < size(); ++i) {
    if (!Forward(i)) continue;
    if (!open) starts.insert(i), sum_s = 0;
    open = true;
    sum_s += PartS(i, 1);
    if (sum_s >= group_s * (1 - 1e-12) || i + 1 == size() || !Forward(i + 1)) ends.insert(i), open = false;
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
  return OnBorders(first, last) && AxesFit(first, last);
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
  std::vector<std::string> expected;
  int end = 0;
  for (const json& one : lancet.at("partitions")) {
    const int first = by_id_.at(one.at("first")), last = by_id_.at(one.at("last")), parts = one.at("parts");
    const std::string name = Id(first) + " ... " + Id(last);
    if (first < end || last < first || parts < 2 || parts > graph_.value("maxParts", 8)) return name + ": out of place";
    if (!MayBeCut(first, last)) return name + ": may not be cut";
    end = last + 1;
    schedule.ranges.push_back({first, last, parts});
    PlainSchedule alone = Build({schedule.ranges.back()}, std::vector<int>(size(), -1));
    std::erase_if(alone.order, [&](const std::string& launch) { return launch.find('#') == std::string::npos; });
    json only = graph_;  // What comes from outside is there.
    for (int i = 0; i < size(); ++i) {
      if (i < first || i > last) only["instructions"][i]["outputs"] = json::array();
    }
    const LancetChecker range_only(only);
    if (!Near(range_only.ReplayS(alone), one.at("timeS"))) return name + ": another timeS";
  }
  for (const json& launch : lancet.at("order")) schedule.order.push_back(launch);
  for (const auto& launch : Build(schedule.ranges, std::vector<int>(size(), -1)).order) expected.push_back(launch);
  std::vector<std::string> found = schedule.order;
  std::ranges::sort(expected);
  std::ranges::sort(found);
  if (expected != found) return "order does not have every launch once";
  if (!IsTopological(schedule)) return "order launches something before what it reads";
  std::set<std::string> placed;
  for (const json& one : lancet.at("weightGradients")) {
    const int gradient = by_id_.at(one.at("instruction")), exchange = by_id_.at(one.at("allToAll"));
    if (!placed.insert(Id(gradient)).second) return Id(gradient) + ": placed twice";
    if (!MayRunBeside(gradient, exchange)) return Id(gradient) + ": may not run beside " + Id(exchange);
  }
  if (!Near(ReplayS(schedule), lancet.at("timeS"))) return "timeS is not the end of order";
  if (!Near(ReplayS(Given()), lancet.at("unscheduledTimeS")))
    return "unscheduledTimeS is not the end of the given order";
  if (lancet.at("timeS") > lancet.at("unscheduledTimeS")) return "slower than the given order";
  return {};
}

bool LancetChecker::IsTopological(const PlainSchedule& schedule) const {
  std::map<int, PlainSchedule::Range> range_of;
  for (const auto& range : schedule.ranges) {
    for (int i = range.first; i <= range.last; ++i) range_of[i] = range;
  }
  std::map<std::string, size_t> at;
  for (size_t i = 0; i < schedule.order.size(); ++i) at[schedule.order[i]] = i;
  for (const std::string& launch : schedule.order) {
    const int i = by_id_.at(IdOf(launch));
    for (const int producer : ProducersOf(i)) {
      const bool cut = range_of.contains(producer);
      const bool same = cut && range_of.contains(i) && range_of[i].first == range_of[producer].first;
      for (int part = 1; part <= (cut ? range_of[producer].parts : 1); ++part) {
        if (same && part != PartOf(launch)) continue;
        if (at.at(cut ? Id(producer) + "#" + std::to_string(part) : Id(producer)) > at[launch]) return false;
      }
    }
  }
  return true;
}

// ---- Brute force.

// Stage by stage in ranges; weight gradients right after their all-to-all, in the given order.
PlainSchedule LancetChecker::Build(const std::vector<PlainSchedule::Range>& ranges,
                                   const std::vector<int>& beside) const {
  PlainSchedule schedule = {.ranges = ranges};
  for (int i = 0; i < size(); ++i) {
    const auto range = std::ranges::find(ranges, i, &PlainSchedule::Range::first);
    if (range != ranges.end()) {
      for (int first = i; first <= range->last;) {
        int last = first;
        while (last < range->last && (Op(last + 1) == "ALL_TO_ALL") == (Op(first) == "ALL_TO_ALL")) ++last;
        for (int part = 1; part <= range->parts; ++part) {
          for (int j = first; j <= last; ++j) schedule.order.push_back(Id(j) + "#" + std::to_string(part));
        }
        first = last + 1;
      }
      i = range->last;
      continue;
    }
    if (beside[i] < 0) schedule.order.push_back(Id(i));
    for (int w = 0; w < size(); ++w) {
      if (beside[w] == i) schedule.order.push_back(Id(w));
    }
  }
  return schedule;
}

void LancetChecker::TryPlaces(size_t next, const std::vector<int>& gradients, std::vector<int>& beside,
                              const std::vector<PlainSchedule::Range>& ranges, double& best_s) const {
  if (next == gradients.size()) {
    const PlainSchedule schedule = Build(ranges, beside);
    if (IsTopological(schedule)) best_s = std::min(best_s, ReplayS(schedule));
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
