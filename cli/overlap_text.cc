#include "cli/overlap_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "models/text.h"
#include "planner/wording.h"

namespace moeplan::cli {
namespace {

constexpr int kColumns = 68;

struct Letter {
  std::string_view task;
  char letter;
};
// Capitals go forward.
constexpr Letter kLetters[] = {{"attention", 'A'},      {"experts", 'E'},        {"dispatch", 'D'},
                               {"combine", 'C'},        {"attention_back", 'a'}, {"experts_back", 'e'},
                               {"dispatch_back", 'd'},  {"combine_back", 'c'},   {"attention_weights", 'w'},
                               {"experts_weights", 'w'}};

char LetterOf(std::string_view task) {
  const std::string_view name = task.substr(0, task.find('.'));
  const auto found = std::ranges::find(kLetters, name, &Letter::task);
  return found == std::end(kLetters) ? '?' : found->letter;
}

}  // namespace

std::string OverlapText(const Timeline& timeline) {
  double end_s = 0;
  for (const TaskTiming& task : timeline) end_s = std::max(end_s, task.end_s);
  std::string compute(kColumns, '.'), exchanges(kColumns, '.');
  for (const TaskTiming& task : timeline) {
    std::string& row = task.stream == StreamKind::kCompute ? compute : exchanges;
    const auto column = [&](double at_s) {
      return std::clamp(static_cast<int>(std::lround(kColumns * at_s / std::max(end_s, 1e-12))), 0, kColumns);
    };
    // A short task is seen, too.
    const int start = std::min(column(task.start_s), kColumns - 1), end = std::max(column(task.end_s), start + 1);
    for (int i = start; i < end; ++i) row[i] = LetterOf(task.task);
  }
  return StrCat("compute    ", compute, "\nexchanges  ", exchanges, "\n0 to ", planner::Duration(end_s),
                ". A attention and what is around experts, E experts, D dispatch,\n"
                "C combine; small letters go back, w are gradients of weights, . is idle.\n");
}

}  // namespace moeplan::cli
