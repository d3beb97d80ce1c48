#include "executor/host/gemm.h"

#ifdef MOEPLAN_HAVE_OPENBLAS
#include <cblas.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "models/check.h"
#else
#include <Eigen/Core>
#endif

#include "models/text.h"

namespace moeplan::executor {

#ifdef MOEPLAN_HAVE_OPENBLAS
namespace {

constexpr char kLibrary[] = "libopenblas.so.0";

struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&openblas_set_num_threads) set_num_threads = nullptr;
  decltype(&openblas_get_config) get_config = nullptr;
};

// OpenBLAS keeps one buffer of this size for each product that runs at the same time. Where it gets none it asks again
// for ever, so whether there is room is found out before it asks.
constexpr size_t kBufferBytes = size_t{128} << 20;

bool HasRoomForBuffer() {
  void* const room = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return room != MAP_FAILED && munmap(room, kBufferBytes) == 0;
}

// Makes OpenBLAS take the buffer of the first thread that multiplies. The product is too large for its kernels that
// need no buffer.
void MultiplyOnce(const OpenBlas& blas) {
  constexpr int kSide = 128;
  const std::vector<float> factor(size_t{kSide} * kSide);
  std::vector<float> product(factor.size());
  blas.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSide, kSide, kSide, 1.0F, factor.data(), kSide, factor.data(),
             kSide, 0.0F, product.data(), kSide);
}

// Finds the functions of OpenBLAS: those that were linked in, or those of the library that is opened now.
#ifdef MOEPLAN_LINKED_OPENBLAS
StatusOr<OpenBlas> Find() {
  return OpenBlas{
      .sgemm = &cblas_sgemm, .set_num_threads = &openblas_set_num_threads, .get_config = &openblas_get_config};
}
#else
StatusOr<OpenBlas> Find() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(StrCat("the host backend multiplies with OpenBLAS: found that ", dlerror(),
                              "; install it (Debian: libopenblas0), or name its folder in LD_LIBRARY_PATH"));
  }
  OpenBlas blas;
  const auto find = [library]<typename Function>(Function*& function, const char* name) {
    return (function = reinterpret_cast<Function*>(dlsym(library, name))) != nullptr;
  };
  if (!find(blas.sgemm, "cblas_sgemm") || !find(blas.set_num_threads, "openblas_set_num_threads") ||
      !find(blas.get_config, "openblas_get_config")) {
    return Unavailable(StrCat("the host backend multiplies with OpenBLAS: found another library as ", kLibrary,
                              "; install OpenBLAS (Debian: libopenblas0)"));
  }
  return blas;
}
#endif

StatusOr<OpenBlas> Open() {
  ASSIGN_OR_RETURN(const OpenBlas blas, Find());
  if (!HasRoomForBuffer()) {
    return Unavailable(StrCat("the host backend multiplies with OpenBLAS, whose buffer takes ", kBufferBytes >> 20,
                              " MiB on every rank: found no room for it; raise the limit of memory (ulimit -v)"));
  }
  blas.set_num_threads(1);  // A rank is one device; threads beside it belong to other ranks.
  MultiplyOnce(blas);
  return blas;
}

const StatusOr<OpenBlas>& Opened() {
  static const StatusOr<OpenBlas> blas = Open();
  return blas;
}

const OpenBlas& Blas() {
  MOEPLAN_CHECK(Opened().ok());
  return *Opened();
}

}  // namespace

Status LoadGemm() { return Opened().status(); }

std::string GemmName() { return Blas().get_config(); }

void Multiply(const float* a, const float* b, float* c, int rows, int inner, int columns) {
  if (rows == 0 || columns == 0) return;
  if (inner == 0) return (void)std::fill_n(c, static_cast<size_t>(rows) * columns, 0.0F);  // BLAS refuses it.
  Blas().sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1.0F, a, inner, b, columns, 0.0F, c,
               columns);
}

void MultiplyByTransposed(const float* a, const float* b, float add, float* c, int rows, int inner, int columns) {
  if (rows == 0 || columns == 0) return;
  if (inner == 0 && add == 0) std::fill_n(c, static_cast<size_t>(rows) * columns, 0.0F);
  if (inner == 0) return;
  Blas().sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, columns, inner, 1.0F, a, inner, b, inner, add, c,
               columns);
}

void AddTransposedProduct(float scale, const float* a, const float* b, float* c, int rows, int inner, int columns) {
  if (rows == 0 || columns == 0 || inner == 0) return;
  Blas().sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, rows, columns, inner, scale, a, rows, b, columns, 1.0F, c,
               columns);
}
#else
namespace {
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;
}  // namespace

Status LoadGemm() { return OkStatus(); }

std::string GemmName() {
  return StrCat("Eigen ", EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION);
}

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

}  // namespace moeplan::executor
