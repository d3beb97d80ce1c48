// FP4: a float that is the largest magnitude of the row / 6, then 4 bits for each value: a sign and one of eight
// magnitudes (OCP E2M1).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "examples.h"

namespace examples {
namespace {

constexpr float kMagnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
constexpr float kLargest = 6;
constexpr unsigned kSign = 8;

size_t RowBytes(int columns) { return sizeof(float) + (columns + 1) / 2; }

unsigned CodeOf(float scaled) {
  const float magnitude = std::abs(scaled);
  unsigned nearest = 0;
  for (unsigned code = 1; code < std::size(kMagnitudes); ++code) {
    if (std::abs(kMagnitudes[code] - magnitude) < std::abs(kMagnitudes[nearest] - magnitude)) nearest = code;
  }
  return nearest | (scaled < 0 ? kSign : 0);
}

float ValueOf(unsigned code) { return code & kSign ? -kMagnitudes[code & ~kSign] : kMagnitudes[code]; }

void Encode(std::span<const float> row, std::span<std::byte> code) {
  float largest = 0;
  bool finite = true;
  for (const float value : row) {
    largest = std::max(largest, std::abs(value));
    finite = finite && std::isfinite(value);
  }
  // What is not finite must not pass for a value: it makes its row NaN.
  const float scale = finite ? std::max(largest / kLargest, 0x1p-126F) : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(code.data(), &scale, sizeof scale);
  std::ranges::fill(code.subspan(sizeof scale), std::byte{0});
  for (size_t i = 0; i < row.size(); ++i) {
    code[sizeof scale + i / 2] |= static_cast<std::byte>(CodeOf(row[i] / scale) << (4 * (i % 2)));
  }
}

void Decode(std::span<const std::byte> code, std::span<float> row) {
  float scale = 0;
  std::memcpy(&scale, code.data(), sizeof scale);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = ValueOf(static_cast<unsigned>(code[sizeof scale + i / 2]) >> (4 * (i % 2)) & 15U) * scale;
  }
}

}  // namespace

moeplan::Status AddFp4() {
  // Half of the largest step, 2 of 6, and a little for the arithmetic.
  const moeplan::CodecErrorBound bound = {
      .scope = moeplan::CodecErrorBound::Scope::kRow, .relative = 1.0 / 6 + 0x1p-20, .absolute = 0x1p-124};
  return moeplan::RegisterCodec(
             {.name = "FP4", .row_bytes = RowBytes, .error_bound = bound, .encode = Encode, .decode = Decode})
      .status();
}

}  // namespace examples
