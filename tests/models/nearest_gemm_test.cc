#include "models/cost/nearest_gemm.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

TEST(NearestGemmTest, TheNearestProductsByTheLogsOfTheirDimensions) {
  Profile profile;
  for (const int dim : {256, 4096}) {
    profile.kernels.push_back(
        {{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = dim, .hidden_dim = dim},
         MakeCostModel(AlphaBeta{0, 1})});
  }
  KernelKey asked = {.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 1024, .hidden_dim = 2048};
  EXPECT_EQ(NearestGemm(profile, asked)->key.model_dim, 4096);  // 2 + 1 doublings away, not 2 + 3.
  asked.hidden_dim = 512;
  EXPECT_EQ(NearestGemm(profile, asked)->key.model_dim, 256);
  EXPECT_EQ(NearestGemm(Profile(), asked), nullptr);
}

}  // namespace
}  // namespace moeplan
