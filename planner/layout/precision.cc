#include "planner/layout/precision.h"

#include "models/check.h"

namespace moeplan::planner {

double SpeedupOf(const Roofline& roofline, Precision precision) {
  switch (precision) {
    case Precision::kBf16: return 1;
    case Precision::kFp8: return roofline.fp8_speedup;
    case Precision::kMxfp8: return roofline.mxfp8_speedup;
    case Precision::kNvfp4: return roofline.fp4_speedup;
  }
  MOEPLAN_CHECK(false);
  return 0;
}

const char* NameOf(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return "BF16";
    case Precision::kFp8: return "FP8";
    case Precision::kMxfp8: return "MXFP8";
    case Precision::kNvfp4: return "NVFP4";
  }
  MOEPLAN_CHECK(false);
  return "";
}

double OperandBytes(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return 2;
    case Precision::kFp8: return 1;
    case Precision::kMxfp8: return 1 + 1.0 / 32;
    case Precision::kNvfp4: return 0.5 + 1.0 / 16;
  }
  MOEPLAN_CHECK(false);
  return 0;
}

double ConvertedBytes(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return 0;
    case Precision::kFp8: return 5;
    case Precision::kMxfp8: return 4;
    case Precision::kNvfp4: return 6;
  }
  MOEPLAN_CHECK(false);
  return 0;
}

}  // namespace moeplan::planner
