#include "proto/nccl_tests/import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "models/text.h"
#include "proto/nccl_tests/json_log.h"
#include "proto/nccl_tests/run.h"
#include "proto/nccl_tests/text_log.h"

namespace moeplan {
namespace {

using nccl_tests::Faults;
using nccl_tests::Rank;
using nccl_tests::Row;
using nccl_tests::Run;
using nccl_tests::Timed;

// The programs without "_perf", and what they measure; nothing where no plan needs it.
constexpr std::pair<std::string_view, std::optional<Collective>> kPrograms[] = {
    {"all_gather", Collective::kAllGather},
    {"all_reduce", Collective::kAllReduce},
    {"alltoall", Collective::kAllToAll},
    {"alltoallv", std::nullopt},
    {"broadcast", std::nullopt},
    {"gather", std::nullopt},
    {"hypercube", std::nullopt},
    {"reduce", std::nullopt},
    {"reduce_scatter", Collective::kReduceScatter},
    {"scatter", std::nullopt},
    {"sendrecv", std::nullopt},
};

constexpr std::string_view kPlannedWith = "alltoall_perf, all_gather_perf, reduce_scatter_perf and all_reduce_perf";

std::string_view NameOf(const std::pair<std::string_view, std::optional<Collective>>& program) { return program.first; }

// The one program that a file's name tells; empty where it tells none or several.
std::string_view ProgramInFileName(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
  std::set<std::string_view> told;
  for (size_t at = 0; at < name.size(); ++at) {
    std::string_view longest;  // "all_reduce" is no "reduce".
    for (const auto& program : kPrograms) {
      if (name.substr(at).starts_with(NameOf(program)) && NameOf(program).size() > longest.size())
        longest = program.first;
    }
    if (longest.empty()) continue;
    told.insert(longest);
    at += longest.size() - 1;
  }
  return told.size() == 1 ? *told.begin() : std::string_view();
}

// What one run measured, and on which ranks.
struct Measured {
  std::string program;
  std::optional<Collective> collective;  // Absent: not for plans.
};

StatusOr<Measured> MeasuredBy(const Run& run, const std::string& path, const NcclTestsOptions& options) {
  std::string program = run.program;
  if (const size_t suffix = program.find("_perf"); suffix != std::string::npos) program.resize(suffix);
  if (program.empty() && options.collective) {
    const auto* const same =
        std::ranges::find(kPrograms, options.collective, [](const auto& one) { return one.second; });
    if (same == std::end(kPrograms)) {
      return InvalidInput(StrCat("--collective: found ", Name(*options.collective), ", expected one of ALL_TO_ALL, ",
                                 "ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE"));
    }
    program = same->first;
  }
  if (program.empty()) program = ProgramInFileName(path);
  if (program.empty()) {
    return InvalidInput(StrCat(run.where, ": found a table whose program is not named, expected '# Collective test ",
                               "starting: NAME' above it, a file name such as all_reduce_perf.log, or --collective"));
  }
  const auto* const known = std::ranges::find(kPrograms, std::string_view(program), NameOf);
  return Measured{program + "_perf", known == std::end(kPrograms) ? std::nullopt : known->second};
}

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

// ---- Ranks.

// The ranks of a run: how many on which host, by group.
using Hosts = std::map<std::string, int>;

struct Placement {
  GroupShape group;
  int nodes = 1;
  int gpus_per_node = 1;    // At least.
  std::string device_name;  // Empty: not said.
};

Status CheckRanks(const Run& run) {
  std::set<int> numbers;
  for (const Rank& rank : run.ranks) {
    if (!numbers.insert(rank.rank).second) {
      return InvalidInput(StrCat(run.where, ": found rank ", rank.rank, " twice above the table, expected it once"));
    }
    if (rank.device_name != run.ranks.front().device_name) {
      return InvalidInput(StrCat(run.where, ": found the devices ", run.ranks.front().device_name, " and ",
                                 rank.device_name, ", expected one kind: plans are for clusters of equal GPUs"));
    }
  }
  const int last = *numbers.rbegin();
  if (static_cast<size_t>(last) + 1 != numbers.size()) {
    return InvalidInput(StrCat(run.where, ": found ", numbers.size(),
                               " rank lines above the table, expected ranks 0 to ", last, " to have one each"));
  }
  return OkStatus();
}

StatusOr<GroupShape> ShapeOf(const Hosts& hosts, const std::string& where) {
  GroupShape shape = {.size = 0, .ranks_per_node = hosts.begin()->second};
  for (const auto& [host, ranks] : hosts) {
    shape.size += ranks;
    if (ranks == shape.ranks_per_node) continue;
    return InvalidInput(StrCat(where, ": found ", shape.ranks_per_node, " ranks of a group on ", hosts.begin()->first,
                               " and ", ranks, " on ", host, ", expected as many on every host"));
  }
  return shape;
}

StatusOr<Placement> PlacementOf(const Run& run, const NcclTestsOptions& options) {
  if (run.ranks.empty()) {
    if (options.group) {
      return Placement{*options.group, options.group->size / options.group->ranks_per_node,
                       options.group->ranks_per_node};
    }
    return InvalidInput(StrCat(run.where, ": found no rank lines above the table, expected '#  Rank  0 ...' for each ",
                               "rank, or --group-size and --ranks-per-node"));
  }
  RETURN_IF_ERROR(CheckRanks(run));
  std::map<int, Hosts> groups;
  Hosts all;
  Placement placement = {.device_name = run.ranks.front().device_name};
  for (const Rank& rank : run.ranks) {
    ++groups[rank.group][rank.host];
    placement.gpus_per_node = std::max({placement.gpus_per_node, ++all[rank.host], rank.device + 1});
  }
  placement.nodes = static_cast<int>(all.size());
  ASSIGN_OR_RETURN(placement.group, ShapeOf(groups.begin()->second, run.where));
  for (const auto& [number, hosts] : groups) {
    ASSIGN_OR_RETURN(const GroupShape shape, ShapeOf(hosts, run.where));
    if (shape == placement.group) continue;
    return InvalidInput(StrCat(run.where, ": found groups of ", placement.group.size, " and of ", shape.size,
                               " ranks side by side, or placed otherwise, expected them alike"));
  }
  return placement;
}

// ---- Rows.

// Bytes of an element; 0 for a type that is not known here.
int ElementBytes(std::string_view type) {
  constexpr std::pair<std::string_view, int> kTypes[] = {
      {"int8", 1},  {"uint8", 1},  {"char", 1},  {"f8e4m3", 1}, {"f8e5m2", 1}, {"half", 2},   {"bfloat16", 2},
      {"int32", 4}, {"uint32", 4}, {"float", 4}, {"int", 4},    {"int64", 8},  {"uint64", 8}, {"double", 8},
  };
  const auto* const known = std::ranges::find(kTypes, type, [](const auto& one) { return one.first; });
  return known == std::end(kTypes) ? 0 : known->second;
}

bool SizeBelongsToCount(const Row& row, int ranks) {
  const double element_bytes = ElementBytes(row.type);
  if (!row.count || element_bytes == 0) return true;
  const double bytes = *row.count * element_bytes;
  return row.size_bytes == bytes || row.size_bytes == bytes * ranks;
}

// Whether size, time and algorithm bandwidth are of one measurement, all rounded as they are printed.
bool TimeBelongsToSize(const Timed& timed, double size_bytes, int ranks) {
  if (!timed.algbw_gb_per_s || timed.time_us <= 0) return true;
  const double rate_gb_per_s = size_bytes / timed.time_us * 1e-3;
  const double rounding = 0.02 + 0.006 / timed.time_us;
  const auto is = [&](double expected_gb_per_s) {
    return std::abs(*timed.algbw_gb_per_s - expected_gb_per_s) <= 0.006 + rounding * expected_gb_per_s;
  };
  return is(rate_gb_per_s) || is(rate_gb_per_s * (ranks - 1) / ranks);
}

bool IsOperation(const std::string& redop) { return !redop.empty() && redop != "none"; }

// Puts `value` into a comma-separated list that has it at most once.
void AddTo(std::string& list, const std::string& value) {
  constexpr size_t kMostBytes = 1000;
  if (value.empty() || StrCat(", ", list, ", ").find(StrCat(", ", value, ", ")) != std::string::npos) return;
  if (list.size() + value.size() > kMostBytes) return;
  list += list.empty() ? value : ", " + value;
}

class Importer {
 public:
  explicit Importer(const NcclTestsOptions& options) : options_(options) {}

