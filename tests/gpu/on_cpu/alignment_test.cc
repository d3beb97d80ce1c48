// That kernels on the CPU may access nothing that a card would refuse.
#include <gtest/gtest.h>

#include "executor/cuda/access.cuh"
#include "executor/cuda/start.cuh"

namespace moeplan::executor::cuda {
namespace {

__global__ void CopyKernel(const Bfloat16* from, Bfloat16* to) {
  using Taken = Access<Bfloat16, 8>;
  CopyAccesses(reinterpret_cast<const Taken*>(from), reinterpret_cast<Taken*>(to), /*first=*/0, /*end=*/1,
               /*stride=*/1);
}

__global__ void AddKernel(const Bfloat16* from, Bfloat16* to) {
  float values[8];
  LoadValues<8>(from, values);
  StoreValues<8>(values, to);
}

using Kernel = void (*)(const Bfloat16*, Bfloat16*);

class AlignmentTest : public ::testing::TestWithParam<Kernel> {
 protected:
  // The kernel moves 16 bytes, each side so many elements of 2 bytes behind where 16 may lie.
  void Run(int from, int to) {
    alignas(16) Bfloat16 source[16] = {}, target[16] = {};
    source[from].bits = 7;
    Start(GetParam(), {}, nullptr, static_cast<const Bfloat16*>(source + from), target + to);
    EXPECT_EQ(target[to].bits, 7);
  }
};

TEST_P(AlignmentTest, VectorsLieWhereTheirSizeDivides) {
  Run(0, 0);
  Run(8, 8);
}

TEST_P(AlignmentTest, AnyOtherReadEndsTheProgram) {
  EXPECT_DEATH(Run(1, 0), "misaligned address");
  EXPECT_DEATH(Run(4, 0), "misaligned address");
}

TEST_P(AlignmentTest, AnyOtherWriteEndsTheProgram) {
  EXPECT_DEATH(Run(0, 1), "misaligned address");
  EXPECT_DEATH(Run(0, 4), "misaligned address");
}

INSTANTIATE_TEST_SUITE_P(Kernels, AlignmentTest, ::testing::Values(CopyKernel, AddKernel));

}  // namespace
}  // namespace moeplan::executor::cuda
