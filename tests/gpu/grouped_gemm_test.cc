// The products of experts against sums in double precision.
#include "executor/cuda/grouped_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

using Kind = ProductShape::Kind;

// Products whose rows lie one after the other, each with a matrix of its own.
struct GemmCase {
  ProductShape shape;
  std::vector<int> rows;
  std::vector<float> a, b, c;  // As the type holds them; c as it is before.

  size_t all_rows() const {
    size_t all = 0;
    for (const int count : rows) all += count;
    return all;
  }
  size_t b_size() const {
    return static_cast<size_t>(shape.inner) * shape.columns;  // Of one product; of rows · columns for kTransposedA.
  }
  ElementType c_type() const { return shape.result_type(); }
};

std::vector<float> Held(const std::vector<float>& values, ElementType type) {
  return ValuesOf(ElementBytes(values, type), type);
}

GemmCase RandomCase(Kind kind, ElementType type, std::mt19937_64& random) {
  constexpr int kSizes[] = {8, 16, 40, 64, 136};
  GemmCase made;
  const int inner = kSizes[random() % std::size(kSizes)], columns = kSizes[random() % std::size(kSizes)];
  // Rows lie apart, as the halves of SwiGLU's do.
  made.shape = {.kind = kind, .type = type, .inner = inner, .columns = columns, .a_stride = inner + 8};
  made.shape.b_stride = kind == Kind::kTransposedB ? inner : columns;
  made.shape.c_stride = kind == Kind::kTransposedA ? columns : columns + 16;
  made.shape.adds = kind == Kind::kTransposedA || random() % 2 == 0;
  constexpr std::optional<ElementType> kResults[] = {std::nullopt, ElementType::kFloat32, std::nullopt};
  made.shape.results = kResults[random() % std::size(kResults)];
  if (random() % 4 == 0) made.shape.results = type;
  made.shape.scale = random() % 2 == 0 ? 1.0F : 0.5F;
  const int products = Between(random, 1, 60);
  const bool all_alike = random() % 2 == 0;
  for (int i = 0; i < products; ++i) {
    const int rows = random() % 4 == 0 ? 0 : 8 * Between(random, 1, 12);
    made.rows.push_back(all_alike && i > 0 ? made.rows[0] : rows);
  }
  const size_t b_values = kind == Kind::kTransposedA ? made.all_rows() * columns : made.b_size() * products;
  const size_t c_values = kind == Kind::kTransposedA ? made.b_size() * products : made.all_rows() * made.shape.c_stride;
  made.a = Held(RandomValues(random, made.all_rows() * made.shape.a_stride), type);
  made.b = Held(RandomValues(random, b_values), type);
  made.c = Held(RandomValues(random, c_values), made.c_type());
  return made;
}

// Where the parts of each product begin, in elements.
struct Firsts {
  size_t a, b, c;
};
Firsts FirstsOf(const GemmCase& test, int product) {
  size_t before = 0;
  for (int i = 0; i < product; ++i) before += test.rows[i];
  const bool is_gradient = test.shape.kind == Kind::kTransposedA;
  return {.a = before * test.shape.a_stride,
          .b = is_gradient ? before * test.shape.columns : product * test.b_size(),
          .c = is_gradient ? product * test.b_size() : before * test.shape.c_stride};
}

struct Sum {
  double value = 0, size = 0;

  void Add(double a, double b) {
    value += a * b;
    size += std::abs(a * b);
  }
};
Sum SumAt(const GemmCase& test, int product, int row, int column) {
  const auto [a, b, c] = FirstsOf(test, product);
  const ProductShape& shape = test.shape;
  Sum sum;
  const int length = shape.kind == Kind::kTransposedA ? test.rows[product] : shape.inner;
  for (int i = 0; i < length; ++i) {
    switch (shape.kind) {
      case Kind::kPlain: sum.Add(test.a[a + row * shape.a_stride + i], test.b[b + i * shape.b_stride + column]); break;
      case Kind::kTransposedB:
        sum.Add(test.a[a + row * shape.a_stride + i], test.b[b + column * shape.b_stride + i]);
        break;
      case Kind::kTransposedA: sum.Add(test.a[a + i * shape.a_stride + row], test.b[b + i * shape.b_stride + column]);
    }
  }
  return sum;
}

class GroupedGemmTest : public DeviceTest, public ::testing::WithParamInterface<std::tuple<Kind, ElementType>> {};

TEST_P(GroupedGemmTest, ProductsAreWhatDoublePrecisionSays) {
  const auto [kind, type] = GetParam();
  std::mt19937_64 random(TestSeed());
  StatusOr<std::unique_ptr<GroupedGemm>> gemm = GroupedGemm::Make();
  ASSERT_TRUE(gemm.ok()) << gemm.status().message();
  for (int i = 0; i < 20 && !HasFatalFailure(); ++i) {
    const GemmCase test = RandomCase(kind, type, random);
    const OnDevice<std::byte> a(ElementBytes(test.a, type)), b(ElementBytes(test.b, type));
    const OnDevice<std::byte> c(ElementBytes(test.c, test.c_type()));
    std::vector<Product> products;
    for (int product = 0; product < static_cast<int>(test.rows.size()); ++product) {
      const Firsts first = FirstsOf(test, product);
      products.push_back({.a = a.data() + first.a * BytesOf(type),
                          .b = b.data() + first.b * BytesOf(type),
                          .c = c.data() + first.c * BytesOf(test.c_type()),
                          .rows = test.rows[product]});
    }
    ASSERT_EQ((*gemm)->Multiply(test.shape, products, nullptr), OkStatus());

    const std::vector<float> found = ValuesOf(c.Read(), test.c_type());
    std::vector<float> expected = test.c;
    const double relative = test.c_type() == ElementType::kFloat32 ? 1e-5 : 1e-2;
    for (int product = 0; product < static_cast<int>(test.rows.size()); ++product) {
      if (test.rows[product] == 0) continue;
      const int rows = kind == Kind::kTransposedA ? test.shape.inner : test.rows[product];
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < test.shape.columns; ++column) {
          const size_t at = FirstsOf(test, product).c + static_cast<size_t>(row) * test.shape.c_stride + column;
          const Sum sum = SumAt(test, product, row, column);
          const double before = test.shape.adds ? test.c[at] : 0, value = before + test.shape.scale * sum.value;
          ASSERT_LE(std::abs(found[at] - value), relative * (1 + std::abs(value)) + 1e-6 * sum.size)
              << "product " << product << ", row " << row << ", column " << column;
          expected[at] = found[at];
        }
      }
    }
    ASSERT_EQ(found, expected) << "between rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, GroupedGemmTest,
                         ::testing::Combine(::testing::Values(Kind::kPlain, Kind::kTransposedB, Kind::kTransposedA),
                                            ::testing::Values(ElementType::kFloat32, ElementType::kBfloat16)));

}  // namespace
}  // namespace moeplan::executor::cuda
