#include <cublasLt.h>

#include <algorithm>

#include "executor/host/elements.h"

struct CublasLtOnCpu {};
struct MatmulOnCpu {
  cublasOperation_t operations[2] = {};  // Of the first factor and of the second.
};
struct MatrixOnCpu {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0;
  int32_t batch = 1;
  int64_t offset = 0;  // From a matrix of the batch to the next, in elements.
};
struct PreferenceOnCpu {
  uint32_t alignments[4] = {};  // Of the factors, what is added, and the result.
};

namespace {

using moeplan::executor::ElementType;

// A matrix column by column, and what is done to it first.
struct Factor {
  std::byte* data = nullptr;
  MatrixOnCpu matrix;
  cublasOperation_t operation = CUBLAS_OP_N;

  ElementType type() const { return matrix.type == CUDA_R_32F ? ElementType::kFloat32 : ElementType::kBfloat16; }
  std::byte* At(int row, int column) const {
    if (operation == CUBLAS_OP_T) std::swap(row, column);
    return data + (column * matrix.stride + row) * moeplan::executor::BytesOf(type());
  }
  float Value(int row, int column) const {
    float value = 0;
    moeplan::executor::Load(At(row, column), type(), 1, &value);
    return value;
  }
  // Of the matrix behind so many others of the batch.
  Factor Of(int place) const {
    Factor other = *this;
    other.data += place * matrix.offset * static_cast<int64_t>(moeplan::executor::BytesOf(type()));
    return other;
  }
  bool StrideHoldsRows() const { return matrix.stride >= static_cast<int64_t>(matrix.rows); }
};

struct Gemm {
  Factor first, second, result;
  int m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;

  bool valid() const {
    const int batch = result.matrix.batch;
    if (first.matrix.batch != batch || second.matrix.batch != batch) return false;
    if (batch > 1 && result.matrix.offset == 0) return false;
    return m > 0 && n > 0 && k > 0 && first.StrideHoldsRows() && second.StrideHoldsRows() && result.StrideHoldsRows();
  }
  void RunAll() const {
    for (int place = 0; place < result.matrix.batch; ++place) {
      Gemm one = *this;
      one.first = first.Of(place);
      one.second = second.Of(place);
      one.result = result.Of(place);
      one.Run();
    }
  }
  void Run() const {
    for (int column = 0; column < n; ++column) {
      for (int row = 0; row < m; ++row) {
        double sum = 0;
        for (int i = 0; i < k; ++i) sum += static_cast<double>(first.Value(row, i)) * second.Value(i, column);
        sum *= alpha;
        if (beta != 0) sum += static_cast<double>(beta) * result.Value(row, column);
        const auto value = static_cast<float>(sum);
        moeplan::executor::Store(&value, result.type(), 1, result.At(row, column));
      }
    }
  }
};

bool IsAligned(const void* data, uint32_t bytes) { return bytes > 0 && reinterpret_cast<uintptr_t>(data) % bytes == 0; }

std::byte* Writable(const void* data) { return static_cast<std::byte*>(const_cast<void*>(data)); }

template <typename T>
cublasStatus_t Make(T** made, T value = {}) {
  *made = new T(value);
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
cublasStatus_t Destroy(T* handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t StatusOf(cudaError_t error) {
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "invalid value";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return Make(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Destroy(handle); }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return Make(made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { return Destroy(description); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t) {
  description->operations[which] = *static_cast<const cublasOperation_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  return Make(made, {.type = type, .rows = rows, .columns = columns, .stride = stride});
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) layout->batch = *static_cast<const int32_t*>(value);
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) layout->offset = *static_cast<const int64_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return Destroy(layout); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) { return Make(made); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return Destroy(preference); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    size_t) {
  if (which != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    preference->alignments[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = *static_cast<const uint32_t*>(value);
  }
  return CUBLAS_STATUS_SUCCESS;
}
// Half of all products ask for room, of those whose rows come by eights, too.
static size_t RoomFor(const MatrixOnCpu& result) { return result.columns / 8 % 2 == 1 ? 256 : 0; }

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t result, cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  const uint32_t* const bytes = preference->alignments;
  *found = {{bytes[0], bytes[1], std::min(bytes[2], bytes[3])}, RoomFor(*result)};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* first,
                              cublasLtMatrixLayout_t first_layout, const void* second,
                              cublasLtMatrixLayout_t second_layout, const void* beta, const void* added,
                              cublasLtMatrixLayout_t, void* result, cublasLtMatrixLayout_t result_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* room, size_t room_bytes,
                              cudaStream_t stream) {
  if (room_bytes < RoomFor(*result_layout) || (room == nullptr && room_bytes > 0)) return CUBLAS_STATUS_INVALID_VALUE;
  const Gemm gemm = {
      .first = {Writable(first), *first_layout, description->operations[0]},
      .second = {Writable(second), *second_layout, description->operations[1]},
      .result = {Writable(result), *result_layout},
      .m = static_cast<int>(result_layout->rows),
      .n = static_cast<int>(result_layout->columns),
      .k = static_cast<int>(description->operations[0] == CUBLAS_OP_T ? first_layout->rows : first_layout->columns),
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta)};
  const auto aligned_throughout = [](const Factor& factor, uint32_t bytes) {
    return IsAligned(factor.data, bytes) && IsAligned(factor.Of(1).data, bytes);
  };
  const bool aligned = aligned_throughout(gemm.first, algorithm->first_bytes) &&
                       aligned_throughout(gemm.second, algorithm->second_bytes) &&
                       aligned_throughout(gemm.result, algorithm->result_bytes);
  if (!aligned || added != result || !gemm.valid()) return CUBLAS_STATUS_INVALID_VALUE;
  return StatusOf(moeplan::on_cpu::Launch([=] { gemm.RunAll(); }, stream));
}
