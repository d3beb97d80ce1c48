#include "executor/codec/zfp_rows.h"

#ifdef MOEPLAN_HAVE_ZFP
#include <zfp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "executor/codec/zfp_block.h"
#include "models/check.h"
#include "models/workload/codec.h"

namespace moeplan::executor {
namespace {

constexpr size_t kBlockBytes = 4;

// libzfp writes 64-bit words; blocks of 32 bits fill their halves in order.
static_assert(std::endian::native == std::endian::little);

class LibraryRows final : public ZfpRows {
 public:
  explicit LibraryRows(int columns)
      : columns_(columns),
        blocks_((columns + kZfpBlock - 1) / kZfpBlock),
        words_(blocks_ / 2 + 1),
        bits_(stream_open(words_.data(), words_.size() * sizeof(uint64_t)), &stream_close),
        stream_(zfp_stream_open(bits_.get()), &zfp_stream_close) {
    MOEPLAN_CHECK(bits_ != nullptr && stream_ != nullptr);
    constexpr double kBitsPerValue = 8;
    zfp_stream_set_rate(stream_.get(), kBitsPerValue, zfp_type_float, /*dims=*/1, zfp_false);
    MOEPLAN_CHECK(stream_->minbits == 8 * kBlockBytes && stream_->maxbits == 8 * kBlockBytes);
  }

  void Encode(const float* row, std::byte* encoded) override {
    constexpr float kZeros[kZfpBlock] = {};
    zfp_stream_rewind(stream_.get());
    for (int block = 0; block < blocks_; ++block) {
      if (IsCodable(row, block)) {
        zfp_encode_partial_block_strided_float_1(stream_.get(), row + block * kZfpBlock, Values(block), 1);
      } else {
        zfp_encode_block_float_1(stream_.get(), kZeros);
      }
    }
    zfp_stream_flush(stream_.get());
    std::memcpy(encoded, words_.data(), blocks_ * kBlockBytes);
    for (int block = 0; block < blocks_; ++block) {
      if (!IsFinite(row, block)) std::memcpy(encoded + block * kBlockBytes, &kZfpNotFinite, kBlockBytes);
    }
  }

  void Decode(const std::byte* encoded, float* row) override {
    std::memcpy(words_.data(), encoded, blocks_ * kBlockBytes);
    zfp_stream_rewind(stream_.get());
    for (int block = 0; block < blocks_; ++block) {
      float* const values = row + block * kZfpBlock;
      zfp_decode_partial_block_strided_float_1(stream_.get(), values, Values(block), 1);
      if (std::memcmp(encoded + block * kBlockBytes, &kZfpNotFinite, kBlockBytes) == 0) {
        std::fill_n(values, Values(block), std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

 private:
  int Values(int block) const { return std::min(kZfpBlock, columns_ - block * kZfpBlock); }

  float LargestOf(const float* row, int block) const {
    float largest = 0;
    for (int i = 0; i < Values(block); ++i) largest = std::max(largest, std::abs(row[block * kZfpBlock + i]));
    return largest;
  }
  bool IsFinite(const float* row, int block) const {
    bool finite = true;
    for (int i = 0; i < Values(block); ++i) finite &= std::isfinite(row[block * kZfpBlock + i]);
    return finite;
  }
  bool IsCodable(const float* row, int block) const {
    return IsFinite(row, block) && LargestOf(row, block) >= kZfpSmallest;
  }

  int columns_, blocks_;
  std::vector<uint64_t> words_;
  std::unique_ptr<bitstream, decltype(&stream_close)> bits_;
  std::unique_ptr<zfp_stream, decltype(&zfp_stream_close)> stream_;
};

}  // namespace

StatusOr<std::unique_ptr<ZfpRows>> ZfpRows::Make(int columns) { return std::make_unique<LibraryRows>(columns); }

}  // namespace moeplan::executor

#else

namespace moeplan::executor {

StatusOr<std::unique_ptr<ZfpRows>> ZfpRows::Make(int) {
  return Unimplemented("codec ZFP: this build has no libzfp; install libzfp-dev and build again");
}

}  // namespace moeplan::executor

#endif
