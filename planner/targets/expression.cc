#include "planner/targets/expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/text.h"

namespace moeplan::planner {

using Json = nlohmann::json;

struct Expression::Node {
  enum class Kind { kValue, kName, kList, kUnary, kBinary } kind = Kind::kValue;
  Json value;        // A kValue's.
  std::string name;  // A kName's; the operator of a kUnary and of a kBinary.
  std::vector<std::shared_ptr<const Node>> children;
};

namespace {

constexpr size_t kMostCharacters = 4096;
constexpr int kDeepest = 64;

struct Word {
  enum class Kind { kEnd, kNumber, kText, kName, kSign } kind = Kind::kEnd;
  std::string text;
  size_t place = 0;
};

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  StatusOr<std::vector<Word>> All() {
    std::vector<Word> words;
    while (true) {
      ASSIGN_OR_RETURN(Word word, Next());
      const bool last = word.kind == Word::Kind::kEnd;
      words.push_back(std::move(word));
      if (last) return words;
    }
  }

 private:
  StatusOr<Word> Next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const size_t start = at_;
    if (at_ == text_.size()) return Word{Word::Kind::kEnd, "", start};
    const char c = text_[at_];
    if (c == '\'') {
      const size_t end = text_.find('\'', at_ + 1);
      if (end == std::string_view::npos)
        return InvalidInput(StrCat("character ", start + 1, ": a text without its end"));
      at_ = end + 1;
      return Word{Word::Kind::kText, std::string(text_.substr(start + 1, end - start - 1)), start};
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return Word{Word::Kind::kNumber, Take(), start};
    if (IsNameCharacter(c)) return Word{Word::Kind::kName, Take(), start};
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "//"}) {
      if (text_.substr(at_, sign.size()) == sign) return Sign(sign);
    }
    if (std::string_view("<>+-*/%()[],").find(c) != std::string_view::npos) return Sign(text_.substr(at_, 1));
    return InvalidInput(StrCat("character ", start + 1, ": found '", std::string(1, c), "', which no expression has"));
  }
  Word Sign(std::string_view sign) {
    const Word word = {Word::Kind::kSign, std::string(sign), at_};
    at_ += sign.size();
    return word;
  }
  // A name with its dots, or a number with its point.
  std::string Take() {
    const size_t start = at_;
    while (at_ < text_.size() && (IsNameCharacter(text_[at_]) || text_[at_] == '.')) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  std::string_view text_;
  size_t at_ = 0;
};

// ---- Values.

bool IsNumber(const Json& value) { return value.is_number() || value.is_boolean(); }
bool IsWhole(const Json& value) { return value.is_number_integer() || value.is_boolean(); }
std::int64_t Whole(const Json& value) {
  return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<std::int64_t>();
}
double Number(const Json& value) { return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>(); }

