#include "executor/cuda/grouped_gemm.h"

#include <cublasLt.h>

#include <utility>

#include "executor/cuda/errors.h"

namespace moeplan::executor::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // What cuBLAS advises for Hopper.
constexpr size_t kWorkspaceAlignment = 256;

Status BlasStatus(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return InternalError(StrCat(what, ": cuBLAS says ", cublasLtGetStatusString(status)));
}

// cuBLAS keeps matrices column by column: what is ours is to it the transposed matrix, so a product's factors change
// places.
struct BlasShape {
  cublasOperation_t first_operation = CUBLAS_OP_N, second_operation = CUBLAS_OP_N;
  int m = 0, n = 0, k = 0;
};

BlasShape ShapeFor(const ProductShape& shape, int rows) {
  switch (shape.kind) {
    case ProductShape::Kind::kPlain: break;
    case ProductShape::Kind::kTransposedB:
      return {.first_operation = CUBLAS_OP_T, .m = shape.columns, .n = rows, .k = shape.inner};
    case ProductShape::Kind::kTransposedA:
      return {.second_operation = CUBLAS_OP_T, .m = shape.columns, .n = shape.inner, .k = rows};
  }
  return {.m = shape.columns, .n = rows, .k = shape.inner};
}

cudaDataType_t TypeOf(ElementType type) { return type == ElementType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF; }
cudaDataType_t ResultTypeOf(const ProductShape& shape) {
  return shape.kind == ProductShape::Kind::kTransposedA ? CUDA_R_32F : TypeOf(shape.type);
}

// A layout or description of cuBLASLt, destroyed with the handle.
template <typename Handle, auto kDestroy>
struct Destroyed {
  Handle handle = nullptr;

  Destroyed() = default;
  Destroyed(const Destroyed&) = delete;
  Destroyed& operator=(const Destroyed&) = delete;
  ~Destroyed() {
    if (handle != nullptr) kDestroy(handle);
  }
};
using MatrixLayout = Destroyed<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using MatmulDescription = Destroyed<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using Preference = Destroyed<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

class CublasGemm final : public GroupedGemm {
 public:
  CublasGemm() = default;
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;
  ~CublasGemm() override {
    if (lt_ != nullptr) cublasLtDestroy(lt_);
    cudaFree(workspace_);
  }

  Status Init() {
    RETURN_IF_ERROR(BlasStatus(cublasLtCreate(&lt_), "cublasLtCreate"));
    return StatusOf(cudaMalloc(&workspace_, kWorkspaceBytes), "room for cuBLAS");
  }

  Status Multiply(const ProductShape& shape, std::span<const Product> products, cudaStream_t stream) override {
    if (shape.inner == 0 || shape.columns == 0) return OkStatus();
    for (const Product& product : products) {
      if (product.rows > 0) RETURN_IF_ERROR(MultiplyOne(shape, product, stream));
    }
    return OkStatus();
  }

 private:
  Status MultiplyOne(const ProductShape& shape, const Product& product, cudaStream_t stream) {
    const BlasShape blas = ShapeFor(shape, product.rows);
    MatmulDescription description;
    RETURN_IF_ERROR(BlasStatus(cublasLtMatmulDescCreate(&description.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), kMatmul));
    RETURN_IF_ERROR(SetOperation(description, CUBLASLT_MATMUL_DESC_TRANSA, blas.first_operation));
    RETURN_IF_ERROR(SetOperation(description, CUBLASLT_MATMUL_DESC_TRANSB, blas.second_operation));
    MatrixLayout first, second, result;
    const cudaDataType_t type = TypeOf(shape.type);
    RETURN_IF_ERROR(MakeLayout(type, blas.first_operation, blas.m, blas.k, shape.b_stride, first));
    RETURN_IF_ERROR(MakeLayout(type, blas.second_operation, blas.k, blas.n, shape.a_stride, second));
    RETURN_IF_ERROR(MakeLayout(ResultTypeOf(shape), CUBLAS_OP_N, blas.m, blas.n, shape.c_stride, result));
    ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm,
                     ChooseAlgorithm(product, description, first, second, result));
    const float alpha = shape.scale, beta = shape.adds ? 1 : 0;
    return BlasStatus(cublasLtMatmul(lt_, description.handle, &alpha, product.b, first.handle, product.a, second.handle,
                                     &beta, product.c, result.handle, product.c, result.handle, &algorithm, workspace_,
                                     kWorkspaceBytes, stream),
                      kMatmul);
  }

  static Status SetOperation(MatmulDescription& description, cublasLtMatmulDescAttributes_t which,
                             cublasOperation_t operation) {
    return BlasStatus(cublasLtMatmulDescSetAttribute(description.handle, which, &operation, sizeof operation), kMatmul);
  }

  // Of a matrix that is rows × columns once the operation is done.
  static Status MakeLayout(cudaDataType_t type, cublasOperation_t operation, int rows, int columns, int stride,
                           MatrixLayout& layout) {
    if (operation == CUBLAS_OP_T) std::swap(rows, columns);
    return BlasStatus(cublasLtMatrixLayoutCreate(&layout.handle, type, rows, columns, stride), kMatmul);
  }

  // cuBLASLt remembers what it found for a shape.
  StatusOr<cublasLtMatmulAlgo_t> ChooseAlgorithm(const Product& product, const MatmulDescription& description,
                                                 const MatrixLayout& first, const MatrixLayout& second,
                                                 const MatrixLayout& result) const {
    Preference preference;
    RETURN_IF_ERROR(BlasStatus(cublasLtMatmulPreferenceCreate(&preference.handle), kMatmul));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      return BlasStatus(cublasLtMatmulPreferenceSetAttribute(preference.handle, which, &value, sizeof value), kMatmul);
    };
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(product.b)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(product.a)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(product.c)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(product.c)));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    RETURN_IF_ERROR(BlasStatus(
        cublasLtMatmulAlgoGetHeuristic(lt_, description.handle, first.handle, second.handle, result.handle,
                                       result.handle, preference.handle, /*requestedAlgoCount=*/1, &found, &count),
        kMatmul));
    if (count == 0) return InternalError("cuBLASLt has no algorithm for a product of experts");
    return found.algo;
  }

  // The largest power of two that divides it, as far as cuBLASLt asks.
  static uint32_t AlignmentOf(const std::byte* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer) | kWorkspaceAlignment;
    return static_cast<uint32_t>(address & -address);
  }

  static constexpr const char* kMatmul = "cublasLtMatmul";

  cublasLtHandle_t lt_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<GroupedGemm>> GroupedGemm::Make() {
  auto made = std::make_unique<CublasGemm>();
  RETURN_IF_ERROR(made->Init());
  return made;
}

}  // namespace moeplan::executor::cuda