  Status Read(const NcclTestsLog& log) {
    const size_t begin = log.text.find_first_not_of(" \t\r\n");
    std::vector<Run> runs;
    if (begin != std::string::npos && log.text[begin] == '{') {
      ASSIGN_OR_RETURN(Run run, nccl_tests::ReadJsonLog(log.path, log.text));
      runs.push_back(std::move(run));
    } else {
      ASSIGN_OR_RETURN(runs, nccl_tests::ReadTextLog(log.path, log.text));
    }
    if (runs.empty()) {
      return InvalidInput(StrCat(log.path, ": found no table, expected what a *_perf program of nccl-tests prints"));
    }
    for (const Run& run : runs) RETURN_IF_ERROR(Take(run, log.path));
    return OkStatus();
  }

  StatusOr<NcclTestsImport> Finish() && {
    RETURN_IF_ERROR(faults_.status());
    NcclTestsImport import;
    import.notes = std::move(notes_);
    import.samples.name = options_.name;
    for (auto& [key, sample] : samples_) import.samples.samples.push_back(std::move(sample));
    if (import.samples.samples.empty()) {
      std::string why;
      for (const std::string& note : import.notes) why += StrCat(why.empty() ? ": " : "; ", note);
      return InvalidInput(StrCat("found no measurement to plan with, expected rows of ", kPlannedWith, why));
    }
    ASSIGN_OR_RETURN(import.samples.cluster, ClusterOf());
    RETURN_IF_ERROR(ValidateSamples(import.samples));
    return import;
  }

