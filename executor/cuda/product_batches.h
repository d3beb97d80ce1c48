// The matrix products of experts, and which of them one call of cuBLASLt takes.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "executor/rows.h"

namespace moeplan::executor::cuda {

// The product of one expert's rows in one cell, in device memory.
struct Product {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  int rows = 0;  // The size that differs between experts: see ProductShape.

  friend bool operator==(const Product&, const Product&) = default;
};

// What all products of a call have in common. `*_stride` counts elements from one row to the next.
struct ProductShape {
  enum class Kind {
    kPlain,        // c[rows][columns] = a[rows][inner] · b[inner][columns]
    kTransposedB,  // c[rows][columns] = a[rows][inner] · bᵀ, b[columns][inner]
    kTransposedA,  // c[inner][columns] = aᵀ · b, a[rows][inner], b[rows][columns]: weight gradients
  };
  Kind kind = Kind::kPlain;
  ElementType type = ElementType::kFloat32;
  // The elements of c: unless they are said, float in weight gradients and `type` in the rest.
  std::optional<ElementType> results;
  int inner = 0, columns = 0;
  int a_stride = 0, b_stride = 0, c_stride = 0;
  float scale = 1;
  bool adds = false;  // To what is in c.

  ElementType result_type() const {
    return results.value_or(kind == Kind::kTransposedA ? ElementType::kFloat32 : type);
  }
};

// `count` products, each with its matrices so many bytes behind those of the one before.
struct ProductBatch {
  Product first;
  int count = 1;
  int64_t a_step = 0, b_step = 0, c_step = 0;

  friend bool operator==(const ProductBatch&, const ProductBatch&) = default;
};

// Products without rows are left out. Rows of one expert that lie side by side become one product, and products of as
// many rows whose matrices lie at equal distances become one batch. What is added to one c is added in the order given.
std::vector<ProductBatch> BatchesOf(const ProductShape& shape, std::span<const Product> products);

}  // namespace moeplan::executor::cuda
