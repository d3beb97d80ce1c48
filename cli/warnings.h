// Warnings for people, on standard error.
#pragma once

#include <string>
#include <vector>

namespace moeplan::cli {

// At most ten lines: warnings that say the same of different costs are one, with how many there are, and what most say
// comes first. --json has them all.
std::vector<std::string> GroupedWarnings(const std::vector<std::string>& warnings);

void PrintWarnings(const std::vector<std::string>& warnings);

}  // namespace moeplan::cli
