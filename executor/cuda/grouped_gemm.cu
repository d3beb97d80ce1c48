#include "executor/cuda/grouped_gemm.h"

#include <cublasLt.h>

#include <map>
#include <utility>

#include "executor/cuda/errors.h"
#include "executor/host/elements.h"

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
    for (const auto& [stream, workspace] : workspaces_) cudaFree(workspace);
  }

  Status Init() { return BlasStatus(cublasLtCreate(&lt_), "cublasLtCreate"); }

  Status Multiply(const ProductShape& shape, std::span<const Product> products, cudaStream_t stream) override {
    if (shape.inner == 0 || shape.columns == 0) return OkStatus();
    for (const ProductBatch& batch : BatchesOf(shape, products)) RETURN_IF_ERROR(MultiplyBatch(shape, batch, stream));
    return OkStatus();
  }

 private:
  Status MultiplyBatch(const ProductShape& shape, const ProductBatch& batch, cudaStream_t stream) {
    const Product& product = batch.first;
    const BlasShape blas = ShapeFor(shape, product.rows);
    MatmulDescription description;
    RETURN_IF_ERROR(BlasStatus(cublasLtMatmulDescCreate(&description.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), kMatmul));
    RETURN_IF_ERROR(SetOperation(description, CUBLASLT_MATMUL_DESC_TRANSA, blas.first_operation));
    RETURN_IF_ERROR(SetOperation(description, CUBLASLT_MATMUL_DESC_TRANSB, blas.second_operation));
    MatrixLayout first, second, result;
    RETURN_IF_ERROR(MakeLayout(shape.type, blas.first_operation, {blas.m, blas.k, shape.b_stride}, first));
    RETURN_IF_ERROR(MakeLayout(shape.type, blas.second_operation, {blas.k, blas.n, shape.a_stride}, second));
    RETURN_IF_ERROR(MakeLayout(shape.result_type(), CUBLAS_OP_N, {blas.m, blas.n, shape.c_stride}, result));
    if (batch.count > 1) {
      RETURN_IF_ERROR(SetBatch(first, batch.count, batch.b_step, shape.type));
      RETURN_IF_ERROR(SetBatch(second, batch.count, batch.a_step, shape.type));
      RETURN_IF_ERROR(SetBatch(result, batch.count, batch.c_step, shape.result_type()));
    }
    ASSIGN_OR_RETURN(const cublasLtMatmulHeuristicResult_t chosen,
                     ChooseAlgorithm(batch, description, first, second, result));
    void* workspace = nullptr;
    if (chosen.workspaceSize > 0) {
      ASSIGN_OR_RETURN(workspace, WorkspaceOf(stream));
    }
    const float alpha = shape.scale, beta = shape.adds ? 1 : 0;
    return BlasStatus(cublasLtMatmul(lt_, description.handle, &alpha, product.b, first.handle, product.a, second.handle,
                                     &beta, product.c, result.handle, product.c, result.handle, &chosen.algo, workspace,
                                     workspace == nullptr ? 0 : kWorkspaceBytes, stream),
                      kMatmul);
  }

  // Work of one stream follows one another, so it may share its room. Allocating is no part of a graph that is taken
  // down.
  StatusOr<void*> WorkspaceOf(cudaStream_t stream) {
    void*& workspace = workspaces_[stream];
    if (workspace == nullptr) RETURN_IF_ERROR(StatusOf(cudaMalloc(&workspace, kWorkspaceBytes), "room for cuBLAS"));
    return workspace;
  }

  static Status SetOperation(MatmulDescription& description, cublasLtMatmulDescAttributes_t which,
                             cublasOperation_t operation) {
    return BlasStatus(cublasLtMatmulDescSetAttribute(description.handle, which, &operation, sizeof operation), kMatmul);
  }

  // Of a matrix that is rows × columns once the operation is done.
  struct MatrixSize {
    int rows = 0, columns = 0, stride = 0;
  };
  static Status MakeLayout(ElementType type, cublasOperation_t operation, MatrixSize size, MatrixLayout& layout) {
    if (operation == CUBLAS_OP_T) std::swap(size.rows, size.columns);
    return BlasStatus(cublasLtMatrixLayoutCreate(&layout.handle, TypeOf(type), size.rows, size.columns, size.stride),
                      kMatmul);
  }

  static Status SetBatch(MatrixLayout& layout, int32_t count, int64_t step, ElementType type) {
    const int64_t elements = step / static_cast<int64_t>(BytesOf(type));
    const auto set = [&](cublasLtMatrixLayoutAttribute_t which, const auto& value) {
      return BlasStatus(cublasLtMatrixLayoutSetAttribute(layout.handle, which, &value, sizeof value), kMatmul);
    };
    RETURN_IF_ERROR(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count));
    return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, elements);
  }

  // cuBLASLt remembers what it found for a shape.
  StatusOr<cublasLtMatmulHeuristicResult_t> ChooseAlgorithm(const ProductBatch& batch,
                                                            const MatmulDescription& description,
                                                            const MatrixLayout& first, const MatrixLayout& second,
                                                            const MatrixLayout& result) const {
    Preference preference;
    RETURN_IF_ERROR(BlasStatus(cublasLtMatmulPreferenceCreate(&preference.handle), kMatmul));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      return BlasStatus(cublasLtMatmulPreferenceSetAttribute(preference.handle, which, &value, sizeof value), kMatmul);
    };
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes));
    const uint32_t of_result = AlignmentOf(batch.first.c, batch.c_step);
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(batch.first.b, batch.b_step)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(batch.first.a, batch.a_step)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    RETURN_IF_ERROR(BlasStatus(
        cublasLtMatmulAlgoGetHeuristic(lt_, description.handle, first.handle, second.handle, result.handle,
                                       result.handle, preference.handle, /*requestedAlgoCount=*/1, &found, &count),
        kMatmul));
    if (count == 0) return InternalError("cuBLASLt has no algorithm for a product of experts");
    return found;
  }

  // The largest power of two that divides all addresses of a batch, as far as cuBLASLt asks.
  static uint32_t AlignmentOf(const std::byte* pointer, int64_t step) {
    const auto address = reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(step) | kWorkspaceAlignment;
    return static_cast<uint32_t>(address & -address);
  }

  static constexpr const char* kMatmul = "cublasLtMatmul";

  cublasLtHandle_t lt_ = nullptr;
  std::map<cudaStream_t, void*> workspaces_;
};

}  // namespace

StatusOr<std::unique_ptr<GroupedGemm>> GroupedGemm::Make() {
  auto made = std::make_unique<CublasGemm>();
  RETURN_IF_ERROR(made->Init());
  return made;
}

}  // namespace moeplan::executor::cuda
