// The words of a launch script, as a shell would pass them on.
//
// Quotes, comments, lines that go on, and the script's own variables (strings and arrays) are understood; what only a
// shell could know, such as $1 or $(...), stays as it is. Arguments that a variable has and nobody uses are words, too,
// since the text may be a part of a script. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"

namespace moeplan::planner {

inline constexpr size_t kMostShellWords = 20000;

// kInvalidInput: a quote has no end, or there are more than kMostShellWords, however they come about.
StatusOr<std::vector<std::string>> ShellWords(std::string_view text);

}  // namespace moeplan::planner