 private:
  Status Take(const Run& run, const std::string& path) {
    ASSIGN_OR_RETURN(const Measured measured, MeasuredBy(run, path, options_));
    if (!measured.collective) {
      Note(StrCat(run.where, ": left out ", measured.program, ": plans use ", kPlannedWith));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const Placement placement, PlacementOf(run, options_));
    RETURN_IF_ERROR(Seen(placement, run.where));
    if (placement.group.size == 1) {
      Note(StrCat(run.where, ": left out a group of one rank: it costs nothing"));
      return OkStatus();
    }
    if (run.rows.empty()) Note(StrCat(run.where, ": the table has no rows"));
    const CollectiveKey key = {.collective = *measured.collective, .group = placement.group, .ctas = options_.ctas};
    int without_time = 0;
    for (const Row& row : run.rows) {
      const std::optional<Timed>& timed = options_.in_place ? row.in_place : row.out_of_place;
      if (!CheckRow(row, measured, placement.group.size) || row.size_bytes == 0) continue;
      if (!timed) {
        ++without_time;
      } else if (timed->time_us <= 0) {
        faults_.Add(row.where, "a time of 0", "one above 0");
      } else {
        Add(key, row, timed->time_us * 1e-6, run, path, placement);
      }
    }
    if (without_time > 0) {
      Note(StrCat(run.where, ": left out ", without_time, " rows without ", Kind(), " time",
                  options_.in_place ? "" : "; --in-place takes the in-place times"));
    }
    return OkStatus();
  }

