#include "executor/cuda/codec_kernels.h"

#include <cfloat>

#include "executor/codec/zfp_block.h"
#include "executor/cuda/access.cuh"
#include "executor/cuda/codec_access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"

namespace moeplan::executor::cuda {
namespace {

constexpr int kScaleBytes = sizeof(float);
constexpr int kCachedAccesses = 4;  // Of a thread: the whole row up to 1,024 accesses.
// Codes of a byte that a thread decodes at a time: a word of them, so that those of a warp lie side by side.
constexpr int kDecodedCodes = 4;

// Rows of elements beside rows of codes.
struct CodedRows {
  PlacedRows elements;
  std::byte* codes = nullptr;
  int columns = 0;
  int64_t code_bytes = 0;  // Of a row.
  int scales = 0;          // The code of a row begins with so many.

  template <typename Element>
  __device__ Element* ElementsOf(int64_t row) const {
    return reinterpret_cast<Element*>(elements.data) + row * columns;
  }
  __device__ std::byte* CodesOf(int64_t row) const { return codes + row * code_bytes; }
};

// Of the threads that share a row, at most a block.
__device__ uint32_t LargestOfRow(uint32_t value, int threads_per_row) {
  __shared__ uint32_t of_warps[kThreads / 32];
  for (int distance = threads_per_row < 32 ? threads_per_row / 2 : 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  if (threads_per_row <= 32) return value;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = threads_per_row / 32;
  if (threadIdx.x % 32 == 0) of_warps[warp] = value;
  __syncthreads();
  for (int i = 0; i < warps; ++i) value = max(value, of_warps[warp / warps * warps + i]);
  __syncthreads();
  return value;
}

template <typename Element, int kCount>
__device__ uint32_t LargestMagnitudeBits(const Access<Element, kCount>& access) {
  uint32_t largest = 0;
#pragma unroll
  for (const Element& element : access.elements) largest = max(largest, BitsOf(ValueOf(element)) & 0x7fffffff);
  return largest;
}

template <typename Code, typename Element, int kCount>
__device__ void StoreScaled(const Access<Element, kCount>& access, float inverse, bool finite, std::byte* codes) {
  float scaled[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) scaled[i] = ValueOf(access.elements[i]) * inverse;
  if constexpr (kCount == 1) {
    *reinterpret_cast<uint8_t*>(codes) = finite ? Code::CodeOf(scaled[0]) : 0;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      reinterpret_cast<uint32_t*>(codes)[i / 4] = finite ? Code::CodesOf(scaled + i) : 0;
    }
  }
}

template <typename Code, typename Element, int kCount>
__global__ void EncodeScaledKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  const int first = launch.FirstAccess(threadIdx.x), stride = launch.AccessStride();
  const int64_t all_rows = rows.elements.Rows(), own = launch.FirstRow(0, threadIdx.x);
  // All threads of a block come round as often, because they meet at the barrier.
  for (int64_t start = launch.FirstRow(blockIdx.x, 0); start < all_rows; start += launch.RowStride()) {
    const int64_t row = start + own;
    const int accesses = row < all_rows ? launch.accesses_per_row : 0;
    const auto* const from = reinterpret_cast<const Access<Element, kCount>*>(rows.ElementsOf<Element>(row));
    Access<Element, kCount> cached[kCachedAccesses] = {};
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < kCachedAccesses; ++j) {
      const int i = first + j * stride;
      if (i < accesses) cached[j] = from[i];
    }
#pragma unroll
    for (int j = 0; j < kCachedAccesses; ++j) largest = max(largest, LargestMagnitudeBits(cached[j]));
    for (int i = first + kCachedAccesses * stride; i < accesses; i += stride) {
      largest = max(largest, LargestMagnitudeBits(from[i]));
    }
    const float scale = RowScale(LargestOfRow(largest, launch.threads_per_row), Code::kLargest), inverse = 1 / scale;
    if (row >= all_rows) continue;
    const bool finite = scale == scale;
    std::byte* const codes = rows.CodesOf(row) + kScaleBytes;
    if (first == 0) {
      *reinterpret_cast<float*>(rows.CodesOf(row)) = scale;
      for (int64_t i = rows.columns; i < rows.code_bytes - kScaleBytes; ++i) codes[i] = std::byte{0};
    }
#pragma unroll
    for (int j = 0; j < kCachedAccesses; ++j) {
      const int i = first + j * stride;
      if (i < accesses) StoreScaled<Code>(cached[j], inverse, finite, codes + i * kCount);
    }
    for (int i = first + kCachedAccesses * stride; i < accesses; i += stride) {
      StoreScaled<Code>(from[i], inverse, finite, codes + i * kCount);
    }
  }
}

