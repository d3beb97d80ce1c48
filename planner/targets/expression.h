// Conditions over named values, as tables of targets write them: a subset of Python's expressions, so that anybody can
// read them and Python can check them.
//
//   expression  or, and, not; == != < <= > >= in; + -; * / // %; -x; ( ), [a, b], numbers, 'text', True, False, None,
//   names
//
// A name may have dots. Values are JSON's: null, booleans, numbers, texts and lists. `and` and `or` give one of their
// operands and judge truth as Python does. Arithmetic and orders of null, of texts with numbers, and divisions by zero
// give null. Values only; parsed expressions may be evaluated by several threads at once.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan::planner {

class Expression {
 public:
  using Values = std::function<nlohmann::json(std::string_view name)>;

  // kInvalidInput, with the place in the text: it is no such expression, or longer or deeper than tables need.
  static StatusOr<Expression> Parse(std::string_view text);

  nlohmann::json Evaluate(const Values& values) const;
  // Every name that it asks for.
  const std::set<std::string>& names() const { return names_; }
  const std::string& text() const { return text_; }

 private:
  friend class ExpressionParser;
  struct Node;

  std::shared_ptr<const Node> root_;
  std::set<std::string> names_;
  std::string text_;
};

// Python's bool(): null, false, 0, "" and [] are not true.
bool IsTrue(const nlohmann::json& value);

}  // namespace moeplan::planner
