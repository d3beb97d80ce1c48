#include "executor/cuda/scratch.h"

#include <algorithm>

namespace moeplan::executor::cuda {
namespace {

constexpr size_t kAlignment = 256, kLeastPiece = size_t{1} << 16;

}  // namespace

void Scratch::Begin() { piece_ = used_ = 0; }

StatusOr<std::byte*> Scratch::Take(size_t bytes) {
  const size_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (piece_ < pieces_.size() && used_ + aligned > pieces_[piece_].bytes()) {
    ++piece_;
    used_ = 0;
  }
  if (piece_ == pieces_.size()) {
    ASSIGN_OR_RETURN(DeviceMemory made, device_.Allocate(std::max(aligned, kLeastPiece)));
    pieces_.push_back(std::move(made));
  }
  std::byte* const taken = pieces_[piece_].data() + used_;
  used_ += aligned;
  return taken;
}

}  // namespace moeplan::executor::cuda
