// SQUARED_RELU: max(0, x)² between two matrices (So et al., Primer, 2021).
#include "examples.h"

namespace examples {
namespace {

struct SquaredRelu {
  static constexpr int kMatrices = 2;
  template <typename T>
  static T Hidden(T up, T) {
    return up > 0 ? up * up : 0;
  }
  template <typename T>
  static T UpSlope(T up, T) {
    return up > 0 ? 2 * up : 0;
  }
  template <typename T>
  static T GateUpSlope(T, T) {
    return 0;
  }
};

}  // namespace

moeplan::Status AddSquaredRelu() { return moeplan::RegisterExpert<SquaredRelu>("SQUARED_RELU").status(); }

}  // namespace examples
