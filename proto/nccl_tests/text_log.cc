#include "proto/nccl_tests/text_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "models/text.h"

namespace moeplan::nccl_tests {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

struct Token {
  std::string_view text;
  int end = 0;  // Column behind its last character.
};

std::vector<Token> Tokens(std::string_view line) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < line.size();) {
    if (IsBlank(line[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < line.size() && !IsBlank(line[at])) ++at;
    tokens.push_back({line.substr(begin, at - begin), static_cast<int>(at)});
  }
  return tokens;
}

// The whole of `text` as a number.
template <typename Number>
std::optional<Number> Parsed(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool AllDigits(std::string_view text) { return !text.empty() && std::ranges::all_of(text, IsDigit); }

// Foreign text in a message: short and printable.
std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string quoted = "'";
  for (const char c : text.substr(0, kMost)) quoted += c >= ' ' && c <= '~' ? c : '?';
  return quoted + (text.size() > kMost ? "...'" : "'");
}

// "[1,0]<stdout>:" of Open MPI's --tag-output and "12: " of Slurm's --label.
std::string_view WithoutTag(std::string_view line) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < line.size() && IsDigit(line[at])) ++at;
    return at > begin;
  };
  const auto word = [&](std::string_view expected) {
    const bool there = line.substr(at).starts_with(expected);
    if (there) at += expected.size();
    return there;
  };
  if (word("[") && digits() && word(",") && digits() && (word("]<stdout>:") || word("]<stderr>:"))) {
    return line.substr(at);
  }
  at = std::min(line.find_first_not_of(' '), line.size());
  if (digits() && word(": ")) return line.substr(at);
  return line;
}

// Where the cells of a table stand.
struct Header {
  std::vector<std::string> names;
  std::vector<int> ends;
  std::array<int, 2> times = {-1, -1};  // The columns of the times, out of place and in place.
  bool timestamps = false;              // Behind the last column; two words.

  int IndexOf(std::string_view name, int from = 0) const {
    for (size_t i = from; i < names.size(); ++i) {
      if (names[i] == name) return static_cast<int>(i);
    }
    return -1;
  }
};

bool NamesColumns(const std::vector<Token>& tokens) {
  const auto has = [&](std::string_view name) { return std::ranges::count(tokens, name, &Token::text) > 0; };
  return has("size") && (has("count") || has("busbw")) && (has("time") || has("cputime"));
}

// Something that NCCL or a launcher says between rows.
bool IsChatter(std::string_view line, const std::vector<Token>& tokens) {
  const auto has = [&](std::string_view part) { return line.find(part) != std::string_view::npos; };
  return has(" NCCL ") || line.starts_with("NCCL ") || has("RCCL ") || line.starts_with("[") ||
         line.starts_with("--") || tokens.front().text.starts_with("mpirun") ||
         tokens.front().text.starts_with("prterun") || tokens.front().text.starts_with("srun");
}

