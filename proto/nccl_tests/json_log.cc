#include "proto/nccl_tests/json_log.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/text.h"
#include "proto/errors.h"

namespace moeplan::nccl_tests {
namespace {

using Json = nlohmann::json;

constexpr int kMostRanks = 1 << 16;

// A member of an object, or null where either is not there.
const Json& Member(const Json& object, const char* name) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto member = object.find(name);
  return member == object.end() ? null : *member;
}

StatusOr<double> NumberIn(const Json& object, const char* name, const std::string& where) {
  const Json& value = Member(object, name);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (std::isfinite(number) && number >= 0) return number;
  return error::Mismatch(FieldPath(where, name), value.is_null() ? "nothing" : "something else",
                         "a number of at least 0");
}

StatusOr<int> CountIn(const Json& object, const char* name, const std::string& where, int least) {
  ASSIGN_OR_RETURN(const double number, NumberIn(object, name, where));
  if (number == std::floor(number) && number >= least && number <= kMostRanks) return static_cast<int>(number);
  return error::Mismatch(FieldPath(where, name), StrCat(number),
                         StrCat("a whole number from ", least, " to ", kMostRanks));
}

StatusOr<std::string> StringIn(const Json& object, const char* name, const std::string& where) {
  const Json& value = Member(object, name);
  if (value.is_string()) return value.get<std::string>();
  return error::Mismatch(FieldPath(where, name), value.is_null() ? "nothing" : "something else", "a string");
}

// The list under a name.
StatusOr<const Json*> ListIn(const Json& object, const char* name, const std::string& where) {
  const Json& value = Member(object, name);
  if (value.is_array()) return &value;
  return error::Mismatch(FieldPath(where, name), value.is_null() ? "nothing" : "something else", "a list");
}

StatusOr<std::optional<Timed>> TimedIn(const Json& row, const char* name, const std::string& where) {
  const Json& times = Member(row, name);
  if (times.is_null()) return std::optional<Timed>();
  const std::string path = FieldPath(where, name);
  if (times.contains("cpu_time")) {
    return error::Mismatch(path, "cpu_time (-C), the time that the processor takes to launch", "time");
  }
  ASSIGN_OR_RETURN(const double time_us, NumberIn(times, "time", path));
  ASSIGN_OR_RETURN(const double algbw, NumberIn(times, "alg_bw", path));
  if (!Member(times, "nwrong").is_null()) {
    ASSIGN_OR_RETURN(const double wrong, NumberIn(times, "nwrong", path));
    if (wrong != 0) {
      return error::Mismatch(FieldPath(path, "nwrong"), StrCat(wrong), "0: the run computed wrong results");
    }
  }
  return std::optional<Timed>(Timed{time_us, algbw});
}

StatusOr<Row> RowFrom(const Json& json, const std::string& where) {
  Row row = {.where = where};
  ASSIGN_OR_RETURN(row.size_bytes, NumberIn(json, "size", where));
  ASSIGN_OR_RETURN(row.count, NumberIn(json, "count", where));
  ASSIGN_OR_RETURN(row.type, StringIn(json, "type", where));
  ASSIGN_OR_RETURN(row.redop, StringIn(json, "redop", where));
  ASSIGN_OR_RETURN(row.out_of_place, TimedIn(json, "out_of_place", where));
  ASSIGN_OR_RETURN(row.in_place, TimedIn(json, "in_place", where));
  return row;
}

StatusOr<Rank> RankFrom(const Json& json, const std::string& where) {
  Rank rank;
  ASSIGN_OR_RETURN(rank.rank, CountIn(json, "rank", where, 0));
  ASSIGN_OR_RETURN(rank.group, CountIn(json, "group", where, 0));
  ASSIGN_OR_RETURN(rank.host, StringIn(json, "hostname", where));
  ASSIGN_OR_RETURN(rank.device, CountIn(json, "device", where, 0));
  ASSIGN_OR_RETURN(rank.device_name, StringIn(json, "device_info", where));
  return rank;
}

// Fills in the ranks of each process behind its first, where only that one is listed.
StatusOr<std::vector<Rank>> WithRanksOfProcesses(std::vector<Rank> listed, double ranks_per_process,
                                                 const std::string& where) {
  if (ranks_per_process * static_cast<double>(listed.size()) > kMostRanks) {
    return error::Mismatch(where, StrCat(ranks_per_process, " ranks in each process"),
                           StrCat("at most ", kMostRanks, " ranks in all"));
  }
  if (listed.empty()) return listed;
  const int each = static_cast<int>(ranks_per_process);
  const bool first_ones = std::ranges::all_of(listed, [&](const Rank& rank) { return rank.rank % each == 0; });
  if (each == 1 || !first_ones) return listed;
  std::vector<Rank> all;
  for (const Rank& first : listed) {
    for (int i = 0; i < each; ++i) {
      Rank rank = first;
      rank.rank += i;
      rank.device += i;
      all.push_back(std::move(rank));
    }
  }
  return all;
}

StatusOr<std::vector<Rank>> RanksFrom(const Json& json, const std::string& path) {
  const std::string where = FieldPath(path, "config");
  const Json& config = Member(json, "config");
  if (Member(config, "devices").is_null()) return std::vector<Rank>();
  ASSIGN_OR_RETURN(const int threads, CountIn(config, "nthreads", where, 1));
  ASSIGN_OR_RETURN(const int gpus, CountIn(config, "ngpus", where, 1));
  ASSIGN_OR_RETURN(const Json* devices, ListIn(config, "devices", where));
  std::vector<Rank> ranks;
  for (const Json& device : *devices) {
    ASSIGN_OR_RETURN(Rank rank, RankFrom(device, ItemPath(FieldPath(where, "devices"), ranks.size())));
    ranks.push_back(std::move(rank));
  }
  return WithRanksOfProcesses(std::move(ranks), static_cast<double>(threads) * gpus, where);
}

StatusOr<Run> RunFrom(const Json& json) {
  if (!json.is_object()) return error::Mismatch("", "no object", "the object that nccl-tests writes with -J");
  Run run;
  if (const Json& arguments = Member(json, "args"); arguments.is_array() && !arguments.empty()) {
    if (!arguments[0].is_string()) return error::Mismatch("args[0]", "something else", "the program's name");
    const auto program = arguments[0].get<std::string>();
    run.program = program.substr(program.find_last_of('/') + 1);
  }
  if (const Json& version = Member(json, "nccl_version"); version.is_number()) {
    run.version = StrCat("nccl-library=", version.get<double>());
  }
  ASSIGN_OR_RETURN(run.ranks, RanksFrom(json, ""));
  ASSIGN_OR_RETURN(const Json* results, ListIn(json, "results", ""));
  for (const Json& result : *results) {
    ASSIGN_OR_RETURN(Row row, RowFrom(result, ItemPath("results", run.rows.size())));
    run.rows.push_back(std::move(row));
  }
  if (const Json& wrong = Member(json, "out_of_bounds"); !wrong.is_null()) {
    ASSIGN_OR_RETURN(const double count, NumberIn(wrong, "count", "out_of_bounds"));
    if (count != 0) {
      return error::Mismatch("out_of_bounds.count", StrCat(count), "0: mend what computes wrong results, run it again");
    }
  }
  return run;
}

}  // namespace

StatusOr<Run> ReadJsonLog(const std::string& path, std::string_view text) {
  Json json;
  try {
    json = Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    return InvalidInput(StrCat(path, ": found no JSON (", error.what(), "), expected what nccl-tests writes with -J"));
  }
  StatusOr<Run> run = RunFrom(json);
  if (!run.ok()) return run.status().Within(path);
  run->where = path;
  for (Row& row : run->rows) row.where = StrCat(path, ": ", row.where);
  return run;
}

}  // namespace moeplan::nccl_tests
