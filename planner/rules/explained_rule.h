// A rule's answer as formulas with their numbers filled in: written down by the code that computes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cost/operation.h"

namespace moeplan::planner {

// A cost inside a formula.
struct RuleTerm {
  std::string symbol;           // As the formula writes it: "AG_ESP(N_ESP·x)".
  std::optional<CostKey> cost;  // The profile's entry that answered; absent: nothing was asked, a group of one rank.
  double size = 0;              // Bytes or flops.
  double time_s = 0;
  double count = 1;  // How often it counts.
};

struct RuleTime {
  std::string name;     // "t_S1".
  std::string formula;  // In the symbols of its terms.
  std::vector<RuleTerm> terms;
  double time_s = 0;
  bool chosen = false;
};

struct ExplainedRule {
  std::string rule;                      // "parm", "monta" or "schemoe".
  std::string source;                    // The paper and its algorithm.
  std::vector<std::string> definitions;  // Of other symbols, "x = B·L·M·bpe = 8388608 bytes".
  std::vector<RuleTime> times;           // In the rule's order; none where it did not answer.
  std::string skipped;                   // Why it did not; empty: it did.
};

}  // namespace moeplan::planner