  bool CheckRow(const Row& row, const Measured& measured, int ranks) {
    if (Reduces(*measured.collective) != IsOperation(row.redop) && !row.redop.empty()) {
      faults_.Add(row.where, StrCat("redop ", row.redop), StrCat("what ", measured.program, " prints there"));
      return false;
    }
    if (!SizeBelongsToCount(row, ranks)) {
      faults_.Add(row.where, StrCat(row.size_bytes, " bytes"),
                  StrCat("as many as ", *row.count, " elements of ", row.type, ", or ", ranks, " times that"));
      return false;
    }
    for (const std::optional<Timed>& timed : {row.out_of_place, row.in_place}) {
      if (!timed || TimeBelongsToSize(*timed, row.size_bytes, ranks)) continue;
      faults_.Add(row.where,
                  StrCat(timed->time_us, " us for ", row.size_bytes, " bytes at ", *timed->algbw_gb_per_s, " GB/s"),
                  "a time that belongs to size and algbw");
      return false;
    }
    return true;
  }

  void Add(const CollectiveKey& key, const Row& row, double time_s, const Run& run, const std::string& path,
           const Placement& placement) {
    Sample& sample = samples_[{key, row.size_bytes}];
    sample.key = key;
    sample.size = row.size_bytes;
    sample.times_s.push_back(time_s);
    AddTo(sample.provenance["source"], path);
    AddTo(sample.provenance["type"], row.type);
    if (IsOperation(row.redop)) AddTo(sample.provenance["redop"], row.redop);
    if (!placement.device_name.empty()) AddTo(sample.provenance["device"], placement.device_name);
    if (!run.version.empty()) AddTo(sample.provenance["version"], run.version);
    sample.provenance["times"] = Kind();
  }

  // What a run shows of the cluster.
  Status Seen(const Placement& placement, const std::string& where) {
    if (!placement.device_name.empty()) {
      if (device_name_.empty()) device_name_ = placement.device_name;
      if (device_name_ != placement.device_name) {
        return InvalidInput(StrCat(where, ": found the device ", placement.device_name, ", expected ", device_name_,
                                   " as in the logs before: import each cluster by itself"));
      }
    }
    nodes_ = std::max(nodes_, placement.nodes);
    gpus_per_node_ = std::max(gpus_per_node_, placement.gpus_per_node);
    return OkStatus();
  }

  StatusOr<Cluster> ClusterOf() const {
    Cluster cluster = {.nodes = nodes_, .gpus_per_node = gpus_per_node_};
    if (options_.nodes) cluster.nodes = *options_.nodes;
    if (options_.gpus_per_node) cluster.gpus_per_node = *options_.gpus_per_node;
    for (const auto& [name, said, seen] : {std::tuple("--nodes", cluster.nodes, nodes_),
                                           std::tuple("--gpus-per-node", cluster.gpus_per_node, gpus_per_node_)}) {
      if (said >= seen) continue;
      return InvalidInput(StrCat(name, ": found ", said, ", expected at least the ", seen, " that the logs show"));
    }
    return cluster;
  }

  std::string Kind() const { return options_.in_place ? "in-place" : "out-of-place"; }
  void Note(std::string note) { notes_.push_back(std::move(note)); }

  const NcclTestsOptions& options_;
  std::map<std::pair<CollectiveKey, double>, Sample> samples_;
  std::vector<std::string> notes_;
  Faults faults_;
  std::string device_name_;
  int nodes_ = 1, gpus_per_node_ = 1;
};

Status CheckOptions(const NcclTestsOptions& options) {
  RETURN_IF_ERROR(ValidateCtas(options.ctas, "--ctas"));
  if (!options.group) return OkStatus();
  const GroupShape& group = *options.group;
  if (group.size >= 1 && group.ranks_per_node >= 1 && group.size % group.ranks_per_node == 0) return OkStatus();
  return InvalidInput(StrCat("--group-size and --ranks-per-node: found ", group.size, " and ", group.ranks_per_node,
                             ", expected at least 1 each, and the ranks of a node to divide the group"));
}

}  // namespace

StatusOr<NcclTestsImport> ImportNcclTests(std::span<const NcclTestsLog> logs, const NcclTestsOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  Importer importer(options);
  for (const NcclTestsLog& log : logs) RETURN_IF_ERROR(importer.Read(log));
  return std::move(importer).Finish();
}

}  // namespace moeplan
