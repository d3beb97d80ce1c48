#include "cli/csv.h"

namespace moeplan::cli {
namespace {

std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string CsvRecord(const std::vector<std::string>& cells) {
  std::string record;
  for (size_t i = 0; i < cells.size(); ++i) record += (i > 0 ? "," : "") + Cell(cells[i]);
  return record + "\r\n";
}

}  // namespace moeplan::cli
