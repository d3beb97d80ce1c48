// Numbers in explanations.
#pragma once

#include <string>

namespace moeplan::planner {

std::string Milliseconds(double time_s);  // Four digits: "12.34 ms".
std::string ThreeDigits(double value);    // "1.23", "4.5e+10".

}  // namespace moeplan::planner
