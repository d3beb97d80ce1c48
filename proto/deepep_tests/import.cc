#include "proto/deepep_tests/import.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/routing/token_copies.h"
#include "models/text.h"

namespace moeplan {
namespace {

constexpr int kMostExperts = 1 << 16, kMostTokens = 1 << 24, kMostDim = 1 << 20, kMostProcessors = 1 << 16;
constexpr double kBf16Bytes = 2;

// The number behind `name`, such as "num_tokens=4096"; absent where there is no such name or no number.
std::optional<double> NumberBehind(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() ? std::optional(number) : std::nullopt;
}

// The number before `unit`, such as "42.36 GB/s (RDMA)"; likewise.
std::optional<double> NumberBefore(std::string_view text, std::string_view unit) {
  const size_t at = text.find(unit);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view before = text.substr(0, at);
  while (before.ends_with(' ')) before.remove_suffix(1);
  const size_t start = before.find_last_not_of("0123456789.eE-");
  const std::string_view digits = start == std::string_view::npos ? before : before.substr(start + 1);
  double number = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return problem == std::errc() ? std::optional(number) : std::nullopt;
}

// The whole number of 1 to `most` behind `name`, or `otherwise` where there is none; an error begins with `where`.
StatusOr<int> Whole(std::string_view text, std::string_view name, int most, std::optional<int> otherwise,
                    std::string_view where) {
  const auto found = NumberBehind(text, name);
  if (!found && otherwise) return *otherwise;
  if (found && *found >= 1 && *found <= most && *found == std::floor(*found)) return static_cast<int>(*found);
  return InvalidInput(
      StrCat(where, ": found ", found ? BriefNumber(*found) : "nothing", ", expected a whole number of 1 to ", most));
}

struct Configuration {
  std::string where;
  int tokens = 0, hidden = 0, top_k = 0, experts = 0, groups_per_token = 0;

  bool IsLike(const Configuration& other) const {
    return tokens == other.tokens && hidden == other.hidden && top_k == other.top_k && experts == other.experts &&
           groups_per_token == other.groups_per_token;
  }
};

// One line of the best settings.
struct Best {
  double bytes_per_s = 0;
  double transmit_s = 0, notify_s = 0;  // 0: not said.
  int processors = 0;                   // Likewise.
};

class Reader {
 public:
  Reader(const DeepEpTestsOptions& options) : options_(options) {}

