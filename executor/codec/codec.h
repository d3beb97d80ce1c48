// Rows of elements to what travels for them, and back (models/workload/codec.h: lengths and error bounds).
//
// Encoded rows have one length each and depend on nothing but their own row, so any of them can be sent, placed and
// decoded alone. FP8 and INT8 rows begin with their scale, the largest magnitude of the row / 448 or / 127;
// FP8_BLOCKWISE rows with the scales of their blocks of 128 columns, the largest magnitude of the block / 448.
//
// A NaN or an infinity stays what it is under FP16 and BF16; under FP8 and INT8 it makes its whole row NaN, under
// FP8_BLOCKWISE its block of 128, under ZFP its block of 4. The sign of zero is lost under INT8 and ZFP.
#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/rows.h"
#include "models/status.h"
#include "models/workload/codec.h"

namespace moeplan::executor {

struct ElementRowsShape {
  ElementType type = ElementType::kFloat32;
  int64_t rows = 0;
  int columns = 0;
};

// kUnimplemented when this build lacks what the codec needs: ZFP without libzfp.
Status CheckCodec(Codec codec);

// Bytes of one encoded row.
size_t EncodedRowBytes(Codec codec, const ElementRowsShape& shape);

// `elements`: rows × columns, without gaps; `encoded`: rows × EncodedRowBytes. Both aligned to 4 bytes, or to an
// element where that is 2 bytes and so is the code. Any thread; the only error is CheckCodec's.
Status Encode(Codec codec, const ElementRowsShape& shape, const std::byte* elements, std::byte* encoded);
Status Decode(Codec codec, const ElementRowsShape& shape, const std::byte* encoded, std::byte* elements);

}  // namespace moeplan::executor
