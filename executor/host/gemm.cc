#include "executor/host/gemm.h"

#ifdef MOEPLAN_HAVE_OPENBLAS
#include <cblas.h>

#include <algorithm>
#else
#include <Eigen/Core>
#endif

namespace moeplan {

#ifdef MOEPLAN_HAVE_OPENBLAS
namespace {
// A rank is one device; threads beside it belong to other ranks.
const bool one_thread = [] {
  openblas_set_num_threads(1);
  return true;
}();
}  // namespace

void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns) {
  if (rows == 0 || columns == 0) return;
  if (inner == 0) return (void)std::fill_n(c, static_cast<size_t>(rows) * columns, 0.0F);  // BLAS refuses it.
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1.0F, a, inner, b, columns, 0.0F, c,
              columns);
}

void MultiplyByTransposed(const float* a, const float* b, float add, float* c, int rows, int inner, int columns) {
  if (rows == 0 || columns == 0) return;
  if (inner == 0 && add == 0) std::fill_n(c, static_cast<size_t>(rows) * columns, 0.0F);
  if (inner == 0) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, columns, inner, 1.0F, a, inner, b, inner, add, c, columns);
}

void AddTransposedProduct(float scale, const float* a, const float* b, float* c, int rows, int inner, int columns) {
  if (rows == 0 || columns == 0 || inner == 0) return;
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, rows, columns, inner, scale, a, rows, b, columns, 1.0F, c,
              columns);
}
#else
namespace {
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;
}  // namespace

void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns) {
  Eigen::Map<Matrix>(c, rows, columns).noalias() = ConstMap(a, rows, inner) * ConstMap(b, inner, columns);
}

void MultiplyByTransposed(const float* a, const float* b, float add, float* c, int rows, int inner, int columns) {
  Eigen::Map<Matrix> product(c, rows, columns);
  if (add == 0) product.setZero();
  product.noalias() += ConstMap(a, rows, inner) * ConstMap(b, columns, inner).transpose();
}

void AddTransposedProduct(float scale, const float* a, const float* b, float* c, int rows, int inner, int columns) {
  Eigen::Map<Matrix>(c, rows, columns).noalias() +=
      scale * ConstMap(a, inner, rows).transpose() * ConstMap(b, inner, columns);
}
#endif

}  // namespace moeplan
