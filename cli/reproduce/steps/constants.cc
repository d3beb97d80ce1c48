#include "cli/reproduce/steps/constants.h"

namespace moeplan::cli {

double Constants::Use(std::string_view name, double value, const Constant& constant) {
  Used& used = used_.try_emplace(std::string(name), Used{constant, {}}).first->second;
  used.readers.insert(reader_);
  if (name != changed_) return value;
  constexpr double kChange = 0.1;
  const double sign = change_ == Change::kLess ? -1 : 1;
  return constant.whole ? value + sign : value * (1 + sign * kChange);
}

}  // namespace moeplan::cli
