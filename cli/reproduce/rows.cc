#include "cli/reproduce/rows.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace moeplan::cli {
namespace {

constexpr const char* kUnexplained = "nothing was found that explains it";

}  // namespace

bool Allowed::Holds(double paper, double ours) const {
  return points > 0 ? std::abs(ours - paper) <= points : std::abs(ours / paper - 1) <= share;
}

void AddRow(v1::ReproducedTable& table, const Figure& figure) {
  v1::ReproducedRow& row = *table.add_rows();
  row.set_name(figure.name);
  row.set_unit(figure.unit);
  row.set_fitted(figure.fitted);
  if (figure.paper) row.set_paper(*figure.paper);
  if (figure.ours) row.set_ours(*figure.ours);
  if (!figure.compared || !figure.paper || !figure.ours) return;
  row.set_ratio(*figure.ours / *figure.paper);
  if (figure.allowed.Holds(*figure.paper, *figure.ours)) return;
  row.set_why(figure.why.empty() ? kUnexplained : figure.why);
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

bool IsChoice(const v1::ReproducedRow& row) { return !row.paper_choice().empty() || !row.our_choice().empty(); }

std::optional<bool> Holds(const v1::ReproducedRow& row) {
  if (IsChoice(row)) {
    if (row.has_ratio() || row.paper_choice().empty() || row.our_choice().empty()) return std::nullopt;
    return row.paper_choice() == row.our_choice();
  }
  if (!row.has_ratio() || row.fitted()) return std::nullopt;
  return row.why().empty();
}

void Summarise(v1::Reproduction& reproduction) {
  int compared = 0, close = 0;
  for (const v1::ReproducedTable& table : reproduction.tables()) {
    for (const v1::ReproducedRow& row : table.rows()) {
      const std::optional<bool> holds = Holds(row);
      if (!holds || IsChoice(row)) continue;
      ++compared;
      close += *holds ? 1 : 0;
    }
  }
  reproduction.set_compared(compared);
  reproduction.set_close(close);
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace moeplan::cli
