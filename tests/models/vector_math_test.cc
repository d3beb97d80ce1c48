// erf and exp of floats that loops can vectorise, against those of the library in double precision.
#include "models/workload/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moeplan::vector_math {
namespace {

// Every so-manieth float of either sign up to `most`.
template <typename Check>
void ForFloats(float most, const Check& check) {
  for (float x = std::numeric_limits<float>::min(); x < most; x = std::nextafter(x * 1.0002F, most)) {
    check(x);
    check(-x);
  }
  for (const float x : {0.0F, -0.0F, most, -most}) check(x);
}

TEST(VectorMathTest, ErfIsWithinItsBound) {
  ForFloats(100, [](float x) { ASSERT_NEAR(Erf(x), std::erf(double{x}), 4e-7) << x; });
  EXPECT_EQ(Erf(0.0F), 0);
  // Where erf is as good as linear, the error is relative.
  ForFloats(1e-3F, [](float x) {
    if (std::abs(x) > 1e-30F) {  // Below, products on the way are too small for floats.
      ASSERT_NEAR(Erf(x), std::erf(double{x}), 4e-7 * std::abs(x)) << x;
    }
  });
}

TEST(VectorMathTest, ExpIsWithinItsBound) {
  ForFloats(87, [](float x) {
    const double expected = std::exp(double{x});
    ASSERT_NEAR(Exp(x), expected, 2e-7 * expected) << x;
  });
  EXPECT_EQ(Exp(0.0F), 1);
  EXPECT_LT(Exp(-1000.0F), 1.3e-38F);
  EXPECT_GT(Exp(1000.0F), 2e38F);
}

TEST(VectorMathTest, NotANumberStaysOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Erf(nan)));
  EXPECT_TRUE(std::isnan(Exp(nan)));
}

}  // namespace
}  // namespace moeplan::vector_math
