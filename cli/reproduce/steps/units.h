// The units that published tables are in, as factors to the SI's.
#pragma once

namespace moeplan::cli {

inline constexpr double kNano = 1e-9, kMicro = 1e-6, kMilli = 1e-3, kTera = 1e12;
inline constexpr double kGibi = 1 << 30;

}  // namespace moeplan::cli
