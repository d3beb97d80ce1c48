#include "executor/cuda/product_batches.h"

#include <algorithm>
#include <map>

#include "executor/host/elements.h"

namespace moeplan::executor::cuda {
namespace {

using Kind = ProductShape::Kind;

// Where the rows behind those of `product` begin.
const std::byte* Behind(const std::byte* rows, int count, int stride, ElementType type) {
  return rows + static_cast<int64_t>(count) * stride * static_cast<int64_t>(BytesOf(type));
}

// Whether the rows of `next` follow those of `product`, and all else is the same.
bool Continues(const ProductShape& shape, const Product& product, const Product& next) {
  if (next.a != Behind(product.a, product.rows, shape.a_stride, shape.type)) return false;
  if (shape.kind == Kind::kTransposedA) {
    return shape.adds && next.c == product.c && next.b == Behind(product.b, product.rows, shape.b_stride, shape.type);
  }
  return next.b == product.b && next.c == Behind(product.c, product.rows, shape.c_stride, shape.result_type());
}

std::vector<Product> Joined(const ProductShape& shape, std::span<const Product> products) {
  std::vector<Product> joined;
  for (const Product& product : products) {
    if (product.rows == 0) continue;
    if (!joined.empty() && Continues(shape, joined.back(), product)) {
      joined.back().rows += product.rows;
    } else {
      joined.push_back(product);
    }
  }
  return joined;
}

// The first product of every expert, then the second of every expert, and so on.
std::vector<Product> InTurn(const ProductShape& shape, std::span<const Product> products) {
  std::map<const std::byte*, int> seen;
  std::vector<std::pair<int, Product>> ordered;
  for (const Product& product : products) {
    const std::byte* const of_expert = shape.kind == Kind::kTransposedA ? product.c : product.b;
    ordered.emplace_back(seen[of_expert]++, product);
  }
  std::ranges::stable_sort(ordered, {}, &std::pair<int, Product>::first);
  std::vector<Product> in_turn;
  for (const auto& [turn, product] : ordered) in_turn.push_back(product);
  return in_turn;
}

std::vector<ProductBatch> InOrder(std::span<const Product> products) {
  std::vector<ProductBatch> batches;
  Product last;
  for (const Product& product : products) {
    if (!batches.empty() && batches.back().first.rows == product.rows) {
      ProductBatch& batch = batches.back();
      const ProductBatch step = {
          .a_step = product.a - last.a, .b_step = product.b - last.b, .c_step = product.c - last.c};
      const bool is_second = batch.count == 1 && step.a_step >= 0 && step.b_step >= 0 && step.c_step > 0;
      const bool is_next =
          batch.count > 1 && step.a_step == batch.a_step && step.b_step == batch.b_step && step.c_step == batch.c_step;
      if (is_second || is_next) {
        batch = {batch.first, batch.count + 1, step.a_step, step.b_step, step.c_step};
        last = product;
        continue;
      }
    }
    batches.push_back({.first = product});
    last = product;
  }
  return batches;
}

}  // namespace

std::vector<ProductBatch> BatchesOf(const ProductShape& shape, std::span<const Product> products) {
  const std::vector<Product> joined = Joined(shape, products);
  std::vector<ProductBatch> as_given = InOrder(joined), in_turn = InOrder(InTurn(shape, joined));
  return in_turn.size() < as_given.size() ? in_turn : as_given;
}

}  // namespace moeplan::executor::cuda
