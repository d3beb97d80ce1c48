// Rows in ZFP blocks of 4 values at 8 bits a value, by libzfp, for executor/codec alone.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "models/status.h"

namespace moeplan::executor {

// A stream of libzfp, set up once for many rows of the same length. One thread.
class ZfpRows {
 public:
  // kUnimplemented without libzfp.
  static StatusOr<std::unique_ptr<ZfpRows>> Make(int columns);
  virtual ~ZfpRows() = default;

  virtual void Encode(const float* row, std::byte* encoded) = 0;
  // NaN for a block that held a NaN or an infinity.
  virtual void Decode(const std::byte* encoded, float* row) = 0;
};

}  // namespace moeplan::executor