// A scale for each block of columns, which the threads of a row of `launch` share.
template <typename Code, typename Element, int kCount>
__global__ void EncodeBlocksKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  constexpr int kAccesses = kFp8Block / kCount, kOfAThread = kCount == 1 ? 4 : 1;
  const int first = launch.FirstAccess(threadIdx.x), stride = launch.AccessStride();
  const int64_t all_blocks = rows.elements.Rows() * rows.scales, own = launch.FirstRow(0, threadIdx.x);
  for (int64_t start = launch.FirstRow(blockIdx.x, 0); start < all_blocks; start += launch.RowStride()) {
    const int64_t item = start + own, row = item / rows.scales;
    const int block = static_cast<int>(item % rows.scales), column = block * kFp8Block;
    const int accesses = item < all_blocks ? min(kAccesses, (rows.columns - column) / kCount) : 0;
    const auto* const from = reinterpret_cast<const Access<Element, kCount>*>(rows.ElementsOf<Element>(row) + column);
    Access<Element, kCount> taken[kOfAThread] = {};
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < kOfAThread; ++j) {
      const int i = first + j * stride;
      if (i < accesses) taken[j] = from[i];
      largest = max(largest, LargestMagnitudeBits(taken[j]));
    }
    const float scale = RowScale(LargestOfRow(largest, launch.threads_per_row), Code::kLargest), inverse = 1 / scale;
    if (item >= all_blocks) continue;
    const bool finite = scale == scale;
    std::byte* const codes = rows.CodesOf(row) + rows.scales * kScaleBytes;
    if (first == 0) {
      reinterpret_cast<float*>(rows.CodesOf(row))[block] = scale;
      if (block == rows.scales - 1) {
        for (int64_t i = rows.columns; i < rows.code_bytes - rows.scales * kScaleBytes; ++i) codes[i] = std::byte{0};
      }
    }
#pragma unroll
    for (int j = 0; j < kOfAThread; ++j) {
      const int i = first + j * stride;
      if (i < accesses) StoreScaled<Code>(taken[j], inverse, finite, codes + column + i * kCount);
    }
  }
}

// A value next to the largest finite one of the type may lie beyond it once it is scaled back. NaN stays.
template <typename Element>
__device__ float Finite(float value) {
  const float largest = sizeof(Element) == 4 ? FLT_MAX : FloatFromBf16(0x7f7f);
#ifdef __CUDA_ARCH__
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(value), "f"(largest));
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(value), "f"(-largest));
  return value;
#else
  const float above = value < -largest ? -largest : value;
  return above > largest ? largest : above;
#endif
}

template <int kCount>
__device__ uint32_t CodesAt(const std::byte* codes, int access) {
  static_assert(kCount == 1 || kCount == kDecodedCodes);
  if constexpr (kCount == 1) return reinterpret_cast<const uint8_t*>(codes)[access];
  return reinterpret_cast<const uint32_t*>(codes)[access];
}

// `kBlocks`: a scale for each block of columns rather than one for the row.
template <typename Code, typename Element, int kCount, bool kBlocks>
__global__ void DecodeScaledKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  const int64_t all_rows = rows.elements.Rows();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < all_rows; row += launch.RowStride()) {
    const auto* const scales = reinterpret_cast<const float*>(rows.CodesOf(row));
    const float of_row = kBlocks ? 0 : scales[0];
    const std::byte* const codes = rows.CodesOf(row) + (kBlocks ? rows.scales : 1) * kScaleBytes;
    Element* const to = rows.ElementsOf<Element>(row);
    constexpr int kAtOnce = 8;
    const int stride = launch.AccessStride();
    // The compiler moves no load past a store, so the loads of several accesses come first.
    for (int first = launch.FirstAccess(threadIdx.x); first < launch.accesses_per_row; first += kAtOnce * stride) {
      uint32_t held[kAtOnce] = {};
      float scale_of[kAtOnce] = {};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * stride;
        if (i >= launch.accesses_per_row) continue;
        held[j] = CodesAt<kCount>(codes, i);
        if constexpr (kBlocks) scale_of[j] = scales[i * kCount / kFp8Block];
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * stride;
        if (i >= launch.accesses_per_row) continue;
        const float scale = kBlocks ? scale_of[j] : of_row;
        float values[kCount];
        if constexpr (kCount == 1) {
          values[0] = Code::ValueOf(static_cast<uint8_t>(held[j]));
        } else {
          Code::ValuesOf(held[j], values);
        }
#pragma unroll
        for (float& value : values) value = Finite<Element>(value * scale);
        StoreValues(values, to + i * kCount);
      }
    }
  }
}

