#include "proto/router_trace/read.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "models/workload/workload.h"
#include "proto/errors.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using Json = nlohmann::json;

std::string Kind(const Json& value) {
  if (value.is_number()) return value.dump();
  return StrCat("a value of type ", value.type_name());
}

// A whole number from 0 on, or nothing.
std::optional<double> CountIn(const Json& value, double most) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(number >= 0 && number <= most) || number != std::floor(number)) return std::nullopt;
  return number;
}

StatusOr<int> IntIn(const Json& value, const std::string& path) {
  if (const auto number = CountIn(value, 2147483647)) return static_cast<int>(*number);
  return error::Mismatch(path, Kind(value), "a whole number of at least 0");
}

Status CheckList(const Json& value, const std::string& path) {
  return value.is_array() ? OkStatus() : error::Mismatch(path, Kind(value), "a list");
}

// Adds what one member of a record says.
class Counts {
 public:
  explicit Counts(std::vector<double>& tokens_per_expert) : counts_(tokens_per_expert), seen_(counts_.size()) {}

  // Those that were listed one by one, and the experts that they chose.
  double listed_tokens() const { return listed_tokens_; }
  double listed_pairs() const { return listed_pairs_; }

  Status AddTokens(const Json& tokens, const std::string& path) {
    RETURN_IF_ERROR(CheckList(tokens, path));
    if (!tokens.empty() && !tokens.front().is_array()) return AddToken(tokens, path);
    return ForEach(tokens, path, &Counts::AddToken);
  }
  Status AddMap(const Json& tokens, const std::string& path) { return ForEach(tokens, path, &Counts::AddMapped); }
  Status AddBatches(const Json& batches, const std::string& path) { return ForEach(batches, path, &Counts::AddCounts); }

  Status AddCounts(const Json& counts, const std::string& path) {
    RETURN_IF_ERROR(CheckPerExpert(counts, path));
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      const auto count = CountIn(counts[expert], kMostTokens);
      if (!count) {
        return error::Mismatch(ItemPath(path, expert), Kind(counts[expert]), "a whole number of tokens, at least 0");
      }
      counts_[expert] += *count;
    }
    return OkStatus();
  }

 private:
  static constexpr double kMostTokens = 9007199254740992;  // Beyond, a double skips whole numbers.

  Status ForEach(const Json& list, const std::string& path, Status (Counts::*add)(const Json&, const std::string&)) {
    RETURN_IF_ERROR(CheckList(list, path));
    for (size_t i = 0; i < list.size(); ++i) RETURN_IF_ERROR((this->*add)(list[i], ItemPath(path, i)));
    return OkStatus();
  }

  Status CheckPerExpert(const Json& list, const std::string& path) const {
    RETURN_IF_ERROR(CheckList(list, path));
    if (list.size() == counts_.size()) return OkStatus();
    return error::Mismatch(path, StrCat(list.size(), " values"),
                           StrCat("one for each of layer.experts, which is ", counts_.size(),
                                  ": those of all ranks in one list, or top_indices"));
  }

  Status AddToken(const Json& experts, const std::string& path) {
    RETURN_IF_ERROR(CheckList(experts, path));
    ++token_;
    ++listed_tokens_;
    listed_pairs_ += static_cast<double>(experts.size());
    for (size_t i = 0; i < experts.size(); ++i) {
      const auto expert = CountIn(experts[i], static_cast<double>(counts_.size()) - 1);
      if (!expert) {
        return error::Mismatch(
            ItemPath(path, i), Kind(experts[i]),
            StrCat("an expert from 0 to ", counts_.size() - 1, ", as layer.experts is ", counts_.size()));
      }
      const auto index = static_cast<size_t>(*expert);
      if (std::exchange(seen_[index], token_) == token_) {
        return error::Mismatch(ItemPath(path, i), StrCat("expert ", index, " again"), "each expert of a token once");
      }
      ++counts_[index];
    }
    return OkStatus();
  }

  Status AddMapped(const Json& row, const std::string& path) {
    RETURN_IF_ERROR(CheckPerExpert(row, path));
    for (size_t expert = 0; expert < row.size(); ++expert) {
      const auto flag =
          row[expert].is_boolean() ? std::optional<double>(row[expert].get<bool>()) : CountIn(row[expert], 1);
      if (!flag) return error::Mismatch(ItemPath(path, expert), Kind(row[expert]), "0, 1, false or true");
      counts_[expert] += *flag;
      listed_pairs_ += *flag;
    }
    ++listed_tokens_;
    return OkStatus();
  }

  std::vector<double>& counts_;
  std::vector<int64_t> seen_;  // By expert: the last token that chose it.
  int64_t token_ = 0;
  double listed_tokens_ = 0, listed_pairs_ = 0;
};

