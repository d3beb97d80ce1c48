#include "cli/reproduce/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "cli/options.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

bool IsClose(double ratio) { return std::abs(ratio - 1) <= kCloseBy; }

bool IsChoice(const v1::ReproducedRow& row) { return !row.paper_choice().empty() || !row.our_choice().empty(); }

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

}  // namespace

void AddRow(v1::ReproducedTable& table, const Figure& figure) {
  v1::ReproducedRow& row = *table.add_rows();
  row.set_name(figure.name);
  row.set_unit(figure.unit);
  row.set_fitted(figure.fitted);
  if (figure.paper) row.set_paper(*figure.paper);
  if (figure.ours) row.set_ours(*figure.ours);
  if (!figure.paper || !figure.ours) return;
  row.set_ratio(*figure.ours / *figure.paper);
  if (!IsClose(row.ratio())) row.set_why(figure.why);
}

void AddRow(v1::ReproducedTable& table, const Choice& choice) {
  v1::ReproducedRow& row = *table.add_rows();
  row.set_name(choice.name);
  row.set_paper_choice(choice.paper);
  row.set_our_choice(choice.ours);
  if (choice.ratio) row.set_ratio(*choice.ratio);
  if (choice.paper != choice.ours) row.set_why(choice.why);
}

v1::ReproducedTable MakeTable(std::string paper, std::string title) {
  v1::ReproducedTable table;
  table.set_paper(std::move(paper));
  table.set_title(std::move(title));
  return table;
}

void Summarise(v1::Reproduction& reproduction) {
  int compared = 0, close = 0;
  for (const v1::ReproducedTable& table : reproduction.tables()) {
    for (const v1::ReproducedRow& row : table.rows()) {
      if (!row.has_ratio() || row.fitted() || IsChoice(row)) continue;
      ++compared;
      close += IsClose(row.ratio());
    }
  }
  reproduction.set_compared(compared);
  reproduction.set_close(close);
}

std::string Text(const v1::ReproducedTable& table) {
  const bool compares = std::ranges::any_of(table.rows(), HasPaper);
  std::vector<std::vector<std::string>> rows = {{"", "ours"}};
  if (compares) rows = {{"", "paper", "ours", "ours/paper"}};
  std::vector<std::string> reasons;
  for (const v1::ReproducedRow& row : table.rows()) {
    std::string mark;
    if (!row.why().empty()) {
      if (std::ranges::find(reasons, row.why()) == reasons.end()) reasons.push_back(row.why());
      mark = StrCat(" [", std::ranges::find(reasons, row.why()) - reasons.begin() + 1, "]");
    }
    std::vector<std::string>& cells = rows.emplace_back();
    cells.push_back(StrCat(row.name(), row.fitted() ? " (fitted)" : "", mark));
    if (compares) cells.push_back(PaperText(row));
    cells.push_back(OurText(row));
    if (compares) cells.push_back(row.has_ratio() ? Format("%.2f", row.ratio()) : "");
  }
  std::string text = StrCat(table.title(), "\n", Table(rows));
  for (size_t i = 0; i < reasons.size(); ++i) text += StrCat("  [", i + 1, "] ", reasons[i], "\n");
  return text + "\n";
}

std::string Summary(const v1::Reproduction& reproduction) {
  if (reproduction.compared() == 0) return "";
  return StrCat(reproduction.close(), " of ", reproduction.compared(),
                " figures within 15 %, fitted ones and choices not counted\n");
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace moeplan::cli
