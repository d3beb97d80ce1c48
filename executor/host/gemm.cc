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
  if (inner == 0) {  // An empty sum; BLAS refuses the leading dimension.
    std::fill_n(c, static_cast<size_t>(rows) * columns, 0.0F);
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1.0F, a, inner, b, columns, 0.0F, c,
              columns);
}
#else
void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<Matrix>(c, rows, columns).noalias() =
      Eigen::Map<const Matrix>(a, rows, inner) * Eigen::Map<const Matrix>(b, inner, columns);
}
#endif

}  // namespace moeplan