std::string_view BaseName(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

class LogReader {
 public:
  explicit LogReader(const std::string& path) : path_(path) {}

  void ReadLine(std::string_view raw) {
    ++line_;
    const std::string_view line = WithoutTag(raw);
    const std::vector<Token> tokens = Tokens(line);
    if (tokens.empty()) return;
    if (tokens.front().text.starts_with('#')) {
      Comment(line, line.substr(line.find('#') + 1));
    } else if (AllDigits(tokens.front().text)) {
      RowLine(line, tokens);
    } else if (in_table_ && !IsChatter(line, tokens)) {
      Fault(Quoted(line), "a row, a line that begins with '#', or one of NCCL's own");
    }
  }

  StatusOr<std::vector<Run>> Finish() && {
    EndRun();
    RETURN_IF_ERROR(faults_.status());
    return std::move(runs_);
  }

 private:
  std::string Where() const { return StrCat(path_, ":", line_); }
  void Fault(std::string_view found, std::string_view expected) { faults_.Add(Where(), found, expected); }

  // ---- Lines that begin with '#'.

  void Comment(std::string_view line, std::string_view body) {
    const std::vector<Token> tokens = Tokens(body);
    if (tokens.empty()) return;
    const std::string_view first = tokens.front().text;
    if (first == "nccl-tests" && tokens.size() > 2 && tokens[1].text == "version") {
      BeginRun();
      run_.version = std::string(body.substr(tokens.front().end - first.size()));
      TrimEnd(run_.version);
    } else if (body.find("Collective test starting:") != std::string_view::npos) {
      BeginRun();
      run_.program = std::string(BaseName(tokens.back().text));
    } else if (first == "nThread" || first == "nThreads") {
      if (said_threads_) EndRun();
      BeginRun();
      said_threads_ = true;
    } else if (first == "Rank") {
      RankLine(line, body, tokens);
    } else if (NamesColumns(tokens)) {
      HeaderLine(line);
    } else if (header_ && first.starts_with('(') && run_.rows.empty()) {
      UnitsLine(tokens);
    } else if (body.find("Out of bounds values") != std::string_view::npos) {
      FooterLine(tokens);
    } else if (first == "Avg" || body.find("Collective test concluded") != std::string_view::npos) {
      in_table_ = false;
    }
  }

  static void TrimEnd(std::string& text) {
    while (!text.empty() && IsBlank(text.back())) text.pop_back();
  }

  // A run that has begun to say who takes part is over when the next begins.
  void BeginRun() {
    if (header_ || !run_.ranks.empty()) EndRun();
  }

  void EndRun() {
    if (header_) runs_.push_back(std::move(run_));
    run_ = {};
    header_.reset();
    in_table_ = said_threads_ = false;
  }

  // Rank 0 [Group 0] Pid 12 on host device 0 [0000:04:00] NVIDIA H100
  void RankLine(std::string_view line, std::string_view body, const std::vector<Token>& tokens) {
    constexpr char kExpected[] = "'#  Rank N Group N Pid N on HOST device N [BUS] NAME'";
    if (header_) EndRun();
    size_t at = 1;
    // -1 for what is no number of ranks or devices.
    const auto number = [&] {
      constexpr int kMost = 1 << 24;
      const int parsed = at < tokens.size() ? Parsed<int>(tokens[at++].text).value_or(-1) : -1;
      return parsed > kMost ? -1 : parsed;
    };
    const auto word = [&](std::string_view expected) {
      return at < tokens.size() && tokens[at].text == expected && (++at, true);
    };
    Rank rank = {.rank = number()};
    if (word("Group")) rank.group = number();
    const bool pid = word("Pid") && at++ < tokens.size();
    if (!pid || !word("on") || at == tokens.size()) return Fault(Quoted(line), kExpected);
    rank.host = std::string(tokens[at++].text);
    rank.device = word("device") ? number() : -1;
    const bool bus = at < tokens.size() && tokens[at].text.starts_with('[') && tokens[at].text.ends_with(']');
    if (!bus || rank.rank < 0 || rank.group < 0 || rank.device < 0) return Fault(Quoted(line), kExpected);
    const size_t name = at + 1 < tokens.size() ? tokens[at + 1].end - tokens[at + 1].text.size() : body.size();
    rank.device_name = std::string(body.substr(name));
    TrimEnd(rank.device_name);
    run_.ranks.push_back(std::move(rank));
  }

  void HeaderLine(std::string_view line) {
    if (header_) EndRun();
    run_.where = Where();
    in_table_ = true;
    header_.emplace();
    const size_t mark = line.find('#');
    for (const Token& token : Tokens(line.substr(mark + 1))) {
      if (token.text == "timestamp") {
        header_->timestamps = true;
        continue;
      }
      header_->names.emplace_back(token.text);
      header_->ends.push_back(token.end + static_cast<int>(mark) + 1);
    }
    if (header_->IndexOf("cputime") >= 0) {
      return Fault("the column cputime (-C), the time that the processor takes to launch",
                   "time, as the programs print without -C");
    }
    header_->times[0] = header_->IndexOf("time");
    header_->times[1] = header_->IndexOf("time", header_->times[0] + 1);
    const bool known = header_->IndexOf("size") == 0 && header_->IndexOf("type") >= 0 && header_->times[1] >= 0;
    if (!known || header_->IndexOf("time", header_->times[1] + 1) >= 0) {
      header_->times = {-1, -1};
      Fault(Quoted(line), "the columns size, count, type, and twice time, algbw, busbw");
    }
  }

  void UnitsLine(const std::vector<Token>& tokens) {
    const bool bytes = tokens.front().text == "(B)";
    const bool microseconds = std::ranges::count(tokens, std::string_view("(us)"), &Token::text) >= 2;
    if (!bytes || !microseconds) Fault("other units", "sizes in (B) and times in (us)");
  }

  // Out of bounds values : 0 OK
  void FooterLine(const std::vector<Token>& tokens) {
    in_table_ = false;
    const auto colon = std::ranges::find(tokens, std::string_view(":"), &Token::text);
    const std::optional<double> wrong =
        colon == tokens.end() || colon + 1 == tokens.end() ? std::nullopt : Parsed<double>((colon + 1)->text);
    if (!wrong) return Fault("no number of out of bounds values", "'# Out of bounds values : 0 OK'");
    if (*wrong != 0) {
      Fault(StrCat(*wrong, " out of bounds values"), "0: the run computed wrong results; mend that and run it again");
    }
  }

  // ---- Rows.

  void RowLine(std::string_view line, std::vector<Token> tokens) {
    if (!in_table_) {
      constexpr size_t kFewestCells = 7;
      if (tokens.size() >= kFewestCells && AllDigits(tokens[1].text) && IsLetter(tokens[2].text.front())) {
        Fault("a row outside of a table", "its header, '#  size  count  type ...', above it");
      }
      return;
    }
    if (header_->times[0] < 0) return;  // The header was a fault.
    if (header_->timestamps) DropTimestamp(tokens);
    if (const Status status = FillRow(tokens); !status.ok()) {
      faults_.Add(Where(), StrCat("the row ", Quoted(line)), status.message());
    }
  }

  static void DropTimestamp(std::vector<Token>& tokens) {
    const auto is = [](std::string_view text, char separator) {
      return IsDigit(text.front()) && text.size() >= 8 && std::ranges::count(text, separator) == 2;
    };
    if (tokens.size() > 2 && is(tokens.back().text, ':') && is(tokens[tokens.size() - 2].text, '-')) {
      tokens.resize(tokens.size() - 2);
    }
  }

  // The cells by column, blank ones empty. Errors say what was expected of the row.
  StatusOr<std::vector<std::string_view>> Cells(const std::vector<Token>& tokens) const {
    const size_t columns = header_->names.size();
    std::vector<std::string_view> cells(columns);
    if (tokens.size() == columns) {
      std::ranges::transform(tokens, cells.begin(), &Token::text);
      return cells;
    }
    if (tokens.size() > columns) return InvalidInput(StrCat("at most ", columns, " cells"));
    constexpr int kOverhang = 2;  // "bfloat16" under a column of six.
    size_t column = 0;
    for (const Token& token : tokens) {
      while (column < columns && std::abs(header_->ends[column] - token.end) > kOverhang) ++column;
      if (column == columns) {
        return InvalidInput(StrCat(columns, " cells, or fewer that stand under their columns"));
      }
      cells[column++] = token.text;
    }
    return cells;
  }

  Status FillRow(const std::vector<Token>& tokens) {
    ASSIGN_OR_RETURN(const std::vector<std::string_view> cells, Cells(tokens));
    const auto cell = [&](std::string_view name) {
      const int index = header_->IndexOf(name);
      return index < 0 ? std::string_view() : cells[index];
    };
    Row row = {.where = Where(), .type = std::string(cell("type")), .redop = std::string(cell("redop"))};
    const std::optional<uint64_t> size = Parsed<uint64_t>(cell("size"));
    if (!size) return InvalidInput("a whole number of bytes under size");
    row.size_bytes = static_cast<double>(*size);
    if (header_->IndexOf("count") >= 0) {
      const std::optional<uint64_t> count = Parsed<uint64_t>(cell("count"));
      if (!count) return InvalidInput("a whole number of elements under count");
      row.count = static_cast<double>(*count);
    }
    if (row.type.empty() || !IsLetter(row.type.front())) return InvalidInput("a data type under type");
    if (!row.redop.empty() && !IsLetter(row.redop.front())) return InvalidInput("an operation under redop");
    if (!cell("root").empty() && !Parsed<int>(cell("root"))) return InvalidInput("a rank under root");
    ASSIGN_OR_RETURN(row.out_of_place, TimedFrom(cells, header_->times[0], header_->times[1]));
    ASSIGN_OR_RETURN(row.in_place, TimedFrom(cells, header_->times[1], static_cast<int>(cells.size())));
    if (!row.out_of_place && !row.in_place) return InvalidInput("a time");
    run_.rows.push_back(std::move(row));
    return OkStatus();
  }

  // What the columns from `first` to before `end` say; absent where the time is blank or N/A.
  StatusOr<std::optional<Timed>> TimedFrom(const std::vector<std::string_view>& cells, int first, int end) const {
    std::optional<double> time_us, algbw;
    bool whole = true;
    for (int i = first; i < end; ++i) {
      const std::string& name = header_->names[i];
      if (cells[i].empty() || cells[i] == "N/A") {
        whole = whole && name != "algbw" && name != "busbw";
        continue;
      }
      const std::optional<double> number = Parsed<double>(cells[i]);
      if (!number || !std::isfinite(*number) || *number < 0) {
        return InvalidInput(StrCat("a number of at least 0 or N/A under ", name, ", not ", Quoted(cells[i])));
      }
      if (name == "time") time_us = number;
      if (name == "algbw") algbw = number;
      if (name == "#wrong" && *number != 0) {
        return InvalidInput("0 under #wrong: the run computed a wrong result; mend that and run it again");
      }
    }
    if (!time_us) return std::optional<Timed>();
    if (!whole) return InvalidInput("algbw and busbw beside a time: the row breaks off");
    return std::optional<Timed>(Timed{*time_us, algbw});
  }

  const std::string path_;
  int line_ = 0;
  Run run_;
  std::optional<Header> header_;  // Of run_'s table.
  bool in_table_ = false;         // Behind the header, before the footer.
  bool said_threads_ = false;     // "# nThread" of run_ was there.
  std::vector<Run> runs_;
  Faults faults_;
};

}  // namespace

StatusOr<std::vector<Run>> ReadTextLog(const std::string& path, std::string_view text) {
  LogReader reader(path);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    reader.ReadLine(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(reader).Finish();
}

}  // namespace moeplan::nccl_tests
