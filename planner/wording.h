// Numbers in explanations.
#pragma once

#include <string>

namespace moeplan::planner {

std::string Milliseconds(double time_s);  // Four digits: "12.34 ms".
std::string ThreeDigits(double value);    // "1.23", "4.5e+10".
std::string Duration(double seconds);     // "1.23 ms", "4.50 s".
std::string Percent(double share);        // "12.3 %" of 0.123.
std::string Gigabytes(double bytes);      // "12.3" of 1.23e10.

}  // namespace moeplan::planner
