// Cells copied into place and summed, against the host kernels.
#include "executor/cuda/cell_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "executor/cuda/cell_groups.h"
#include "executor/cuda/row_kernels.h"
#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

// Cells of a buffer, full ones or as many rows as counts say, on the host and on the device.
class Cells {
 public:
  Cells(const RowShape& shape, int rows_per_cell, std::vector<int32_t> counts, int cells, const ByteVector& data)
      : shape_(shape),
        counts_(std::move(counts)),
        device_counts_(counts_),
        first_rows_(PoisonedValues<int64_t>(cells + 1)),
        host_(data),
        device_(data) {
    layout_ = {.cells_per_block = cells, .rows_per_cell = rows_per_cell};
  }

  SlotRows OnHost() {
    CellLayout cells = layout_;
    if (!counts_.empty()) cells.counts = counts_.data();
    return {.data = host_.data(), .cells = cells, .address = {}};
  }
  PlacedRows OnTheDevice() {
    PlacedRows placed = {.data = device_.data(), .cells = layout_, .first_rows = first_rows_.data()};
    if (counts_.empty()) return placed;
    placed.cells.counts = device_counts_.data();
    EXPECT_EQ(FindFirstRows(placed.cells, first_rows_.data(), nullptr), OkStatus());
    return placed;
  }
  const ByteVector& host() const { return host_; }
  ByteVector device() const { return device_.Read(); }

 private:
  RowShape shape_;
  CellLayout layout_;
  std::vector<int32_t> counts_;
  OnDevice<int32_t> device_counts_;
  OnDevice<int64_t> first_rows_;
  ByteVector host_;
  OnDevice<std::byte> device_;
};

struct CellsCase {
  RowShape shape;
  int rows_per_cell = 0;
  std::vector<CellPair> pairs;
  std::unique_ptr<Cells> in, out;
};

// `out` has `targets` cells in an order of their own, and each is `parts` cells of `in`, which has more than that.
CellsCase RandomCells(std::mt19937_64& random, int parts) {
  CellsCase made;
  made.shape = {.type = RandomType(random), .columns = RandomColumns(random)};
  made.rows_per_cell = Between(random, 1, 9);
  const int targets = Between(random, 1, 12), sources = targets * parts + Between(random, 0, 3);
  std::vector<int32_t> from(sources), to(targets), in_counts, out_counts;
  std::iota(from.begin(), from.end(), 0);
  std::iota(to.begin(), to.end(), 0);
  std::ranges::shuffle(from, random);
  std::ranges::shuffle(to, random);
  for (int i = 0; i < targets * parts; ++i) made.pairs.push_back({from[i], to[i / parts]});
  if (random() % 2 == 0) {
    out_counts.resize(targets);
    in_counts.resize(sources);
    for (int32_t& count : in_counts) count = Between(random, 0, made.rows_per_cell);
    for (int32_t& count : out_counts) count = Between(random, 0, made.rows_per_cell);
    for (const CellPair& pair : made.pairs) in_counts[pair.from] = out_counts[pair.to];
  }
  const size_t cell = static_cast<size_t>(made.rows_per_cell) * made.shape.columns;
  made.in = std::make_unique<Cells>(made.shape, made.rows_per_cell, in_counts, sources,
                                    ElementBytes(RandomValues(random, sources * cell), made.shape.type));
  made.out = std::make_unique<Cells>(made.shape, made.rows_per_cell, out_counts, targets,
                                     Poisoned(targets * cell * made.shape.element_bytes()));
  return made;
}

Layer LayerOf(const RowShape& shape) {
  return {.model_dim = shape.columns,
          .hidden_dim = 1,
          .experts = 1,
          .top_k = 1,
          .bytes_per_element = shape.element_bytes()};
}

class CellKernelsTest : public DeviceTest {};

TEST_F(CellKernelsTest, CellsAreCopiedIntoPlace) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const CellsCase test = RandomCells(random, /*parts=*/1);
    HostReference reference(LayerOf(test.shape));
    reference.kernels().CopyCells(test.in->OnHost(), test.out->OnHost(), test.pairs, reference.stream());
    reference.Finish();
    const OnDevice<CellPair> pairs(test.pairs);
    EXPECT_EQ(CopyCells(test.shape, test.in->OnTheDevice(), test.out->OnTheDevice(), pairs.data(),
                        static_cast<int>(test.pairs.size()), nullptr),
              OkStatus());
    EXPECT_EQ(test.out->device(), test.out->host()) << "case " << i;
  }
}

TEST_F(CellKernelsTest, CellsAreSummedInTheOrderOfTheHost) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const CellsCase test = RandomCells(random, Between(random, 1, 5));
    HostReference reference(LayerOf(test.shape));
    reference.kernels().SumCells(test.in->OnHost(), test.out->OnHost(), test.pairs, reference.stream());
    reference.Finish();
    const std::vector<int32_t> first_pairs = FirstPairsOf(test.pairs);
    const OnDevice<CellPair> pairs(test.pairs);
    const OnDevice<int32_t> first(first_pairs);
    const CellGroups groups = {
        .pairs = pairs.data(), .first_pairs = first.data(), .groups = static_cast<int>(first_pairs.size()) - 1};
    EXPECT_EQ(SumCells(test.shape, test.in->OnTheDevice(), test.out->OnTheDevice(), groups, nullptr), OkStatus());
    EXPECT_EQ(test.out->device(), test.out->host()) << "case " << i;
  }
}

}  // namespace
}  // namespace moeplan::executor::cuda
