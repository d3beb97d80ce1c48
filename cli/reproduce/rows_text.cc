#include "cli/reproduce/rows_text.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "cli/options.h"
#include "cli/reproduce/rows.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string Value(double value, const std::string& unit) {
  if (unit == kSeconds) return value < 1e-7 ? Format("%.3g s", value) : Duration(value);
  if (unit == kShare) return Percent(value);
  if (unit == kFactor) return Format("%.2fx", value);
  return Format("%.6g", value);
}

bool HasPaper(const v1::ReproducedRow& row) { return row.has_paper() || !row.paper_choice().empty(); }

std::string PaperText(const v1::ReproducedRow& row) {
  return IsChoice(row) ? OrDash(row.paper_choice()) : row.has_paper() ? Value(row.paper(), row.unit()) : "-";
}

std::string OurText(const v1::ReproducedRow& row) {
  return IsChoice(row) ? OrDash(row.our_choice()) : row.has_ours() ? Value(row.ours(), row.unit()) : "-";
}

std::string Lines(const std::string& label, const std::string& text, size_t indent) {
  std::string lines;
  for (const std::string& line : Wrapped(label, text, indent)) lines += line + "\n";
  return lines;
}

}  // namespace

std::string Text(const v1::ReproducedTable& table) {
  const bool compares = std::ranges::any_of(table.rows(), HasPaper);
  const bool judges = std::ranges::any_of(table.rows(), [](const auto& row) { return Holds(row).has_value(); });
  const bool has_ratios = std::ranges::any_of(table.rows(), [](const auto& row) { return row.has_ratio(); });
  std::vector<std::vector<std::string>> rows = {{""}};
  const auto add = [&](const std::string& paper, const std::string& ours, const std::string& ratio,
                       const std::string& verdict) {
    std::vector<std::string>& cells = rows.back();
    if (compares) cells.push_back(paper);
    cells.push_back(ours);
    if (has_ratios) cells.push_back(ratio);
    if (judges) cells.push_back(verdict);
  };
  add("paper", "ours", "ours/paper", "verdict");
  std::vector<std::string> reasons;
  for (const v1::ReproducedRow& row : table.rows()) {
    std::string mark;
    if (!row.why().empty()) {
      if (std::ranges::find(reasons, row.why()) == reasons.end()) reasons.push_back(row.why());
      mark = StrCat(" [", std::ranges::find(reasons, row.why()) - reasons.begin() + 1, "]");
    }
    const std::optional<bool> holds = Holds(row);
    rows.push_back({StrCat(row.name(), row.fitted() ? " (fitted)" : "", mark)});
    add(PaperText(row), OurText(row), row.has_ratio() ? Format("%.2f", row.ratio()) : "",
        !holds   ? ""
        : *holds ? "holds"
                 : "apart");
  }
  std::string text = Lines("", table.title(), 0) + Table(rows);
  for (size_t i = 0; i < reasons.size(); ++i) text += Lines(StrCat("  [", i + 1, "]"), reasons[i], 6);
  return text + "\n";
}

std::string Summary(const v1::Reproduction& reproduction) {
  if (reproduction.compared() == 0) return "";
  int statements = 0, hold = 0;
  for (const v1::ReproducedTable& table : reproduction.tables()) {
    for (const v1::ReproducedRow& row : table.rows()) {
      if (!IsChoice(row) || !Holds(row)) continue;
      ++statements;
      hold += *Holds(row) ? 1 : 0;
    }
  }
  const std::string said = statements > 0 ? StrCat(", and ", hold, " of ", statements, " choices and statements") : "";
  return Lines("",
               StrCat(reproduction.close(), " of ", reproduction.compared(), " figures hold", said,
                      ": within 15 %, or as near as a title says; fitted ones are not counted"),
               0);
}

}  // namespace moeplan::cli