Json Finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json WholeArithmetic(const std::string& sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (sign == "+" && !__builtin_add_overflow(a, b, &result)) return result;
  if (sign == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
  if (sign == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  if (sign == "//" || sign == "%") {
    if (b == 0 || b == -1)
      return b == 0 ? Json(nullptr) : Json(sign == "%" ? Json(0) : Finite(-static_cast<double>(a)));
    const std::int64_t rest = ((a % b) + b) % b;  // As Python's, of the divisor's sign.
    return sign == "%" ? rest : (a - rest) / b;
  }
  return nullptr;
}

Json Arithmetic(const std::string& sign, const Json& a, const Json& b) {
  if (!IsNumber(a) || !IsNumber(b)) return nullptr;
  if (sign != "/" && IsWhole(a) && IsWhole(b)) {
    const Json whole = WholeArithmetic(sign, Whole(a), Whole(b));
    if (!whole.is_null() || sign == "//" || sign == "%") return whole;
  }
  const double x = Number(a), y = Number(b);
  if (sign == "+") return Finite(x + y);
  if (sign == "-") return Finite(x - y);
  if (sign == "*") return Finite(x * y);
  if (y == 0) return nullptr;
  if (sign == "/") return Finite(x / y);
  if (sign == "//") return Finite(std::floor(x / y));
  return Finite(x - y * std::floor(x / y));
}

bool Equal(const Json& a, const Json& b) {
  if (IsNumber(a) && IsNumber(b)) return Number(a) == Number(b);
  return a == b;
}

Json Contains(const Json& all, const Json& one) {
  if (all.is_array()) {
    return std::ranges::any_of(all, [&](const Json& other) { return Equal(other, one); });
  }
  if (all.is_string() && one.is_string()) {
    return all.get_ref<const std::string&>().find(one.get_ref<const std::string&>()) != std::string::npos;
  }
  return nullptr;
}

Json Order(const std::string& sign, const Json& a, const Json& b) {
  const bool texts = a.is_string() && b.is_string();
  if (!texts && !(IsNumber(a) && IsNumber(b))) return nullptr;
  const bool less = texts ? a < b : Number(a) < Number(b), equal = Equal(a, b);
  if (sign == "<") return less;
  if (sign == "<=") return less || equal;
  if (sign == ">") return !less && !equal;
  return !less;
}

Json Apply(const std::string& sign, const Json& a, const Json& b) {
  if (sign == "==") return Equal(a, b);
  if (sign == "!=") return !Equal(a, b);
  if (sign == "in") return Contains(b, a);
  if (sign == "not in") {
    const Json within = Contains(b, a);
    return within.is_null() ? within : Json(!within.get<bool>());
  }
  if (sign.front() == '<' || sign.front() == '>') return Order(sign, a, b);
  return Arithmetic(sign, a, b);
}

}  // namespace

bool IsTrue(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  return !value.is_null() && !value.empty() && value != "";
}

class ExpressionParser {
 public:
  using Node = Expression::Node;
  using Tree = std::shared_ptr<const Node>;

  explicit ExpressionParser(std::vector<Word> words) : words_(std::move(words)) {}

  StatusOr<Tree> Parse() {
    ASSIGN_OR_RETURN(Tree tree, Level(0));
    if (!Ended()) return Fail("the end");
    return tree;
  }
  const std::set<std::string>& names() const { return names_; }

 private:
  // From the loosest to the tightest; `not` stands between the second and the third.
  static constexpr int kNot = 2;
  static const std::vector<std::string_view>& SignsOf(int level) {
    static const std::array<std::vector<std::string_view>, 5> kSigns = {
        {{"or"}, {"and"}, {"==", "!=", "<", "<=", ">", ">=", "in"}, {"+", "-"}, {"*", "/", "//", "%"}}};
    return kSigns[static_cast<size_t>(level)];
  }

  StatusOr<Tree> Level(int level) {
    if (++depth_ > kDeepest * 8) return Fail("fewer parentheses");
    auto tree = InLevel(level);
    --depth_;
    return tree;
  }

  StatusOr<Tree> InLevel(int level) {
    if (level == 5) return Unary();
    if (level == kNot && TakeWord("not")) {
      ASSIGN_OR_RETURN(Tree operand, Level(kNot));
      return Make(Node::Kind::kUnary, "not", {std::move(operand)});
    }
    ASSIGN_OR_RETURN(Tree tree, Level(level + 1));
    for (int signs = 0;; ++signs) {
      const std::string sign = TakeSign(level);
      if (sign.empty()) return tree;
      // Python would take a < b < c for two comparisons.
      if (level == kNot && signs > 0) return Fail("'and' before a further comparison");
      ASSIGN_OR_RETURN(Tree right, Level(level + 1));
      tree = Make(Node::Kind::kBinary, sign, {std::move(tree), std::move(right)});
    }
  }

  StatusOr<Tree> Unary() {
    if (TakeWord("-")) {
      ASSIGN_OR_RETURN(Tree operand, Level(5));
      return Make(Node::Kind::kUnary, "-", {std::move(operand)});
    }
    if (TakeWord("(")) {
      ASSIGN_OR_RETURN(Tree inner, Level(0));
      if (!TakeWord(")")) return Fail("')'");
      return inner;
    }
    if (TakeWord("[")) return List();
    const Word word = words_[at_];
    if (word.kind == Word::Kind::kNumber) {
      ++at_;
      return NumberOf(word);
    }
    if (word.kind == Word::Kind::kText) {
      ++at_;
      return Value(word.text);
    }
    if (word.kind != Word::Kind::kName || word.text == "and" || word.text == "or" || word.text == "in") {
      return Fail("a value");
    }
    ++at_;
    if (word.text == "True" || word.text == "False") return Value(word.text == "True");
    if (word.text == "None") return Value(nullptr);
    names_.insert(word.text);
    return Make(Node::Kind::kName, word.text, {});
  }

  StatusOr<Tree> List() {
    std::vector<Tree> elements;
    while (!TakeWord("]")) {
      if (!elements.empty() && !TakeWord(",")) return Fail("',' or ']'");
      ASSIGN_OR_RETURN(Tree element, Level(0));
      elements.push_back(std::move(element));
    }
    return Make(Node::Kind::kList, "", std::move(elements));
  }

  StatusOr<Tree> NumberOf(const Word& word) {
    const char* const end = word.text.data() + word.text.size();
    std::int64_t whole = 0;
    if (const auto read = std::from_chars(word.text.data(), end, whole); read.ec == std::errc() && read.ptr == end) {
      return Value(whole);
    }
    double number = 0;
    const auto read = std::from_chars(word.text.data(), end, number);
    if (read.ec == std::errc() && read.ptr == end) return Value(number);
    return InvalidInput(StrCat("character ", word.place + 1, ": found '", word.text, "', expected a number"));
  }

  bool Ended() const { return words_[at_].kind == Word::Kind::kEnd; }
  bool Is(size_t at, std::string_view text) const {
    const Word& word = words_[std::min(at, words_.size() - 1)];
    return (word.kind == Word::Kind::kName || word.kind == Word::Kind::kSign) && word.text == text;
  }
  bool TakeWord(std::string_view text) {
    if (!Is(at_, text)) return false;
    ++at_;
    return true;
  }
  std::string TakeSign(int level) {
    if (level == kNot && Is(at_, "not") && Is(at_ + 1, "in")) {
      at_ += 2;
      return "not in";
    }
    for (const std::string_view sign : SignsOf(level)) {
      if (TakeWord(sign)) return std::string(sign);
    }
    return "";
  }
  Status Fail(std::string_view expected) const {
    const Word& word = words_[at_];
    return InvalidInput(StrCat("character ", word.place + 1, ": found ",
                               word.kind == Word::Kind::kEnd ? "the end" : StrCat("'", word.text, "'"), ", expected ",
                               expected));
  }
  static Tree Value(Json value) { return std::make_shared<Node>(Node{Node::Kind::kValue, std::move(value), "", {}}); }
  static Tree Make(Node::Kind kind, std::string name, std::vector<Tree> children) {
    return std::make_shared<Node>(Node{kind, nullptr, std::move(name), std::move(children)});
  }

  std::vector<Word> words_;
  size_t at_ = 0;
  int depth_ = 0;
  std::set<std::string> names_;

 public:
  static Json Evaluate(const Node& node, const Expression::Values& values) {
    switch (node.kind) {
      case Node::Kind::kValue: return node.value;
      case Node::Kind::kName: return values(node.name);
      case Node::Kind::kList: {
        Json list = Json::array();
        for (const Tree& child : node.children) list.push_back(Evaluate(*child, values));
        return list;
      }
      case Node::Kind::kUnary: {
        Json operand = Evaluate(*node.children[0], values);
        return node.name == "not" ? Json(!IsTrue(operand)) : Arithmetic("-", 0, operand);
      }
      case Node::Kind::kBinary: {
        Json left = Evaluate(*node.children[0], values);
        if (node.name == "and" && !IsTrue(left)) return left;
        if (node.name == "or" && IsTrue(left)) return left;
        Json right = Evaluate(*node.children[1], values);
        return node.name == "and" || node.name == "or" ? right : Apply(node.name, left, right);
      }
    }
    return nullptr;
  }
};

StatusOr<Expression> Expression::Parse(std::string_view text) {
  if (text.size() > kMostCharacters) {
    return InvalidInput(StrCat("found ", text.size(), " characters, expected at most ", kMostCharacters));
  }
  ASSIGN_OR_RETURN(std::vector<Word> words, Words(text).All());
  ExpressionParser parser(std::move(words));
  Expression expression;
  ASSIGN_OR_RETURN(expression.root_, parser.Parse());
  expression.names_ = parser.names();
  expression.text_ = text;
  return expression;
}

Json Expression::Evaluate(const Values& values) const { return ExpressionParser::Evaluate(*root_, values); }

}  // namespace moeplan::planner
