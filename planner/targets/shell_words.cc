#include "planner/targets/shell_words.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "models/text.h"

namespace moeplan::planner {
namespace {

class ShellTokens {
 public:
  explicit ShellTokens(std::string_view text) : text_(text) {}

  StatusOr<std::vector<std::string>> All() {
    while (at_ < text_.size()) {
      RETURN_IF_ERROR(Step());
      if (tokens_.size() > kMostShellWords)
        return InvalidInput(StrCat("found more than ", kMostShellWords, " arguments"));
    }
    End();
    // Arguments that the text sets aside and never uses: it is a part of a script.
    for (const auto& [name, words] : variables_) {
      const bool arguments = std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("--"); });
      if (arguments && !used_.contains(name)) tokens_.insert(tokens_.end(), words.begin(), words.end());
    }
    if (tokens_.size() > kMostShellWords)
      return InvalidInput(StrCat("found more than ", kMostShellWords, " arguments"));
    return std::move(tokens_);
  }

 private:
  Status Step() {
    const char c = text_[at_];
    if (c == '#' && !open_) {
      at_ = std::min(text_.size(), text_.find('\n', at_));
    } else if (c == '\\') {
      // A line that goes on; else the next character as it is.
      if (at_ + 1 < text_.size() && text_[at_ + 1] != '\n' && text_[at_ + 1] != '\r') Add(text_.substr(at_ + 1, 1));
      at_ += 2;
    } else if (c == '\'' || c == '"') {
      return Quoted(c);
    } else if (c == '$') {
      Dollar(/*splits=*/true);
    } else if (c == '(' && !array_ && open_ && IsAssignment(token_) && token_.back() == '=') {
      array_ = token_.substr(0, token_.size() - 1);
      variables_[*array_].clear();
      token_.clear(), open_ = false, ++at_;
    } else if (c == ')' && array_) {
      End();
      array_.reset(), ++at_;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';') {
      End(), ++at_;
    } else {
      Add(text_.substr(at_++, 1));
    }
    return OkStatus();
  }

  Status Quoted(char quote) {
    const size_t start = at_++;
    open_ = true;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (quote == '"' && text_[at_] == '$') {
        Dollar(/*splits=*/false);
      } else {
        if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
        token_ += text_[at_++];
      }
    }
    if (at_ == text_.size()) return InvalidInput(StrCat("character ", start + 1, ": found a quote without its end"));
    ++at_;
    return OkStatus();
  }

  // $NAME, ${NAME}, ${NAME:-other} and ${NAME[@]}. Words of an unquoted one are tokens each, and so are those that are
  // arguments.
  void Dollar(bool splits) {
    const bool braces = at_ + 1 < text_.size() && text_[at_ + 1] == '{';
    size_t end = at_ + (braces ? 2 : 1);
    const size_t first = end;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_'))
      ++end;
    const std::string name(text_.substr(first, end - first));
    std::optional<std::vector<std::string>> words;
    if (const auto known = variables_.find(name); known != variables_.end()) words = known->second, used_.insert(name);
    if (braces) {
      const size_t close = text_.find('}', end);
      const std::string_view rest = close == std::string_view::npos ? "" : text_.substr(end, close - end);
      if (!words && rest.starts_with(":-")) words = SplitAtSpaces(rest.substr(2));
      end = close == std::string_view::npos ? text_.size() : close + 1;
    }
    // Expansions of expansions must not make a short text long.
    if (words) expanded_ += words->size();
    if (name.empty() || !words || expanded_ > kMostShellWords) {
      Add(text_.substr(at_, end - at_));
      at_ = end;
      return;
    }
    at_ = end;
    const bool arguments = std::ranges::any_of(*words, [](const std::string& word) { return word.starts_with("--"); });
    for (size_t i = 0; i < words->size(); ++i) {
      if (i > 0 && (splits || arguments)) End();
      if (i > 0 && !splits && !arguments) Add(" ");
      Add((*words)[i]);
    }
  }

  static std::vector<std::string> SplitAtSpaces(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    for (const char c : text) {
      if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        word += c;
      } else if (!word.empty()) {
        words.push_back(std::move(word));
        word.clear();
      }
    }
    if (!word.empty()) words.push_back(std::move(word));
    return words;
  }

  // NAME=..., of a variable and not of a setting such as model.name=...
  static bool IsAssignment(std::string_view token) {
    size_t i = 0;
    while (i < token.size() && (std::isalnum(static_cast<unsigned char>(token[i])) != 0 || token[i] == '_')) ++i;
    return i > 0 && std::isdigit(static_cast<unsigned char>(token[0])) == 0 && i < token.size() &&
           (token[i] == '=' || token.substr(i, 2) == "+=");
  }

  void Add(std::string_view text) {
    open_ = true;
    token_ += text;
  }
  void End() {
    if (open_ && array_) {
      variables_[*array_].push_back(std::move(token_));
    } else if (open_ && IsAssignment(token_)) {
      const size_t equals = token_.find('=');
      const bool appends = token_[equals - 1] == '+';
      std::vector<std::string>& words = variables_[token_.substr(0, appends ? equals - 1 : equals)];
      if (!appends) words.clear();
      for (std::string& word : SplitAtSpaces(std::string_view(token_).substr(equals + 1)))
        words.push_back(std::move(word));
      // Overrides of some systems look the same.
      tokens_.push_back(std::move(token_));
    } else if (open_) {
      tokens_.push_back(std::move(token_));
    }
    token_.clear();
    open_ = false;
  }

  std::string_view text_;
  size_t at_ = 0, expanded_ = 0;
  bool open_ = false;
  std::string token_;
  std::optional<std::string> array_;  // The variable whose list is being read.
  std::vector<std::string> tokens_;
  std::map<std::string, std::vector<std::string>, std::less<>> variables_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

StatusOr<std::vector<std::string>> ShellWords(std::string_view text) { return ShellTokens(text).All(); }

}  // namespace moeplan::planner