template <typename Code, typename Element, int kCount>
__global__ void EncodeHalfKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  const int64_t all_rows = rows.elements.Rows();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < all_rows; row += launch.RowStride()) {
#pragma unroll 4
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += launch.AccessStride()) {
      float values[kCount];
      LoadValues(rows.ElementsOf<Element>(row) + i * kCount, values);
      Access<uint16_t, kCount> codes;
#pragma unroll
      for (int j = 0; j < kCount; ++j) codes.elements[j] = Code::CodeOf(values[j]);
      StoreAccess(codes, reinterpret_cast<Access<uint16_t, kCount>*>(rows.CodesOf(row)) + i);
    }
  }
}

template <typename Code, typename Element, int kCount>
__global__ void DecodeHalfKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  const int64_t all_rows = rows.elements.Rows();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < all_rows; row += launch.RowStride()) {
#pragma unroll 4
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += launch.AccessStride()) {
      const auto codes = reinterpret_cast<const Access<uint16_t, kCount>*>(rows.CodesOf(row))[i];
      float values[kCount];
#pragma unroll
      for (int j = 0; j < kCount; ++j) values[j] = Code::ValueOf(codes.elements[j]);
      StoreValues(values, rows.ElementsOf<Element>(row) + i * kCount);
    }
  }
}

// Accesses are blocks of ZFP where elements are taken one at a time.
template <typename Element, int kCount>
__global__ void EncodeZfpKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  const int64_t all_rows = rows.elements.Rows();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < all_rows; row += launch.RowStride()) {
    const Element* const from = rows.ElementsOf<Element>(row);
    auto* const codes = reinterpret_cast<uint32_t*>(rows.CodesOf(row));
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += launch.AccessStride()) {
      float block[kZfpBlock];
      if constexpr (kCount == 1) {
        const int values = min(kZfpBlock, rows.columns - i * kZfpBlock);
        for (int j = 0; j < kZfpBlock; ++j) block[j] = j < values ? ValueOf(from[i * kZfpBlock + j]) : 0;
        PadZfpBlock(values, block);
        codes[i] = ZfpCodeOf(block);
      } else {
        float values[kCount];
        LoadValues(from + i * kCount, values);
#pragma unroll
        for (int first = 0; first < kCount; first += kZfpBlock) {
#pragma unroll
          for (int j = 0; j < kZfpBlock; ++j) block[j] = values[first + j];
          codes[(i * kCount + first) / kZfpBlock] = ZfpCodeOf(block);
        }
      }
    }
  }
}

template <typename Element, int kCount>
__global__ void DecodeZfpKernel(const __grid_constant__ CodedRows rows, RowLaunch launch) {
  const int64_t all_rows = rows.elements.Rows();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < all_rows; row += launch.RowStride()) {
    Element* const to = rows.ElementsOf<Element>(row);
    const auto* const codes = reinterpret_cast<const uint32_t*>(rows.CodesOf(row));
    for (int i = launch.FirstAccess(threadIdx.x); i < launch.accesses_per_row; i += launch.AccessStride()) {
      float block[kZfpBlock];
      if constexpr (kCount == 1) {
        ZfpValuesOf(codes[i], block);
        for (int j = 0; j < kZfpBlock && i * kZfpBlock + j < rows.columns; ++j) {
          to[i * kZfpBlock + j] = ElementOf<Element>(Finite<Element>(block[j]));
        }
      } else {
        float values[kCount];
#pragma unroll
        for (int first = 0; first < kCount; first += kZfpBlock) {
          ZfpValuesOf(codes[(i * kCount + first) / kZfpBlock], block);
#pragma unroll
          for (int j = 0; j < kZfpBlock; ++j) values[first + j] = Finite<Element>(block[j]);
        }
        StoreValues(values, to + i * kCount);
      }
    }
  }
}

template <typename Element, int kCount>
__global__ void CopyRowsKernel(const __grid_constant__ CodedRows rows, bool to_codes, RowLaunch launch) {
  using Taken = Access<Element, kCount>;
  const int64_t all_rows = rows.elements.Rows();
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < all_rows; row += launch.RowStride()) {
    auto* const elements = reinterpret_cast<Taken*>(rows.ElementsOf<Element>(row));
    auto* const codes = reinterpret_cast<Taken*>(rows.CodesOf(row));
    CopyAccesses(to_codes ? elements : codes, to_codes ? codes : elements, launch.FirstAccess(threadIdx.x),
                 launch.accesses_per_row, launch.AccessStride());
  }
}

