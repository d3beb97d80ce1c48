#include "executor/codec/codec.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "executor/codec/values.h"
#include "executor/codec/zfp_rows.h"
#include "executor/host/elements.h"

namespace moeplan::executor {
namespace {

constexpr size_t kScaleBytes = sizeof(float);

uint32_t LargestMagnitudeBits(const float* row, int columns) {
  // As whole numbers magnitudes keep their order, with NaN above all.
  int32_t largest = 0;
  for (int i = 0; i < columns; ++i) largest = std::max(largest, static_cast<int32_t>(BitsOf(row[i]) & 0x7fffffff));
  return static_cast<uint32_t>(largest);
}

// How the code of a row with scales is laid out: the scale of each block of columns, then a byte for each value.
struct ScaledRow {
  int columns, block, scales;
  size_t bytes;

  size_t scale_bytes() const { return scales * kScaleBytes; }
};

ScaledRow ScaledRowOf(Codec codec, int columns, size_t row_bytes) {
  return {columns, ColumnsOfScale(codec, columns), ScalesOfRow(codec, columns), row_bytes};
}

// The scales, then what `kCodeOf` makes of each scaled value, then zeros.
template <auto kCodeOf>
void EncodeScaled(const float* row, const ScaledRow& shape, float largest_code, std::byte* encoded) {
  using Code = decltype(kCodeOf(0.0F));
  auto* const codes = reinterpret_cast<Code*>(encoded + shape.scale_bytes());
  for (int i = 0; i < shape.scales; ++i) {
    const int first = i * shape.block, end = std::min(shape.columns, first + shape.block);
    const float scale = RowScale(LargestMagnitudeBits(row + first, end - first), largest_code);
    std::memcpy(encoded + i * kScaleBytes, &scale, sizeof scale);
    if (scale != scale) {
      std::memset(codes + first, 0, end - first);
      continue;
    }
    const float inverse = 1 / scale;
    for (int j = first; j < end; ++j) codes[j] = kCodeOf(row[j] * inverse);
  }
  std::memset(codes + shape.columns, 0, shape.bytes - shape.scale_bytes() - shape.columns);
}

template <typename Code, auto kValueOf>
void DecodeScaled(const std::byte* encoded, const ScaledRow& shape, float* row) {
  const auto* const codes = reinterpret_cast<const Code*>(encoded + shape.scale_bytes());
  for (int i = 0; i < shape.scales; ++i) {
    float scale = 0;
    std::memcpy(&scale, encoded + i * kScaleBytes, sizeof scale);
    const int first = i * shape.block, end = std::min(shape.columns, first + shape.block);
    for (int j = first; j < end; ++j) row[j] = kValueOf(codes[j]) * scale;
  }
}

// A codec with whatever it keeps between rows of one call.
class RowCodec {
 public:
  static StatusOr<RowCodec> Make(Codec codec, const ElementRowsShape& shape) {
    RowCodec made(codec, shape);
    if (codec == Codec::kZfp) {
      ASSIGN_OR_RETURN(made.zfp_, ZfpRows::Make(shape.columns));
    }
    return made;
  }

  void Encode(const float* row, std::byte* encoded) {
    switch (codec_) {
      case Codec::kFp16: {
        auto* const codes = reinterpret_cast<uint16_t*>(encoded);
        for (int i = 0; i < columns_; ++i) codes[i] = Fp16FromFloat(row[i]);
        return;
      }
      case Codec::kFp8:
      case Codec::kFp8Blockwise: return EncodeScaled<&Fp8FromFloat>(row, scaled_row(), kLargestFp8, encoded);
      case Codec::kInt8: return EncodeScaled<&Int8FromFloat>(row, scaled_row(), kLargestInt8, encoded);
      case Codec::kZfp: return zfp_->Encode(row, encoded);
      case Codec::kNone:
      case Codec::kBf16: return Store(row, ElementType::kBfloat16, columns_, encoded);
    }
    const OwnCodec& own = OwnCodecOf(codec_);
    const size_t code_bytes = own.row_bytes(columns_);
    own.encode({row, static_cast<size_t>(columns_)}, {encoded, code_bytes});
    std::memset(encoded + code_bytes, 0, row_bytes_ - code_bytes);
  }