  Status Read(const DeepEpTestsLog& log) {
    configuration_.reset();
    dispatches_.clear();
    std::string_view rest = log.text;
    for (int number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      RETURN_IF_ERROR(ReadLine(rest.substr(0, end), StrCat(log.path, ":", number)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return OkStatus();
  }

  StatusOr<DeepEpTestsImport> Take() {
    if (samples_.empty()) {
      return InvalidInput(
          "found no '[config]' with its '[tuning] Best dispatch (BF16)' and 'Best combine', expected what DeepEP's "
          "tests/test_intranode.py or test_internode.py print");
    }
    DeepEpTestsImport import;
    import.samples.name = options_.name;
    import.samples.cluster = {.nodes = std::max(nodes(), options_.nodes),
                              .gpus_per_node = options_.group.ranks_per_node};
    for (auto& [size, sample] : samples_) import.samples.samples.push_back(std::move(sample));
    import.notes = std::move(notes_);
    RETURN_IF_ERROR(ValidateSamples(import.samples).Within("what the tests printed"));
    return import;
  }

 private:
  int nodes() const { return options_.group.size / options_.group.ranks_per_node; }

  Status ReadLine(std::string_view line, const std::string& where) {
    if (line.find("[config]") != std::string_view::npos) return ReadConfiguration(line, where);
    const bool dispatches = line.find("Best dispatch") != std::string_view::npos;
    const bool combines = line.find("Best combine") != std::string_view::npos;
    if (!dispatches && !combines) return OkStatus();
    if (!configuration_) {
      return InvalidInput(StrCat(where, ": found a result without '[config] num_tokens=...' above it"));
    }
    if (dispatches && line.find("(BF16)") == std::string_view::npos) {
      notes_.push_back(StrCat(where, ": a dispatch that is not in BF16 is left out"));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const Best best, ReadBest(line, where));
    if (dispatches) return (dispatches_.push_back(best), OkStatus());
    // Each node prints its own, in any order of nodes.
    if (dispatches_.empty()) {
      return InvalidInput(StrCat(where, ": found a combine without a dispatch in BF16 above it"));
    }
    Add(dispatches_.front(), best);
    dispatches_.pop_front();
    return OkStatus();
  }

  Status ReadConfiguration(std::string_view line, const std::string& where) {
    const auto whole = [&](const char* name, int most, std::optional<int> otherwise) {
      return Whole(line, StrCat(name, "="), most, otherwise, StrCat(where, ": ", name));
    };
    Configuration read = {.where = where};
    ASSIGN_OR_RETURN(read.tokens, whole("num_tokens", kMostTokens, std::nullopt));
    ASSIGN_OR_RETURN(read.hidden, whole("hidden", kMostDim, std::nullopt));
    ASSIGN_OR_RETURN(read.top_k, whole("num_topk", kMostExperts, std::nullopt));
    ASSIGN_OR_RETURN(read.experts, whole("num_experts", kMostExperts, options_.experts));
    ASSIGN_OR_RETURN(read.groups_per_token, whole("num_topk_groups", kMostExperts, nodes()));
    if (read.experts % options_.group.size != 0 || read.top_k > read.experts) {
      return InvalidInput(StrCat(where, ": found ", read.experts, " experts and top ", read.top_k,
                                 ", expected a multiple of ", options_.group.size, " ranks, and no more chosen"));
    }
    if (configuration_ && configuration_->IsLike(read)) return OkStatus();
    configuration_ = std::move(read);
    dispatches_.clear();
    return OkStatus();
  }

  StatusOr<Best> ReadBest(std::string_view line, const std::string& where) const {
    const char* const unit = nodes() > 1 ? "GB/s (RDMA)" : "GB/s (NVL";
    const auto bandwidth = NumberBefore(line, unit);
    if (nodes() == 1 && line.find("(RDMA)") != std::string_view::npos) {
      return InvalidInput(StrCat(where,
                                 ": found a result of test_internode.py, expected one of test_intranode.py for a ",
                                 "group on one node; give --group-size and --ranks-per-node of the test"));
    }
    if (!bandwidth || !(*bandwidth > 0)) {
      return InvalidInput(StrCat(where, ": found no number of '", unit, nodes() > 1 ? "'" : ")'", ", expected one of ",
                                 nodes() > 1 ? "test_internode.py, for " : "test_intranode.py, for ", nodes(),
                                 nodes() > 1 ? " nodes" : " node"));
    }
    Best best = {.bytes_per_s = 1e9 * *bandwidth};
    ASSIGN_OR_RETURN(best.processors, Whole(line, "SMs", kMostProcessors, /*otherwise=*/0, StrCat(where, ": SMs")));
    constexpr double kMicro = 1e-6;
    auto transmit = NumberBehind(line, "transmit:");
    if (!transmit) transmit = NumberBehind(line, " t:");
    auto notify = NumberBehind(line, "notify:");
    // "45 + 960 us": notification, then the rows.
    if (const size_t plus = line.find(" + "); !transmit && plus != std::string_view::npos) {
      transmit = NumberBefore(line.substr(plus), " us");
      notify = NumberBefore(line, " + ");
    }
    best.transmit_s = kMicro * transmit.value_or(0), best.notify_s = kMicro * notify.value_or(0);
    if (best.transmit_s <= 0) return best;
    constexpr double kMostOff = 1.3;
    const double told = best.bytes_per_s * best.transmit_s, counted = Bytes();
    if (told <= kMostOff * counted && counted <= kMostOff * told) return best;
    return InvalidInput(StrCat(where, ": found ", BriefNumber(told), " bytes in that time, expected about ",
                               BriefNumber(counted), " of ", configuration_->tokens, " tokens on ", options_.group.size,
                               " ranks, ", options_.group.ranks_per_node,
                               " a node; give --group-size, --ranks-per-node and --experts of the test"));
  }

  // Counts the bytes of the rows that a rank sends.
  double Bytes() const {
    const Configuration& test = *configuration_;
    // Tests between nodes take a token's experts from so many nodes at most.
    const bool limited =
        nodes() > 1 && test.groups_per_token < nodes() && test.top_k <= test.experts / nodes() * test.groups_per_token;
    const EvenRouting routing = {.experts = test.experts,
                                 .top_k = test.top_k,
                                 .groups = limited ? nodes() : 1,
                                 .groups_per_token = limited ? test.groups_per_token : 1};
    const double places = ExpectedPlaces(routing, nodes() > 1 ? nodes() : options_.group.size);
    return test.tokens * places * test.hidden * kBf16Bytes;
  }

  void Add(const Best& dispatch, const Best& combine) {
    const double bytes = Bytes();
    const auto time_s = [&](const Best& best) {
      return best.notify_s + (best.transmit_s > 0 ? best.transmit_s : bytes / best.bytes_per_s);
    };
    Sample& sample = samples_[bytes];
    sample.key = CollectiveKey{.collective = Collective::kAllToAll,
                               .group = options_.group,
                               .dispatcher = Dispatcher::kDeepEp,
                               .transport = options_.transport};
    sample.size = bytes;
    sample.times_s.push_back((time_s(dispatch) + time_s(combine)) / 2);
    sample.provenance["source"] = configuration_->where;
    if (dispatch.processors > 0) sample.provenance["sms"] = StrCat(dispatch.processors);
  }

  const DeepEpTestsOptions& options_;
  std::optional<Configuration> configuration_;
  std::deque<Best> dispatches_;  // Without their combine so far.
  std::map<double, Sample> samples_;
  std::vector<std::string> notes_;
};

}  // namespace

StatusOr<DeepEpTestsImport> ImportDeepEpTests(std::span<const DeepEpTestsLog> logs, const DeepEpTestsOptions& options) {
  const auto& [size, ranks_per_node] = options.group;
  if (size < 2 || ranks_per_node < 1 || size % ranks_per_node != 0 || options.experts < 1) {
    return InvalidInput(StrCat("found ", options.experts, " experts on ", size, " ranks, ", ranks_per_node,
                               " a node, expected experts on at least 2 ranks in whole nodes"));
  }
  if (options.nodes != 0 && options.nodes < size / ranks_per_node) {
    return InvalidInput(StrCat("--nodes: found ", options.nodes, ", expected at least the ", size / ranks_per_node,
                               " that the tests ran on"));
  }
  Reader reader(options);
  for (const DeepEpTestsLog& log : logs) RETURN_IF_ERROR(reader.Read(log));
  return reader.Take();
}

}  // namespace moeplan
