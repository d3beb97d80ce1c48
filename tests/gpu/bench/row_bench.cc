#include "executor/cuda/activation_kernels.h"
#include "executor/cuda/cell_kernels.h"
#include "executor/cuda/row_kernels.h"
#include "models/text.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kTokens = 16384, kColumns = 4096, kExperts = 64, kChoices = 2;
constexpr int kCapacity = kTokens * kChoices / kExperts;
constexpr int kSlots = kTokens * kChoices;
constexpr double kTarget = 0.85;

// Every expert gets as many tokens, of everywhere, so that slots are full and rows lie apart.
void FillRouting(const Routing& routing) {
  std::vector<int32_t> experts(kSlots), slots(kSlots), taken(kExperts, 0);
  for (int pair = 0; pair < kSlots; ++pair) {
    experts[pair] = static_cast<int32_t>((pair * 37LL + pair / kExperts) % kExperts);
    slots[pair] = taken[experts[pair]]++;
  }
  const std::vector<float> weights(kSlots, 0.5F);
  cudaMemcpy(routing.expert, experts.data(), sizeof(int32_t) * kSlots, cudaMemcpyHostToDevice);
  cudaMemcpy(routing.slot, slots.data(), sizeof(int32_t) * kSlots, cudaMemcpyHostToDevice);
  cudaMemcpy(routing.weight, weights.data(), sizeof(float) * kSlots, cudaMemcpyHostToDevice);
}

void MeasureType(ElementType type, double copy_bytes_per_s, std::vector<Measured>& results) {
  const RowShape shape = {.type = type, .columns = kColumns};
  const double row = static_cast<double>(shape.row_bytes());
  const BenchMemory tokens(kTokens * shape.row_bytes()), slots(kSlots * shape.row_bytes()),
      other(kSlots * shape.row_bytes()), third(kSlots * shape.row_bytes());
  const BenchMemory routing_memory(Routing::Bytes(kSlots)), places(kSlots * sizeof(int32_t)),
      sources(kSlots * sizeof(int32_t));
  const BenchMemory gradient(kSlots * sizeof(float));
  for (const BenchMemory* memory : {&tokens, &slots, &other}) FillElements(*memory, type);
  const Routing routing = Routing::At(routing_memory.data(), kSlots);
  FillRouting(routing);

  const RoutedPairs pairs = {.routing = routing, .choices = kChoices, .rows_per_block = kTokens, .valid_rows = kTokens};
  const PlacedRows placed = {.data = slots.data(), .cells = {.cells_per_block = kExperts, .rows_per_cell = kCapacity}};
  const SlotAddress address = {.experts_per_rank = kExperts, .expert_stride = 1};
  const TokensAndSlots rows = {.shape = shape,
                               .pairs = pairs,
                               .places = places.As<int32_t>(),
                               .sources = sources.As<int32_t>(),
                               .tokens = tokens.data(),
                               .slots = placed};
  const auto find = [&](int32_t* sources, cudaStream_t stream) {
    CheckOk(FindPlaces(pairs, placed, address, places.As<int32_t>(), sources, stream));
  };
  const auto add = [&](const char* name, double moved_rows, double target,
                       const std::function<void(cudaStream_t)>& run) {
    results.push_back(
        OfCopy(StrCat(name, ".", NameOf(type)), MedianSeconds(run), moved_rows * row, copy_bytes_per_s, target));
  };

  // A token is read once and written to each of its slots; combine the other way round.
  add("dispatch", kTokens + kSlots, kTarget, [&](cudaStream_t stream) {
    find(sources.As<int32_t>(), stream);
    CheckOk(ScatterRows(rows, /*weighted=*/false, stream));
  });
  add("combine_gradient", kTokens + kSlots, kTarget, [&](cudaStream_t stream) {
    find(sources.As<int32_t>(), stream);
    CheckOk(ScatterRows(rows, /*weighted=*/true, stream));
  });
  add("combine", kTokens + kSlots, kTarget, [&](cudaStream_t stream) {
    find(nullptr, stream);
    CheckOk(GatherRows(rows, /*weighted=*/true, /*addend=*/nullptr, stream));
  });
  add("dispatch_gradient", kTokens + kSlots, kTarget, [&](cudaStream_t stream) {
    find(nullptr, stream);
    CheckOk(GatherRows(rows, /*weighted=*/false, /*addend=*/nullptr, stream));
  });
  add("routing_gradient", kTokens + kSlots, 0, [&](cudaStream_t stream) {
    find(nullptr, stream);
    CheckOk(RoutingGradient(rows, gradient.As<float>(), stream));
  });

  std::vector<CellPair> copied, summed;
  for (int cell = 0; cell < kExperts; ++cell) {
    copied.push_back({cell, (cell * 5) % kExperts});
    summed.push_back({cell, cell / 4});
  }
  std::vector<int32_t> first_pairs;
  for (int pair = 0; pair <= kExperts; pair += 4) first_pairs.push_back(pair);
  const BenchMemory copied_pairs(kExperts * sizeof(CellPair)), summed_pairs(kExperts * sizeof(CellPair));
  const BenchMemory first(first_pairs.size() * sizeof(int32_t));
  copied_pairs.Fill(copied);
  summed_pairs.Fill(summed);
  first.Fill(first_pairs);
  PlacedRows out = placed;
  out.data = other.data();
  add("copy_cells", 2.0 * kSlots, kTarget, [&](cudaStream_t stream) {
    CheckOk(CopyCells(shape, placed, out, copied_pairs.As<CellPair>(), kExperts, stream));
  });
  add("sum_cells", 1.25 * kSlots, 0, [&](cudaStream_t stream) {
    CheckOk(SumCells(shape, placed, out, {summed_pairs.As<CellPair>(), first.As<int32_t>(), kExperts / 4}, stream));
  });

  std::vector<CellPair> experts;
  for (int expert = 0; expert < kExperts; ++expert) experts.push_back({expert, expert});
  copied_pairs.Fill(experts);
  for (const bool gated : {false, true}) {
    const ActivationRows args = {.type = type,
                                 .hidden = gated ? kColumns / 2 : kColumns,
                                 .gated = gated,
                                 .rows = placed,
                                 .cells = copied_pairs.As<CellPair>(),
                                 .count = kExperts};
    const double kept = kSlots, hidden = gated ? kSlots / 2.0 : kSlots;
    add(gated ? "swiglu" : "gelu", kept + hidden, 0,
        [&](cudaStream_t stream) { CheckOk(Activate(args, {}, other.data(), stream)); });
    add(gated ? "swiglu_gradient" : "gelu_gradient", 2 * kept + hidden, 0,
        [&](cudaStream_t stream) { CheckOk(ActivationGradient(args, other.data(), third.data(), stream)); });
  }
}

}  // namespace

void MeasureRows(double copy_bytes_per_s, std::vector<Measured>& results) {
  for (const ElementType type : {ElementType::kBfloat16, ElementType::kFloat32}) {
    MeasureType(type, copy_bytes_per_s, results);
  }
}

}  // namespace moeplan::executor::cuda
