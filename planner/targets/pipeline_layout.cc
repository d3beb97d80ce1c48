#include "planner/targets/pipeline_layout.h"

#include <algorithm>
#include <cctype>

#include "models/model/model_config.h"
#include "models/text.h"

namespace moeplan::planner {
namespace {

constexpr size_t kMostLetters = 4 * static_cast<size_t>(kMostLayers);
constexpr int kDeepestLayout = 16;

std::string Times(const std::string& text, int times) { return times == 1 ? text : StrCat(text, "*", times); }

// Writes repetitions out.
class Unrolled {
 public:
  explicit Unrolled(std::string_view text) : text_(text) {}

  StatusOr<std::string> Run() {
    ASSIGN_OR_RETURN(std::string letters, Sequence(0));
    if (at_ < text_.size()) return Fail("no ')' here");
    return letters;
  }

 private:
  StatusOr<std::string> Sequence(int depth) {
    std::string letters;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_++];
      if (c == ',' || std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      std::string piece(1, c);
      if (c == '(') {
        if (depth >= kDeepestLayout) return Fail("fewer parentheses");
        ASSIGN_OR_RETURN(piece, Sequence(depth + 1));
        if (at_ == text_.size()) return Fail("')'");
        ++at_;
      } else if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
        --at_;
        return Fail("E, t, m, L, | or parentheses");
      }
      ASSIGN_OR_RETURN(const int times, Repetitions());
      if (letters.size() + piece.size() * static_cast<size_t>(times) > kMostLetters) return Fail("fewer layers");
      for (int i = 0; i < times; ++i) letters += piece;
    }
    return letters;
  }

  StatusOr<int> Repetitions() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    ++at_;
    int times = 0;
    const size_t first = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 && times <= kMostLayers) {
      times = 10 * times + (text_[at_++] - '0');
    }
    if (at_ == first || times > kMostLayers) return Fail(StrCat("a number up to ", kMostLayers));
    return times;
  }

  Status Fail(std::string_view expected) const {
    return InvalidInput(StrCat("character ", at_ + 1, " of '", text_.substr(0, 80), "': expected ", expected));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string PipelineLayoutText(const PipelineLayout& layout) {
  std::vector<std::string> stages;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const bool first = i == 0, last = i + 1 == layout.layers.size();
    std::string stage = first ? "E" : "";
    if (layout.layers[i] > 0) stage += Times("t", layout.layers[i]);
    if (last && layout.next_tokens > 0) stage += Times("m", layout.next_tokens);
    stages.push_back(stage + (last ? "L" : ""));
  }
  std::string text;
  for (size_t i = 0; i < stages.size();) {
    size_t end = i + 1;
    while (end < stages.size() && stages[end] == stages[i]) ++end;
    const int alike = static_cast<int>(end - i);
    const bool goes_on = end < stages.size();
    // The last of all has no | behind it, so it never stands in a repetition.
    if (alike > 1) {
      text += Times(StrCat("(", stages[i], "|)"), goes_on ? alike : alike - 1);
      if (!goes_on) text += stages[i];
    } else {
      text += StrCat(stages[i], goes_on ? "|" : "");
    }
    i = end;
  }
  return text;
}

StatusOr<PipelineLayout> ParsePipelineLayout(std::string_view text) {
  ASSIGN_OR_RETURN(const std::string letters, Unrolled(text).Run());
  PipelineLayout layout = {.layers = {0}};
  for (size_t i = 0; i < letters.size(); ++i) {
    const char letter = letters[i];
    if (letter == 'E' && i > 0) return InvalidInput("expected E at the beginning alone");
    if (letter == 'L' && i + 1 < letters.size()) return InvalidInput("expected L at the end alone");
    if (letter == 't' && layout.next_tokens > 0) return InvalidInput("expected no t behind m");
    if (letter == 't') ++layout.layers.back();
    if (letter == 'm') ++layout.next_tokens;
    if (letter == '|') layout.layers.push_back(0);
    if (static_cast<int>(layout.layers.size()) > kMostLayers) {
      return InvalidInput(StrCat("expected at most ", kMostLayers, " stages"));
    }
  }
  if (letters.empty() || letters.front() != 'E' || letters.back() != 'L') {
    return InvalidInput("expected E first and L last");
  }
  return layout;
}

}  // namespace moeplan::planner
