// Comma-separated values (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace moeplan::cli {

// One record with its line end, CR LF. Cells with a comma, a quote or a line end are quoted.
std::string CsvRecord(const std::vector<std::string>& cells);

}  // namespace moeplan::cli