constexpr const char* kLayers[] = {"layer", "layer_number", "layer_id"};
constexpr std::pair<const char*, Status (Counts::*)(const Json&, const std::string&)> kMembers[] = {
    {"top_indices", &Counts::AddTokens}, {"topk_indices", &Counts::AddTokens},      {"topk_ids", &Counts::AddTokens},
    {"routing_map", &Counts::AddMap},    {"tokens_per_expert", &Counts::AddCounts}, {"tpe", &Counts::AddBatches},
};

// The first of the names that the record has.
template <typename Names, typename NameOf>
StatusOr<const std::remove_extent_t<Names>*> OnlyOne(const Json& record, const Names& names, NameOf name_of,
                                                     const std::string& where) {
  const std::remove_extent_t<Names>* only = nullptr;
  for (const auto& name : names) {
    if (!record.contains(name_of(name))) continue;
    if (only != nullptr) {
      return error::Mismatch(where, StrCat(name_of(*only), " and ", name_of(name)), "one of them");
    }
    only = &name;
  }
  return only;
}

StatusOr<std::optional<int>> LayerOf(const Json& record, const std::string& where) {
  ASSIGN_OR_RETURN(const auto* name, OnlyOne(
                                         record, kLayers, [](const char* one) { return one; }, where));
  if (name == nullptr) return std::optional<int>();
  ASSIGN_OR_RETURN(const int layer, IntIn(record[*name], FieldPath(where, *name)));
  return std::optional<int>(layer);
}

bool IsMtp(const Json& record) {
  const auto block = record.find("block");
  return block != record.end() && *block == "mtp";
}

// A record that was cut short says so.
Status CheckSizes(const Json& record, const Json& tokens, const std::string& where) {
  if (const auto stated = record.find("num_tokens"); stated != record.end()) {
    const std::string path = FieldPath(where, "num_tokens");
    ASSIGN_OR_RETURN(const int count, IntIn(*stated, path));
    const bool one = !tokens.empty() && !tokens.front().is_array();
    const size_t found = one ? 1 : tokens.size();
    if (found != static_cast<size_t>(count))
      return error::Mismatch(path, StrCat(count), StrCat(found, ", the tokens that are listed"));
  }
  if (const auto stated = record.find("topk"); stated != record.end()) {
    const std::string path = FieldPath(where, "topk");
    ASSIGN_OR_RETURN(const int count, IntIn(*stated, path));
    for (const Json& token : tokens) {
      const size_t found = token.is_array() ? token.size() : tokens.size();
      if (found != static_cast<size_t>(count))
        return error::Mismatch(path, StrCat(count), StrCat(found, ", as many as a token lists"));
    }
  }
  return OkStatus();
}

// Parsers and what they make recurse, or are freed level by level, so depth is limited before.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Status UnreadableFile(const std::string& path, std::string_view why) {
  return InvalidInput(StrCat(path, ": found ", why, ", expected a router trace, JSON lines"));
}

}  // namespace

StatusOr<RouterTraceReader> RouterTraceReader::Make(const RouterTraceOptions& options) {
  if (options.experts < 1 || options.experts > kMaxRoutedExperts) {
    return error::Mismatch("layer.experts", StrCat(options.experts),
                           StrCat("1 to ", kMaxRoutedExperts, " with a router trace"));
  }
  if (options.layer && *options.layer < 0) {
    return error::Mismatch("--router-layer", StrCat(*options.layer), "a whole number of at least 0");
  }
  return RouterTraceReader(options);
}