template <typename Element, int kCount>
void Run(Codec codec, const CodedRows& rows, bool encodes, cudaStream_t stream) {
  constexpr int kDecoded = kCount == 1 ? 1 : kDecodedCodes;
  const bool decodes_bytes =
      !encodes && (codec == Codec::kFp8 || codec == Codec::kInt8 || codec == Codec::kFp8Blockwise);
  const int elements = decodes_bytes ? kDecoded : kCount;  // Of an access.
  int accesses = rows.columns / elements;
  if (codec == Codec::kZfp && kCount == 1) accesses = (rows.columns + kZfpBlock - 1) / kZfpBlock;
  int64_t most_rows = MostRows(rows.elements.cells);
  if (codec == Codec::kFp8Blockwise && encodes) {
    most_rows *= rows.scales;
    accesses = kFp8Block / kCount;
  }
  // A thread stores as many elements of all codecs, so it has more of the accesses that are small.
  const RowLaunch launch = LaunchOfRows(most_rows, accesses, kAccessesPerThread * kCount / elements);
  if (launch.blocks == 0) return;
  const auto start = [&](auto* kernel) { Start(kernel, {dim3(launch.blocks), kThreads}, stream, rows, launch); };
  switch (codec) {
    case Codec::kNone:
      Start(CopyRowsKernel<Element, kCount>, {dim3(launch.blocks), kThreads}, stream, rows, encodes, launch);
      return;
    case Codec::kFp16:
      return start(encodes ? EncodeHalfKernel<Fp16Code, Element, kCount> : DecodeHalfKernel<Fp16Code, Element, kCount>);
    case Codec::kBf16:
      return start(encodes ? EncodeHalfKernel<Bf16Code, Element, kCount> : DecodeHalfKernel<Bf16Code, Element, kCount>);
    case Codec::kFp8:
      return start(encodes ? EncodeScaledKernel<Fp8Code, Element, kCount>
                           : DecodeScaledKernel<Fp8Code, Element, kDecoded, false>);
    case Codec::kInt8:
      return start(encodes ? EncodeScaledKernel<Int8Code, Element, kCount>
                           : DecodeScaledKernel<Int8Code, Element, kDecoded, false>);
    case Codec::kFp8Blockwise:
      return start(encodes ? EncodeBlocksKernel<Fp8Code, Element, kCount>
                           : DecodeScaledKernel<Fp8Code, Element, kDecoded, true>);
    case Codec::kZfp: return start(encodes ? EncodeZfpKernel<Element, kCount> : DecodeZfpKernel<Element, kCount>);
  }
}

Status StartCodec(Codec codec, const RowShape& shape, const CodedRows& rows, bool encodes, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckCodec(codec));
  const int elements = ElementsPerAccess(shape.element_bytes(), shape.row_bytes(), {rows.elements.data, rows.codes});
  ForElements(shape.type, elements, [&]<typename Element>(Element, auto count) {
    Run<Element, decltype(count)::value>(CodecOnWire(codec, shape.element_bytes()), rows, encodes, stream);
  });
  return LaunchStatus(encodes ? "the codes of rows" : "the rows of codes");
}

CodedRows RowsOf(Codec codec, const RowShape& shape, const PlacedRows& elements, std::byte* codes) {
  const bool has_scales = codec == Codec::kFp8 || codec == Codec::kInt8 || codec == Codec::kFp8Blockwise;
  return {.elements = elements,
          .codes = codes,
          .columns = shape.columns,
          .code_bytes = static_cast<int64_t>(EncodedRowBytes(codec, shape.columns, shape.element_bytes())),
          .scales = has_scales ? ScalesOfRow(codec, shape.columns) : 0};
}

}  // namespace

Status CheckCodec(Codec codec) {
  if (OwnNames<Codec>::IndexOf(codec) < 0) return OkStatus();
  return Unimplemented(
      StrCat("codec ", Name(codec), ": found one that a program adds, expected one with a CUDA kernel ",
             "(NONE, FP16, BF16, FP8, FP8_BLOCKWISE, INT8, ZFP); plan with one of these, or use the host backend"));
}

Status Encode(Codec codec, const RowShape& shape, const PlacedRows& in, std::byte* out, cudaStream_t stream) {
  return StartCodec(codec, shape, RowsOf(codec, shape, in, out), /*encodes=*/true, stream);
}

Status Decode(Codec codec, const RowShape& shape, const std::byte* in, const PlacedRows& out, cudaStream_t stream) {
  return StartCodec(codec, shape, RowsOf(codec, shape, out, const_cast<std::byte*>(in)), /*encodes=*/false, stream);
}

}  // namespace moeplan::executor::cuda
