// What a codec makes of rows of elements on the wire: how long they get, and how wrong they may become.
//
// A row is `columns` elements of `bytes_per_element` bytes: 4, FP32, or 2, BF16. The arithmetic is executor/codec's.
// Pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "models/workload/workload.h"

namespace moeplan {

// Values that ZFP codes together: a block of its one-dimensional codec.
inline constexpr int kZfpBlock = 4;
// Blocks without a larger magnitude are coded as zeros: libzfp's own scaling overflows there (1.0.0).
inline constexpr double kZfpSmallest = 0x1p-96;

// Neighbouring columns that share a scale under FP8_BLOCKWISE, as rows are dispatched in DeepSeek-V3 (arXiv 2412.19437,
// §3.3.2): one that is far larger than the rest costs its own block precision, rather than all of its row.
inline constexpr int kFp8Block = 128;
// The columns that share a scale under FP8_BLOCKWISE, or under FP8 and INT8, of which a row has one, and the scales
// that the code of a row begins with. Both require one of the three codecs and at least one column.
int ColumnsOfScale(Codec codec, int columns);
int ScalesOfRow(Codec codec, int columns);

// For finite values, |decoded - value| <= relative · (largest magnitude in the scope) + absolute. What a decoder adds
// by rounding to BF16 elements is included. FP16 holds this up to 65504, what rounds beyond becomes infinite; BF16 up
// to the largest BF16.
struct CodecErrorBound {
  enum class Scope { kValue, kRow, kBlock } scope = Scope::kValue;
  double relative = 0;
  double absolute = 0;
  int block = kZfpBlock;  // Columns of one, where the scope is a block; the last of a row may have fewer.
};

// A codec that a program adds. Its functions are called from any thread.
struct OwnCodec {
  std::string name;
  // Of the code of a row, at least 1; what travels is rounded up to a multiple of 4.
  std::function<size_t(int columns)> row_bytes;
  // How wrong it may make a row of floats, finite and not negative. The rounding to BF16 elements is added to it.
  CodecErrorBound error_bound;
  // One row to its code, of row_bytes bytes, and back. A code depends on nothing but its row. A row with a NaN or an
  // infinity becomes anything that holds a NaN or an infinity: it must not pass for a value.
  std::function<void(std::span<const float> row, std::span<std::byte> code)> encode;
  std::function<void(std::span<const std::byte> code, std::span<float> row)> decode;
};
// kInvalidInput for a name that is none or is taken, and for a function that is missing.
StatusOr<Codec> AddCodec(OwnCodec codec);
// Requires a codec that was added.
const OwnCodec& OwnCodecOf(Codec codec);

// Bytes of one encoded row. FP8, INT8 and FP8_BLOCKWISE: 4 bytes for each scale, then a byte for each value, up to a
// multiple of 4; ZFP: 4 bytes for each begun block.
double EncodedRowBytes(Codec codec, int columns, int bytes_per_element);

// The share of a row's bytes that a codec leaves, its scales and padding aside, as ScheMoE counts it: FP16 and BF16
// take 2 bytes a value; FP8, FP8_BLOCKWISE, INT8 and ZFP take 1; NONE leaves all, and an own codec what its rows take.
double CompressionRatio(Codec codec, int columns, int bytes_per_element);

// All but NONE.
inline std::vector<Codec> LossyCodecs() { return AllFrom(Codec::kFp16); }

// What is left to do on the wire: BF16 of BF16 rows changes nothing and is NONE, others are themselves.
Codec CodecOnWire(Codec codec, int bytes_per_element);

// Whether decoded rows may differ from what was encoded. FP16 of BF16 rows is lossy too: FP16 has the digits, not the
// range.
bool IsLossy(Codec codec, int bytes_per_element);

// NONE: 0. FP16, BF16: half of the last digit kept. FP8, FP8_BLOCKWISE, INT8: half of the largest step, 32 of 448 and 1
// of 127. ZFP: see codec.cc.
CodecErrorBound ErrorBoundOf(Codec codec, int bytes_per_element);

}  // namespace moeplan