Status RouterTraceReader::ReadFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return UnreadableFile(path, "a directory");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return UnreadableFile(path, StrCat("no readable file (", std::strerror(errno), ")"));
  RETURN_IF_ERROR(Read(file, path));
  return file.bad() ? UnreadableFile(path, "a file that breaks off while it is read") : OkStatus();
}

Status RouterTraceReader::Read(std::istream& trace, const std::string& path) {
  std::string line;
  std::vector<char> block(1 << 16);
  int64_t number = 1;
  const auto end_line = [&] {
    const Status status = ReadLine(line, StrCat(path, ":", number));
    line.clear();
    ++number;
    return status;
  };
  while (trace.read(block.data(), static_cast<std::streamsize>(block.size())) || trace.gcount() > 0) {
    std::string_view rest(block.data(), static_cast<size_t>(trace.gcount()));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      line += rest.substr(0, end);
      if (line.size() > kMaxJsonBytes) {
        return InvalidInput(StrCat(path, ":", number, ": found a line of more than ", kMaxJsonBytes,
                                   " bytes, expected at most that many"));
      }
      if (end == std::string_view::npos) break;
      RETURN_IF_ERROR(end_line());
      rest.remove_prefix(end + 1);
    }
  }
  return end_line();
}

Status RouterTraceReader::ReadLine(std::string_view line, const std::string& where) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return OkStatus();
  if (TooDeep(line)) return error::Mismatch(where, StrCat("more than ", kMaxJsonDepth, " nested values"), "fewer");
  const Json record = Json::parse(line, /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) {
    return error::Mismatch(where, record.is_discarded() ? "no JSON" : Kind(record), "one JSON object on the line");
  }
  ASSIGN_OR_RETURN(const std::optional<int> layer, LayerOf(record, where));
  ASSIGN_OR_RETURN(const auto* member, OnlyOne(
                                           record, kMembers, [](const auto& one) { return one.first; }, where));
  if (member == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, add] : kMembers) names.emplace_back(name);
    return error::Mismatch(where, "none of them", StrCat("one of ", CommaList(names)));
  }
  if (options_.layer) {
    if (!layer)
      return error::Mismatch(FieldPath(where, "layer"), "nothing", "a number, as --router-layer asks for one");
    if (*layer != *options_.layer || IsMtp(record)) {
      if (!IsMtp(record) && other_layers_.size() < 64) other_layers_.insert(*layer);
      return OkStatus();
    }
  }
  const Json& value = record[member->first];
  Counts counts(tokens_per_expert_);
  RETURN_IF_ERROR((counts.*member->second)(value, FieldPath(where, member->first)));
  listed_tokens_ += counts.listed_tokens();
  listed_pairs_ += counts.listed_pairs();
  if (member->second == &Counts::AddTokens) RETURN_IF_ERROR(CheckSizes(record, value, where));
  found_ = true;
  return OkStatus();
}

std::optional<double> RouterTraceReader::ExpertsPerToken() const {
  return listed_tokens_ > 0 ? std::optional(listed_pairs_ / listed_tokens_) : std::nullopt;
}

StatusOr<std::vector<double>> RouterTraceReader::TokensPerExpert() const {
  if (!found_) {
    std::vector<std::string> layers;
    for (const int layer : other_layers_) layers.push_back(StrCat(layer));
    if (!layers.empty())
      return error::Mismatch("--router-layer", StrCat(*options_.layer), StrCat("one of ", CommaList(layers)));
    return InvalidInput(options_.layer
                            ? StrCat("router trace: found no record of layer ", *options_.layer, ", expected one")
                            : std::string("router trace: found no record, expected at least one line"));
  }
  if (std::ranges::max(tokens_per_expert_) > 0) return tokens_per_expert_;
  return InvalidInput("router trace: found no token, expected at least one");
}

}  // namespace moeplan
