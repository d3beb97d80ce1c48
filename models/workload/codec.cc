#include "models/workload/codec.h"

#include <cmath>

#include "models/check.h"
#include "models/registry.h"

namespace moeplan {
namespace {

int RoundUpTo(int multiple, int value) { return (value + multiple - 1) / multiple * multiple; }

double PowerOfTwo(int exponent) { return std::ldexp(1.0, exponent); }

// Float arithmetic around the one rounding that matters, with room to spare.
const double kSlack = PowerOfTwo(-20);

// A block of 4 values at 8 bits each is 32 bits: 9 say the common exponent e, 2^(e-1) <= largest < 2^e, and 23 the bit
// planes, from the 31st down, of the four coefficients of the block in units of 2^(e-30), in base -2.
//
// Planes cost most when all coefficients show early. One at most shows in plane 31, where it takes a coefficient below
// -2/3 · 2^30: the planes 31 and 30 take at most 9 bits and each further one at most 4. So the planes down to 27 are
// always there, 21 bits at most, and of plane 26 at least the bits of the first two coefficients (where less than three
// coefficients show, planes are cheaper and it is whole). In base -2 what the planes below p may add lies in
// [-1/3, 2/3] · 2^p for odd p, [-2/3, 1/3] · 2^p for even p: for the first two coefficients [-1/3, 1/6] · 2^27, for the
// others [-1/3, 2/3] · 2^27. The inverse transform has the rows (1, 3/2, -1, -1/4), (1, 1/2, 1, 5/4),
// (1, -1/2, 1, -5/4), (1, -3/2, -1, 1/4). Its second is the worst: 1/6 + 1/12 + 2/3 + 5/6 = 7/4 times 2^27, of a
// largest value of at least 2^29: 7/16.
constexpr double kZfpRelative = 7.0 / 16.0;

// Half a unit in the last of BF16's 8 digits.
const double kHalfBf16Digit = PowerOfTwo(-8);

Registry<OwnCodec>& OwnCodecs() {
  static Registry<OwnCodec> own;
  return own;
}

}  // namespace

StatusOr<Codec> AddCodec(OwnCodec codec) {
  if (!codec.row_bytes || !codec.encode || !codec.decode) {
    return InvalidInput(StrCat("codec ", codec.name, ": found no row_bytes, encode or decode, expected all three"));
  }
  for (const int columns : {1, 1024}) {
    constexpr size_t kMostBytesOfAValue = 8;
    const size_t bytes = codec.row_bytes(columns);
    if (bytes < 1 || bytes > 1024 + columns * kMostBytesOfAValue) {
      return InvalidInput(StrCat("codec ", codec.name, ": found row_bytes ", bytes, " of ", columns,
                                 " columns, expected 1 to ", 1024 + columns * kMostBytesOfAValue));
    }
  }
  const auto sound = [](double bound) { return std::isfinite(bound) && bound >= 0; };
  if (!sound(codec.error_bound.relative) || !sound(codec.error_bound.absolute)) {
    return InvalidInput(StrCat("codec ", codec.name, ": found an error bound of ", codec.error_bound.relative, " and ",
                               codec.error_bound.absolute, ", expected finite numbers of at least 0"));
  }
  ASSIGN_OR_RETURN(const Codec added, AddOwnName<Codec>(codec.name, "codec"));
  OwnCodecs().Add(std::move(codec));
  return added;
}

const OwnCodec& OwnCodecOf(Codec codec) {
  MOEPLAN_CHECK(OwnNames<Codec>::IndexOf(codec) >= 0);
  return OwnCodecs().At(OwnNames<Codec>::IndexOf(codec));
}

std::string_view Name(Codec codec) {
  switch (codec) {
    case Codec::kNone: return "NONE";
    case Codec::kFp16: return "FP16";
    case Codec::kBf16: return "BF16";
    case Codec::kFp8: return "FP8";
    case Codec::kInt8: return "INT8";
    case Codec::kZfp: return "ZFP";
    case Codec::kFp8Blockwise: return "FP8_BLOCKWISE";
  }
  return OwnNames<Codec>::NameOf(codec);
}

int ColumnsOfScale(Codec codec, int columns) {
  MOEPLAN_CHECK(codec == Codec::kFp8 || codec == Codec::kInt8 || codec == Codec::kFp8Blockwise);
  return codec == Codec::kFp8Blockwise ? kFp8Block : columns;
}

int ScalesOfRow(Codec codec, int columns) {
  const int of_a_scale = ColumnsOfScale(codec, columns);
  return (columns + of_a_scale - 1) / of_a_scale;
}

double EncodedRowBytes(Codec codec, int columns, int bytes_per_element) {
  switch (codec) {
    case Codec::kNone: return static_cast<double>(columns) * bytes_per_element;
    case Codec::kFp16:
    case Codec::kBf16: return 2.0 * columns;
    case Codec::kFp8:
    case Codec::kInt8:
    case Codec::kFp8Blockwise: return 4.0 * ScalesOfRow(codec, columns) + RoundUpTo(4, columns);
    case Codec::kZfp: return RoundUpTo(kZfpBlock, columns);
  }
  return RoundUpTo(4, static_cast<int>(OwnCodecOf(codec).row_bytes(columns)));
}

double CompressionRatio(Codec codec, int columns, int bytes_per_element) {
  switch (codec) {
    case Codec::kNone: return 1;
    case Codec::kFp16:
    case Codec::kBf16: return 2.0 / bytes_per_element;
    case Codec::kFp8:
    case Codec::kInt8:
    case Codec::kZfp:
    case Codec::kFp8Blockwise: return 1.0 / bytes_per_element;
  }
  return EncodedRowBytes(codec, columns, bytes_per_element) / (static_cast<double>(columns) * bytes_per_element);
}

Codec CodecOnWire(Codec codec, int bytes_per_element) {
  return codec == Codec::kBf16 && bytes_per_element == 2 ? Codec::kNone : codec;
}

bool IsLossy(Codec codec, int bytes_per_element) { return CodecOnWire(codec, bytes_per_element) != Codec::kNone; }

CodecErrorBound ErrorBoundOf(Codec codec, int bytes_per_element) {
  using Scope = CodecErrorBound::Scope;
  const bool bf16_rows = bytes_per_element == 2;
  const double rounding = kSlack + (bf16_rows ? kHalfBf16Digit : 0);
  switch (CodecOnWire(codec, bytes_per_element)) {
    case Codec::kNone: return {};
    // 11 digits hold the 8 of BF16; below 2^-14 the last digit stays 2^-24.
    case Codec::kFp16: return {Scope::kValue, bf16_rows ? 0 : PowerOfTwo(-11), PowerOfTwo(-25)};
    case Codec::kBf16: return {Scope::kValue, kHalfBf16Digit, PowerOfTwo(-134)};
    // A scale is at least 2^-126, the smallest normal float; rows far below that suffer.
    case Codec::kFp8: return {Scope::kRow, 16.0 / 448 + rounding, PowerOfTwo(-126 + 4)};
    case Codec::kFp8Blockwise: return {Scope::kBlock, 16.0 / 448 + rounding, PowerOfTwo(-126 + 4), kFp8Block};
    case Codec::kInt8: return {Scope::kRow, 0.5 / 127 + rounding, PowerOfTwo(-126)};
    // A decoded value may be 23/16 of the largest before it is rounded.
    case Codec::kZfp: return {Scope::kBlock, kZfpRelative + 2 * rounding, kZfpSmallest};
  }
  CodecErrorBound bound = OwnCodecOf(codec).error_bound;
  bound.relative += bf16_rows ? (1 + bound.relative) * kHalfBf16Digit : 0;
  return bound;
}

}  // namespace moeplan