  void Decode(const std::byte* encoded, float* row) {
    switch (codec_) {
      case Codec::kFp16: {
        const auto* const codes = reinterpret_cast<const uint16_t*>(encoded);
        for (int i = 0; i < columns_; ++i) row[i] = FloatFromFp16(codes[i]);
        return;
      }
      case Codec::kFp8:
      case Codec::kFp8Blockwise: return DecodeScaled<uint8_t, &FloatFromFp8>(encoded, scaled_row(), row);
      case Codec::kInt8: return DecodeScaled<int8_t, &FloatFromInt8>(encoded, scaled_row(), row);
      case Codec::kZfp: return zfp_->Decode(encoded, row);
      case Codec::kNone:
      case Codec::kBf16: return Load(encoded, ElementType::kBfloat16, columns_, row);
    }
    const OwnCodec& own = OwnCodecOf(codec_);
    own.decode({encoded, own.row_bytes(columns_)}, {row, static_cast<size_t>(columns_)});
  }

  // Scaled back, a value next to the largest finite one of the type may lie beyond it, which the value did not.
  bool may_overshoot() const { return codec_ != Codec::kFp16 && codec_ != Codec::kBf16; }

 private:
  RowCodec(Codec codec, const ElementRowsShape& shape)
      : codec_(codec), columns_(shape.columns), row_bytes_(EncodedRowBytes(codec, shape)) {}

  ScaledRow scaled_row() const { return ScaledRowOf(codec_, columns_, row_bytes_); }

  Codec codec_;
  int columns_;
  size_t row_bytes_;
  std::unique_ptr<ZfpRows> zfp_;
};

void ClampToFinite(ElementType type, float* row, int columns) {
  const float largest = type == ElementType::kFloat32 ? std::numeric_limits<float>::max() : FloatFromBf16(0x7f7f);
  for (int i = 0; i < columns; ++i) {
    const float above = row[i] < -largest ? -largest : row[i];
    row[i] = above > largest ? largest : above;  // NaN stays.
  }
}

}  // namespace

Status CheckCodec(Codec codec) { return codec == Codec::kZfp ? ZfpRows::Make(kZfpBlock).status() : OkStatus(); }

size_t EncodedRowBytes(Codec codec, const ElementRowsShape& shape) {
  return static_cast<size_t>(EncodedRowBytes(codec, shape.columns, static_cast<int>(BytesOf(shape.type))));
}

Status Encode(Codec codec, const ElementRowsShape& shape, const std::byte* elements, std::byte* encoded) {
  const size_t element_bytes = BytesOf(shape.type), row_bytes = EncodedRowBytes(codec, shape);
  if (CodecOnWire(codec, static_cast<int>(element_bytes)) == Codec::kNone) {
    if (shape.rows > 0) std::memcpy(encoded, elements, shape.rows * row_bytes);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(RowCodec coder, RowCodec::Make(codec, shape));
  const bool are_floats = shape.type == ElementType::kFloat32;
  std::vector<float> loaded(are_floats ? 0 : shape.columns);
  for (int64_t row = 0; row < shape.rows; ++row, elements += shape.columns * element_bytes, encoded += row_bytes) {
    if (!are_floats) Load(elements, shape.type, shape.columns, loaded.data());
    coder.Encode(are_floats ? reinterpret_cast<const float*>(elements) : loaded.data(), encoded);
  }
  return OkStatus();
}

Status Decode(Codec codec, const ElementRowsShape& shape, const std::byte* encoded, std::byte* elements) {
  const size_t element_bytes = BytesOf(shape.type), row_bytes = EncodedRowBytes(codec, shape);
  if (CodecOnWire(codec, static_cast<int>(element_bytes)) == Codec::kNone) {
    if (shape.rows > 0) std::memcpy(elements, encoded, shape.rows * row_bytes);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(RowCodec coder, RowCodec::Make(codec, shape));
  const bool are_floats = shape.type == ElementType::kFloat32;
  std::vector<float> decoded(are_floats ? 0 : shape.columns);
  for (int64_t row = 0; row < shape.rows; ++row, elements += shape.columns * element_bytes, encoded += row_bytes) {
    float* const values = are_floats ? reinterpret_cast<float*>(elements) : decoded.data();
    coder.Decode(encoded, values);
    if (coder.may_overshoot()) ClampToFinite(shape.type, values, shape.columns);
    if (!are_floats) Store(values, shape.type, shape.columns, elements);
  }
  return OkStatus();
}

}  // namespace moeplan::executor
