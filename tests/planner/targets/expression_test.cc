#include "planner/targets/expression.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "models/text.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;

Json Values(std::string_view name) {
  if (name == "a") return 6;
  if (name == "b") return 4;
  if (name == "zero") return 0;
  if (name == "model.name") return "flex";
  if (name == "modules") return {"moe", "mlp"};
  if (name == "on") return true;
  return nullptr;
}

Json Of(const std::string& text) {
  const StatusOr<Expression> expression = Expression::Parse(text);
  EXPECT_TRUE(expression.ok()) << text << ": " << expression.status().message();
  return expression.ok() ? expression->Evaluate(Values) : Json("not parsed");
}

TEST(ExpressionTest, IsPythons) {
  EXPECT_EQ(Of("a % (b - 1) == 0"), true);
  EXPECT_EQ(Of("a // b + a / b"), 2.5);
  EXPECT_EQ(Of("-7 // 2"), -4);
  EXPECT_EQ(Of("-7 % 3"), 2);
  EXPECT_EQ(Of("7 % -3"), -2);
  EXPECT_EQ(Of("not on or 'moe' in modules and b > 3"), true);
  EXPECT_EQ(Of("'core' not in modules"), true);
  EXPECT_EQ(Of("model.name in ['flex', 'alltoall']"), true);
  EXPECT_EQ(Of("on == 1"), true);
  EXPECT_EQ(Of("absent or 5"), 5);
  EXPECT_EQ(Of("zero and absent"), 0);
  EXPECT_EQ(Of("1.5 * 2"), 3.0);
}

TEST(ExpressionTest, WhatIsNotKnownHasNoOrderAndNoSum) {
  EXPECT_EQ(Of("absent + 1"), nullptr);
  EXPECT_EQ(Of("absent > 1"), nullptr);
  EXPECT_EQ(Of("a % zero"), nullptr);
  EXPECT_EQ(Of("a / zero"), nullptr);
  EXPECT_EQ(Of("model.name < 3"), nullptr);
  EXPECT_EQ(Of("absent == None"), true);
  EXPECT_EQ(Of("absent in modules"), false);
}

TEST(ExpressionTest, WhatIsNoneIsRefusedWithItsPlace) {
  const auto refusal = [](const std::string& text) { return Expression::Parse(text).status().message(); };
  EXPECT_EQ(refusal("a =! b"), "character 3: found '=', which no expression has");
  EXPECT_EQ(refusal("a +"), "character 4: found the end, expected a value");
  EXPECT_EQ(refusal("(a"), "character 3: found the end, expected ')'");
  EXPECT_EQ(refusal("a b"), "character 3: found 'b', expected the end");
  EXPECT_EQ(refusal("1 < a < 8"), "character 9: found '8', expected 'and' before a further comparison");
  EXPECT_EQ(refusal("'open"), "character 1: a text without its end");
  EXPECT_NE(refusal(std::string(5000, '(')), "");
  EXPECT_NE(refusal(std::string(4000, '(')), "");
  EXPECT_NE(refusal(std::string(4000, '-')), "");
}

// Everything that tables write, at random; deeper ones in parentheses, as Python's chains of comparisons are refused.
class Writer {
 public:
  explicit Writer(std::mt19937_64& random) : random_(random) {}

  std::string Text(int depth) {
    if (depth == 0) return Leaf();
    switch (Pick(6)) {
      case 0: return StrCat("(", Text(depth - 1), One({" + ", " - ", " * ", " // ", " % "}), Text(depth - 1), ")");
      case 1:
        return StrCat("(", Text(depth - 1), One({" == ", " != ", " < ", " <= ", " > ", " >= "}), Text(depth - 1), ")");
      case 2: return StrCat("(", Text(depth - 1), One({" and ", " or "}), Text(depth - 1), ")");
      case 3: return StrCat("(not ", Text(depth - 1), ")");
      case 4: return StrCat("(", Leaf(), One({" in ", " not in "}), "[", Leaf(), ", ", Leaf(), "])");
      default: return Leaf();
    }
  }

 private:
  int Pick(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most)); }
  std::string One(std::initializer_list<const char*> texts) {
    return texts.begin()[Pick(static_cast<int>(texts.size()))];
  }
  std::string Leaf() { return One({"0", "1", "3", "8", "-5", "True", "False", "None", "'moe'", "'mlp'", "2.5"}); }

  std::mt19937_64& random_;
};

// Python is the reference; what it raises, and orders and sums of None and of texts, are null here.
constexpr const char* kReference = R"(
import json, sys
class Unknown(Exception): pass
import ast
def value(node):
    if isinstance(node, ast.Constant): return node.value
    if isinstance(node, ast.List): return [value(e) for e in node.elts]
    if isinstance(node, ast.UnaryOp):
        v = value(node.operand)
        if isinstance(node.op, ast.Not): return not v
        return -v if isinstance(v, (int, float)) else None
    if isinstance(node, ast.BoolOp):
        for e in node.values:
            v = value(e)
            if bool(v) == isinstance(node.op, ast.Or): return v
        return v
    if isinstance(node, ast.Compare):
        a, b, op = value(node.left), value(node.comparators[0]), node.ops[0]
        if isinstance(op, ast.Eq): return a == b
        if isinstance(op, ast.NotEq): return a != b
        if isinstance(op, ast.In): return a in b
        if isinstance(op, ast.NotIn): return a not in b
        number = lambda x: isinstance(x, (int, float))
        if not (number(a) and number(b)) and not (isinstance(a, str) and isinstance(b, str)): return None
        return {ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}[type(op)]
    a, b = value(node.left), value(node.right)
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)): return None
    try:
        return {ast.Add: lambda: a + b, ast.Sub: lambda: a - b, ast.Mult: lambda: a * b, ast.FloorDiv: lambda: a // b, ast.Mod: lambda: a % b}[type(node.op)]()
    except ZeroDivisionError: return None
print(json.dumps([value(ast.parse(t, mode='eval').body) for t in json.load(open(sys.argv[1]))]))
)";

TEST(ExpressionTest, RandomOnesAreWhatPythonSays) {
  std::mt19937_64 random(TestSeed());
  Writer writer(random);
  Json texts = Json::array();
  for (int i = 0; i < 3000; ++i) texts.push_back(writer.Text(1 + i % 4));
  const auto folder = std::filesystem::temp_directory_path() / StrCat("moeplan-expressions-", random());
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "texts.json") << texts.dump();
  std::ofstream(folder / "reference.py") << kReference;
  const std::string command = StrCat("python3 ", (folder / "reference.py").string(), " ",
                                     (folder / "texts.json").string(), " > ", (folder / "values.json").string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  const Json values = Json::parse(std::ifstream(folder / "values.json"));
  std::filesystem::remove_all(folder);
  ASSERT_EQ(values.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json ours = Of(texts[i].get<std::string>());
    const bool alike =
        ours.is_number() && values[i].is_number() ? ours.get<double>() == values[i].get<double>() : ours == values[i];
    EXPECT_TRUE(alike) << texts[i] << " is " << ours << ", Python says " << values[i];
  }
}

}  // namespace
}  // namespace moeplan::planner
