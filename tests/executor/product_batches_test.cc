// Which products become one call, of experts whose cells lie as a plan's buffers have them.
#include "executor/cuda/product_batches.h"

#include <gtest/gtest.h>

namespace moeplan::executor::cuda {
namespace {

using Kind = ProductShape::Kind;

constexpr int kInner = 4, kColumns = 6;

// Where matrices would lie; nothing reads there.
std::byte* At(int64_t floats) { return reinterpret_cast<std::byte*>(64 + 4 * floats); }

ProductShape ShapeOf(Kind kind) {
  const bool is_gradient = kind == Kind::kTransposedA;
  return {.kind = kind,
          .inner = kInner,
          .columns = kColumns,
          .a_stride = kInner,
          .b_stride = kColumns,
          .c_stride = kColumns,
          .adds = is_gradient};
}

// The products of `experts` experts with `rows` rows from each of `sources` ranks, whose cells are [source][expert].
std::vector<Product> ProductsOf(Kind kind, int sources, int experts, const std::vector<int>& rows) {
  std::vector<Product> products;
  for (int expert = 0; expert < experts; ++expert) {
    for (int source = 0; source < sources; ++source) {
      int64_t first = 0;
      for (int cell = 0; cell < source * experts + expert; ++cell) first += rows[cell % rows.size()];
      const int own = rows[(source * experts + expert) % rows.size()];
      const bool is_gradient = kind == Kind::kTransposedA;
      products.push_back({.a = At(first * kInner),
                          .b = is_gradient ? At(1000 + first * kColumns) : At(1000 + expert * kInner * kColumns),
                          .c = is_gradient ? At(5000 + expert * kInner * kColumns) : At(5000 + first * kColumns),
                          .rows = own});
    }
  }
  return products;
}

TEST(ProductBatchesTest, ExpertsOfAsManyRowsAreOneCall) {
  for (const Kind kind : {Kind::kPlain, Kind::kTransposedB, Kind::kTransposedA}) {
    const auto batches = BatchesOf(ShapeOf(kind), ProductsOf(kind, /*sources=*/1, /*experts=*/16, {3}));
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].count, 16);
    EXPECT_EQ(batches[0].a_step, 4 * 3 * kInner);
    EXPECT_EQ(batches[0].b_step, 4 * (kind == Kind::kTransposedA ? 3 * kColumns : kInner * kColumns));
    EXPECT_EQ(batches[0].c_step, 4 * (kind == Kind::kTransposedA ? kInner * kColumns : 3 * kColumns));
  }
}

TEST(ProductBatchesTest, RowsOfOneExpertThatLieSideBySideAreOneProduct) {
  for (const Kind kind : {Kind::kPlain, Kind::kTransposedB, Kind::kTransposedA}) {
    const auto batches = BatchesOf(ShapeOf(kind), ProductsOf(kind, /*sources=*/4, /*experts=*/1, {3, 0, 5}));
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].count, 1);
    EXPECT_EQ(batches[0].first.rows, 3 + 0 + 5 + 3);
  }
}

TEST(ProductBatchesTest, OfSeveralSourcesTheLongerSideIsTheBatch) {
  // Four sources of sixteen experts: a call for each source. Sixteen of four: a call for each expert, whose weights
  // repeat.
  const auto of_sources = BatchesOf(ShapeOf(Kind::kPlain), ProductsOf(Kind::kPlain, 4, 16, {3}));
  ASSERT_EQ(of_sources.size(), 4u);
  for (const ProductBatch& batch : of_sources) EXPECT_EQ(batch.count, 16);
  const auto of_experts = BatchesOf(ShapeOf(Kind::kPlain), ProductsOf(Kind::kPlain, 16, 4, {3}));
  ASSERT_EQ(of_experts.size(), 4u);
  for (const ProductBatch& batch : of_experts) {
    EXPECT_EQ(batch.count, 16);
    EXPECT_EQ(batch.b_step, 0);
  }
  // Gradients of one expert are added one after the other, so they are never in one batch.
  const auto gradients = BatchesOf(ShapeOf(Kind::kTransposedA), ProductsOf(Kind::kTransposedA, 16, 4, {3}));
  ASSERT_EQ(gradients.size(), 16u);
  for (const ProductBatch& batch : gradients) {
    EXPECT_EQ(batch.count, 4);
    EXPECT_GT(batch.c_step, 0);
  }
}

TEST(ProductBatchesTest, ExpertsOfOtherRowsAreCallsOfTheirOwn) {
  const auto products = ProductsOf(Kind::kPlain, 1, 5, {3, 4, 0, 4, 2});
  const auto batches = BatchesOf(ShapeOf(Kind::kPlain), products);
  // Those of the second and the fourth have four rows each, and lie at any distance: there are two of them.
  const std::vector<ProductBatch> expected = {{.first = products[0]},
                                              {.first = products[1],
                                               .count = 2,
                                               .a_step = products[3].a - products[1].a,
                                               .b_step = products[3].b - products[1].b,
                                               .c_step = products[3].c - products[1].c},
                                              {.first = products[4]}};
  EXPECT_EQ(batches, expected);
  EXPECT_TRUE(BatchesOf(ShapeOf(Kind::kPlain), {}).empty());
}

}  // namespace
}  // namespace moeplan::executor::cuda
