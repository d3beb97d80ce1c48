// The FFN of one rank's shard of the experts, or of the shared expert, on rows of cells on a card, forward and
// backward: what ExpertFfn (executor/host/expert_ffn.h) is on the host, with grouped products.
//
// Results between the kernels of a task have the layer's elements, so with BF16 they are rounded once more than on the
// host. Kept values are rows of kept_columns() in the cells of the input. One thread, that of the device.
#pragma once

#include <span>
#include <vector>

#include "executor/cuda/activation_kernels.h"
#include "executor/cuda/bias_kernels.h"
#include "executor/cuda/card_weights.h"
#include "executor/cuda/cell_lists.h"
#include "executor/cuda/grouped_gemm.h"
#include "executor/cuda/scratch.h"
#include "models/workload/workload.h"

namespace moeplan::executor::cuda {

// The cells of a buffer as kernels and as the host find them.
struct FfnCells {
  PlacedRows placed;
  CellLayout on_host;               // With counts that the host can read.
  std::vector<int64_t> first_rows;  // On the host, too.
};

// What a task is about: for each expert the cells that its rows come from and go to.
struct FfnTask {
  std::span<const std::vector<CellPair>> pairs;
  FfnCells from, to;
  Scratch& scratch;
  cudaStream_t stream = nullptr;
};

class CudaFfn {
 public:
  // All is borrowed. `hidden`: the columns of the shard.
  CudaFfn(const Layer& layer, int hidden, const DeviceExperts& weights, GroupedGemm& gemm, CellLists& lists);

  int kept_columns() const { return gated_ ? 2 * hidden_ : hidden_; }

  // `kept` may be null.
  Status Forward(const FfnTask& task, const std::byte* in, std::byte* kept, std::byte* out);
  Status InputGradient(const FfnTask& task, const std::byte* kept, const std::byte* out_gradient,
                       std::byte* kept_gradient, std::byte* in_gradient);
  // Adds `scale` times the rows' part to the gradients, or writes it over what matrices of elements are where the task
  // is the first of its backward pass; all rows lie in the cells that the task comes from.
  struct WeightGradientRows {
    const std::byte *in = nullptr, *kept = nullptr, *out_gradient = nullptr, *kept_gradient = nullptr;
  };
  Status WeightGradient(const FfnTask& task, const WeightGradientRows& rows, float scale, bool is_first,
                        const DeviceExpertGradients& gradients);

 private:
  // Rows of a task's cells, some neighbouring columns of them.
  struct Matrix {
    const FfnCells& cells;
    int32_t CellPair::*side;
    const std::byte* data = nullptr;  // Of the first row, the first column that counts.
    int stride = 0;                   // Elements from one row to the next.
  };
  // c = a · b, with the matrix of each expert for b; or a · bᵀ.
  struct ByWeights {
    ProductShape::Kind kind;
    int inner = 0, columns = 0;
    bool adds = false;
  };
  Status Multiply(const FfnTask& task, const ByWeights& by, const Matrix& a, const std::byte* weights, const Matrix& c);
  // gradients[expert] += scale · aᵀ · b, whose columns are a's and b's.
  struct Columns {
    int a = 0, b = 0;
  };
  struct GradientOfMatrix {
    std::byte* data = nullptr;
    bool is_elements = false, overwrites = false;
  };
  Status AddProducts(const FfnTask& task, const Columns& columns, const Matrix& a, const Matrix& b, float scale,
                     const GradientOfMatrix& gradient);

  StatusOr<BiasRows> RowsOf(const FfnTask& task, const Matrix& matrix, int columns);
  StatusOr<ActivationRows> KeptRows(const FfnTask& task, const std::byte* kept);

  size_t MatrixValues() const { return static_cast<size_t>(model_dim_) * hidden_; }
  const std::byte* Behind(const std::byte* data, size_t elements) const { return data + elements * element_bytes_; }

  const ElementType type_;
  const size_t element_bytes_;
  const int model_dim_, hidden_;
  const bool gated_;
  const SwiGluLimit limit_;
  const DeviceExperts& weights_;
  GroupedGemm& gemm_;
  CellLists& lists_;
  std::vector<Product> products_;
};

}  // namespace moeplan::executor::cuda
