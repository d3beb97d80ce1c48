// Comma-separated values (RFC 4180).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"

namespace moeplan::cli {

// One record with its line end, CR LF. Cells with a comma, a quote or a line end are quoted.
std::string CsvRecord(const std::vector<std::string>& cells);

// Records under a header, all of its length.
class CsvTable {
 public:
  // Lines end with LF or CR LF; empty lines are skipped; of columns with one name the first counts. kInvalidInput
  // naming `source_name` and the record: it has not as many cells as the header, a quote is never closed, or there is
  // no header.
  static StatusOr<CsvTable> Parse(std::string_view text, std::string source_name);

  size_t rows() const { return records_.size(); }
  bool Has(std::string_view column) const { return columns_.contains(column); }
  // Empty where there is no such column.
  std::string_view Cell(size_t row, std::string_view column) const;
  const std::string& source_name() const { return source_name_; }

 private:
  std::string source_name_;
  std::map<std::string, size_t, std::less<>> columns_;
  std::vector<std::vector<std::string>> records_;
};

// The cells of a row as what they should be. The first that is not is remembered, so that reading a row is a list of
// facts; ask status() before they are used. The table is borrowed.
class CsvRow {
 public:
  CsvRow(const CsvTable& table, size_t row) : table_(table), row_(row) {}

  std::string Text(std::string_view column) const { return std::string(table_.Cell(row_, column)); }
  bool Has(std::string_view column) const { return !table_.Cell(row_, column).empty(); }
  // An empty cell is `otherwise`. Finite; a whole number of at least 0 and at most 2^30.
  double Number(std::string_view column, double otherwise = 0);
  int Count(std::string_view column, int otherwise = 0);

  // "steps.csv row 3: tp: found 'x', expected a number"; rows count from 1, without the header.
  const Status& status() const { return status_; }

 private:
  void Fail(std::string_view column, std::string_view expected);

  const CsvTable& table_;
  size_t row_;
  Status status_;
};

}  // namespace moeplan::cli
