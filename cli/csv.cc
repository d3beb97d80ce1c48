#include "cli/csv.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "models/text.h"

namespace moeplan::cli {
namespace {

constexpr double kMostCount = 1 << 30;

std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// Takes records off the front of a text.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}

  bool AtEnd() const { return text_.empty(); }

  // False: a quote is never closed.
  bool Next(std::vector<std::string>& cells) {
    cells.assign(1, "");
    bool quoted = false;
    while (!text_.empty()) {
      const char c = Take();
      if (quoted) {
        if (c != '"') {
          cells.back() += c;
        } else if (text_.starts_with('"')) {
          cells.back() += Take();
        } else {
          quoted = false;
        }
      } else if (c == '"' && cells.back().empty()) {
        quoted = true;
      } else if (c == ',') {
        cells.emplace_back();
      } else if (c == '\n') {
        return true;
      } else if (c != '\r' || !text_.starts_with('\n')) {
        cells.back() += c;
      }
    }
    return !quoted;
  }

 private:
  char Take() {
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }

  std::string_view text_;
};

}  // namespace

std::string CsvRecord(const std::vector<std::string>& cells) {
  std::string record;
  for (size_t i = 0; i < cells.size(); ++i) record += (i > 0 ? "," : "") + Cell(cells[i]);
  return record + "\r\n";
}

StatusOr<CsvTable> CsvTable::Parse(std::string_view text, std::string source_name) {
  CsvTable table;
  table.source_name_ = std::move(source_name);
  CsvReader reader(text);
  std::vector<std::string> cells;
  size_t columns = 0;
  while (!reader.AtEnd()) {
    const size_t record = table.records_.size() + 1;
    if (!reader.Next(cells)) {
      return InvalidInput(StrCat(table.source_name_, " row ", record, ": found a quote that is never closed"));
    }
    if (cells.size() == 1 && cells.front().empty()) continue;
    if (table.columns_.empty()) {
      for (size_t i = 0; i < cells.size(); ++i) table.columns_.try_emplace(cells[i], i);
      columns = cells.size();
      continue;
    }
    if (cells.size() != columns) {
      return InvalidInput(StrCat(table.source_name_, " row ", record, ": found ", cells.size(), " cells, expected ",
                                 columns, ", as the header has"));
    }
    table.records_.push_back(cells);
  }
  if (table.columns_.empty()) return InvalidInput(StrCat(table.source_name_, ": found nothing, expected a header"));
  return table;
}

std::string_view CsvTable::Cell(size_t row, std::string_view column) const {
  const auto found = columns_.find(column);
  return found == columns_.end() ? std::string_view() : records_[row][found->second];
}

double CsvRow::Number(std::string_view column, double otherwise) {
  const std::string_view cell = table_.Cell(row_, column);
  if (cell.empty()) return otherwise;
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error == std::errc() && end == cell.data() + cell.size() && std::isfinite(number)) return number;
  Fail(column, "a number");
  return otherwise;
}

int CsvRow::Count(std::string_view column, int otherwise) {
  const double number = Number(column, otherwise);
  if (number >= 0 && number <= kMostCount && number == std::floor(number)) return static_cast<int>(number);
  Fail(column, "a whole number");
  return otherwise;
}

void CsvRow::Fail(std::string_view column, std::string_view expected) {
  if (!status_.ok()) return;
  status_ = InvalidInput(StrCat(table_.source_name(), " row ", row_ + 1, ": ", column, ": found '",
                                table_.Cell(row_, column), "', expected ", expected));
}

}  // namespace moeplan::cli
