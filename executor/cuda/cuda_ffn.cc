#include "executor/cuda/cuda_ffn.h"

#include "executor/cuda/errors.h"
#include "executor/host/elements.h"

namespace moeplan::executor::cuda {
namespace {

using Kind = ProductShape::Kind;

// Each cell of one side with its expert.
std::vector<CellPair> CellsOfExperts(const FfnTask& task, int32_t CellPair::*side) {
  std::vector<CellPair> cells;
  for (size_t expert = 0; expert < task.pairs.size(); ++expert) {
    for (const CellPair& pair : task.pairs[expert]) cells.push_back({pair.*side, static_cast<int32_t>(expert)});
  }
  return cells;
}

std::byte* Writable(const std::byte* data) { return const_cast<std::byte*>(data); }

}  // namespace

CudaFfn::CudaFfn(const Layer& layer, int hidden, const DeviceExperts& weights, GroupedGemm& gemm, CellLists& lists)
    : type_(ElementTypeOf(layer.bytes_per_element)),
      element_bytes_(BytesOf(type_)),
      model_dim_(layer.model_dim),
      hidden_(hidden),
      gated_(layer.expert_matrices == 3),
      limit_{layer.swiglu_limit},
      weights_(weights),
      gemm_(gemm),
      lists_(lists) {}

Status CudaFfn::Forward(const FfnTask& task, const std::byte* in, std::byte* kept, std::byte* out) {
  const int64_t rows = MostRows(task.from.placed.cells);
  if (kept == nullptr) {
    ASSIGN_OR_RETURN(kept, task.scratch.Take(rows * kept_columns() * element_bytes_));
  }
  ASSIGN_OR_RETURN(std::byte* const hidden, task.scratch.Take(rows * hidden_ * element_bytes_));
  const Matrix from = {task.from, &CellPair::from, in, model_dim_};
  const ByWeights up = {.kind = Kind::kPlain, .inner = model_dim_, .columns = hidden_};
  RETURN_IF_ERROR(Multiply(task, up, from, weights_.up, {task.from, &CellPair::from, kept, kept_columns()}));
  if (gated_) {
    RETURN_IF_ERROR(Multiply(task, up, from, weights_.gate_up,
                             {task.from, &CellPair::from, Behind(kept, hidden_), kept_columns()}));
  }
  ASSIGN_OR_RETURN(const ActivationRows activation, KeptRows(task, kept));
  RETURN_IF_ERROR(Activate(activation, {weights_.up_bias, weights_.gate_up_bias}, hidden, task.stream));
  const Matrix to = {task.to, &CellPair::to, out, model_dim_};
  RETURN_IF_ERROR(Multiply(task, {.kind = Kind::kPlain, .inner = hidden_, .columns = model_dim_},
                           {task.from, &CellPair::from, hidden, hidden_}, weights_.down, to));
  if (weights_.down_bias == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(const BiasRows biased, RowsOf(task, to, model_dim_));
  return AddBias(biased, weights_.down_bias, /*overwrites=*/false, task.stream);
}

Status CudaFfn::InputGradient(const FfnTask& task, const std::byte* kept, const std::byte* out_gradient,
                              std::byte* kept_gradient, std::byte* in_gradient) {
  const int64_t rows = MostRows(task.from.placed.cells);
  ASSIGN_OR_RETURN(std::byte* const hidden_gradient, task.scratch.Take(rows * hidden_ * element_bytes_));
  RETURN_IF_ERROR(Multiply(task, {.kind = Kind::kTransposedB, .inner = model_dim_, .columns = hidden_},
                           {task.from, &CellPair::from, out_gradient, model_dim_}, weights_.down,
                           {task.from, &CellPair::from, hidden_gradient, hidden_}));
  ASSIGN_OR_RETURN(const ActivationRows activation, KeptRows(task, kept));
  RETURN_IF_ERROR(ActivationGradient(activation, hidden_gradient, kept_gradient, task.stream));
  ByWeights by = {.kind = Kind::kTransposedB, .inner = hidden_, .columns = model_dim_};
  const Matrix to = {task.to, &CellPair::to, in_gradient, model_dim_};
  RETURN_IF_ERROR(Multiply(task, by, {task.from, &CellPair::from, kept_gradient, kept_columns()}, weights_.up, to));
  if (!gated_) return OkStatus();
  by.adds = true;
  return Multiply(task, by, {task.from, &CellPair::from, Behind(kept_gradient, hidden_), kept_columns()},
                  weights_.gate_up, to);
}

Status CudaFfn::WeightGradient(const FfnTask& task, const WeightGradientRows& rows, float scale, bool is_first,
                               const DeviceExpertGradients& gradients) {
  const auto into = [&](std::byte* data) {
    return GradientOfMatrix{data, gradients.matrices_are_elements, gradients.matrices_are_elements && is_first};
  };
  const auto of = [&](const std::byte* data, int stride) { return Matrix{task.from, &CellPair::from, data, stride}; };
  const Matrix in = of(rows.in, model_dim_), out_gradient = of(rows.out_gradient, model_dim_);
  const Matrix up = of(rows.kept_gradient, kept_columns());
  const Matrix gate_up = of(Behind(rows.kept_gradient, hidden_), kept_columns());
  RETURN_IF_ERROR(AddProducts(task, {.a = model_dim_, .b = hidden_}, in, up, scale, into(gradients.up)));
  if (gated_)
    RETURN_IF_ERROR(AddProducts(task, {.a = model_dim_, .b = hidden_}, in, gate_up, scale, into(gradients.gate_up)));
  struct Biased {
    const Matrix& rows;
    int columns;
    float* gradients;
  };
  for (const Biased& one : {Biased{up, hidden_, gradients.up_bias}, Biased{gate_up, hidden_, gradients.gate_up_bias},
                            Biased{out_gradient, model_dim_, gradients.down_bias}}) {
    if (one.gradients == nullptr) continue;
    ASSIGN_OR_RETURN(const BiasRows biased, RowsOf(task, one.rows, one.columns));
    RETURN_IF_ERROR(AddBiasGradient(biased, scale, one.gradients, task.stream));
  }
  ASSIGN_OR_RETURN(std::byte* const hidden,
                   task.scratch.Take(MostRows(task.from.placed.cells) * hidden_ * element_bytes_));
  ASSIGN_OR_RETURN(const ActivationRows activation, KeptRows(task, rows.kept));
  RETURN_IF_ERROR(Activate(activation, /*biases=*/{}, hidden, task.stream));
  return AddProducts(task, {.a = hidden_, .b = model_dim_}, of(hidden, hidden_), out_gradient, scale,
                     into(gradients.down));
}

Status CudaFfn::Multiply(const FfnTask& task, const ByWeights& by, const Matrix& a, const std::byte* weights,
                         const Matrix& c) {
  if (by.inner == 0 && !by.adds) {  // A shard without columns adds nothing.
    ASSIGN_OR_RETURN(const BiasRows rows, RowsOf(task, c, by.columns));
    return AddBias(rows, /*biases=*/nullptr, /*overwrites=*/true, task.stream);
  }
  products_.clear();
  for (size_t expert = 0; expert < task.pairs.size(); ++expert) {
    for (const CellPair& pair : task.pairs[expert]) {
      const int32_t from = pair.*a.side, to = pair.*c.side;
      products_.push_back({.a = Behind(a.data, a.cells.first_rows[from] * a.stride),
                           .b = Behind(weights, expert * MatrixValues()),
                           .c = Writable(Behind(c.data, c.cells.first_rows[to] * c.stride)),
                           .rows = static_cast<int>(RowsOfCell(a.cells.on_host, from))});
    }
  }
  return gemm_.Multiply({.kind = by.kind,
                         .type = type_,
                         .inner = by.inner,
                         .columns = by.columns,
                         .a_stride = a.stride,
                         .b_stride = by.kind == Kind::kPlain ? by.columns : by.inner,
                         .c_stride = c.stride,
                         .adds = by.adds},
                        products_, task.stream);
}

Status CudaFfn::AddProducts(const FfnTask& task, const Columns& columns, const Matrix& a, const Matrix& b, float scale,
                            const GradientOfMatrix& gradient) {
  const size_t value_bytes = gradient.is_elements ? element_bytes_ : sizeof(float);
  ProductShape shape = {.kind = Kind::kTransposedA,
                        .type = type_,
                        .results = gradient.is_elements ? type_ : ElementType::kFloat32,
                        .inner = columns.a,
                        .columns = columns.b,
                        .a_stride = a.stride,
                        .b_stride = b.stride,
                        .c_stride = columns.b,
                        .scale = scale,
                        .adds = true};
  // The first product of each expert overwrites. Experts without rows have none, and their gradients are set to zero.
  std::vector<Product> first;
  products_.clear();
  for (size_t expert = 0; expert < task.pairs.size(); ++expert) {
    bool has_rows = false;
    for (const CellPair& pair : task.pairs[expert]) {
      const int64_t first_row = a.cells.first_rows[pair.*a.side];
      const Product product = {.a = Behind(a.data, first_row * a.stride),
                               .b = Behind(b.data, first_row * b.stride),
                               .c = gradient.data + expert * MatrixValues() * value_bytes,
                               .rows = static_cast<int>(RowsOfCell(a.cells.on_host, pair.*a.side))};
      if (product.rows == 0) continue;
      (has_rows || !gradient.overwrites ? products_ : first).push_back(product);
      has_rows = true;
    }
  }
  if (gradient.overwrites && first.size() < task.pairs.size()) {
    const size_t bytes = task.pairs.size() * MatrixValues() * value_bytes;
    RETURN_IF_ERROR(StatusOf(cudaMemsetAsync(gradient.data, 0, bytes, task.stream), "gradients set to zero"));
  }
  if (!first.empty()) {
    shape.adds = false;
    RETURN_IF_ERROR(gemm_.Multiply(shape, first, task.stream));
    shape.adds = true;
  }
  return gemm_.Multiply(shape, products_, task.stream);
}

StatusOr<BiasRows> CudaFfn::RowsOf(const FfnTask& task, const Matrix& matrix, int columns) {
  const std::vector<CellPair> cells = CellsOfExperts(task, matrix.side);
  BiasRows rows = {.type = type_,
                   .columns = columns,
                   .stride = matrix.stride,
                   .rows = matrix.cells.placed,
                   .count = static_cast<int>(cells.size())};
  rows.rows.data = Writable(matrix.data);
  ASSIGN_OR_RETURN(rows.experts, lists_.FindGroups(cells));
  return rows;
}

StatusOr<ActivationRows> CudaFfn::KeptRows(const FfnTask& task, const std::byte* kept) {
  const std::vector<CellPair> cells = CellsOfExperts(task, &CellPair::from);
  ActivationRows rows = {.type = type_,
                         .hidden = hidden_,
                         .gated = gated_,
                         .limit = limit_,
                         .rows = task.from.placed,
                         .count = static_cast<int>(cells.size())};
  rows.rows.data = Writable(kept);
  ASSIGN_OR_RETURN(rows.cells, lists_.Find(cells));
  return rows;
}

}  // namespace moeplan::executor::cuda
