// Rows of tokens to slots and back against the host kernels, on random routings, buffers and layouts. What a kernel is
// not to write stays poisoned on both sides.
#include "executor/cuda/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

struct RowsCase {
  Layer layer;
  RowShape shape;
  TokenRows tokens;  // Without data.
  int own_block = 0;
  std::vector<int32_t> expert, slot;
  std::vector<float> weight;
  CellLayout cells;
  SlotAddress address;
  std::vector<int32_t> counts;

  int rows() const { return tokens.blocks * tokens.rows_per_block; }
  size_t slot_bytes() const { return MostRows(cells) * shape.row_bytes(); }
};

// Different experts of each token, and slots as they come, some of them none.
void Route(RowsCase& made, int capacity, std::mt19937_64& random) {
  const int experts = made.layer.experts, width = made.layer.top_k;
  const size_t pairs = static_cast<size_t>(made.rows()) * width;
  made.expert.assign(pairs, 0);
  made.slot.assign(pairs, -1);
  made.weight = RandomValues(random, pairs);
  made.counts.assign(made.tokens.blocks * experts, 0);
  std::vector<int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  for (int block = 0; block < made.tokens.blocks; ++block) {
    for (int row = 0; row < made.tokens.valid_rows; ++row) {
      std::ranges::shuffle(order, random);
      for (int choice = 0; choice < width; ++choice) {
        const size_t pair = (static_cast<size_t>(block) * made.tokens.rows_per_block + row) * width + choice;
        int32_t& taken = made.counts[block * experts + order[choice]];
        made.expert[pair] = order[choice];
        if (taken < capacity) made.slot[pair] = taken++;
      }
    }
  }
}

// All slots of all blocks, dealt to parts or to one of them, or with only as many rows as there are tokens.
void PlaceSlots(RowsCase& made, int capacity, std::mt19937_64& random) {
  SlotAddress& address = made.address;
  const int experts = made.layer.experts, blocks = made.tokens.blocks;
  address = {.experts_per_rank = experts, .expert_stride = 1, .own_block = made.own_block};
  if (random() % 3 == 0) {
    address.block_stride = experts;
    made.cells = {
        .blocks = blocks, .cells_per_block = experts, .rows_per_cell = capacity, .counts = made.counts.data()};
    return;
  }
  address.tensor_parts = Between(random, 1, 3);
  address.units = RandomUnits(random);
  address.own_tensor = Between(random, 0, address.tensor_parts - 1);
  address.own_chunk = Between(random, 0, address.units.chunks - 1);
  address.all_tensor = random() % 2 == 0;
  address.all_chunks = random() % 2 == 0;
  address.all_blocks = random() % 2 == 0;
  int cells = experts;
  const auto add_axis = [&](bool all, int size, int64_t& stride) {
    if (!all) return;
    stride = cells;
    cells *= size;
  };
  add_axis(address.all_chunks, address.units.chunks, address.chunk_stride);
  add_axis(address.all_tensor, address.tensor_parts, address.tensor_stride);
  add_axis(address.all_blocks, blocks, address.block_stride);
  const int parts = address.tensor_parts * AllUnits(address.units);
  made.cells = {.blocks = 1, .cells_per_block = cells, .rows_per_cell = (capacity + parts - 1) / parts};
  if (!address.all_chunks) {
    made.cells.rows_per_cell *= UnitsOf(address.units, address.own_chunk);
  } else if (!address.units.equal) {
    made.cells.chunk_stride = address.chunk_stride;
    made.cells.units = address.units;
  }
}

RowsCase RandomCase(std::mt19937_64& random) {
  RowsCase made;
  const int experts = Between(random, 1, 9), capacity = Between(random, 1, 12);
  made.shape = {.type = RandomType(random), .columns = RandomColumns(random)};
  made.layer = {.model_dim = made.shape.columns,
                .hidden_dim = 1,
                .experts = experts,
                .top_k = Between(random, 1, std::min(experts, 4)),
                .bytes_per_element = made.shape.element_bytes()};
  made.tokens = {.blocks = Between(random, 1, 3), .rows_per_block = Between(random, 1, 30)};
  made.tokens.valid_rows = Between(random, 0, made.tokens.rows_per_block);
  made.own_block = Between(random, 0, made.tokens.blocks - 1);
  Route(made, capacity, random);
  PlaceSlots(made, capacity, random);
  return made;
}

// A case on the device.
class CaseOnDevice {
 public:
  CaseOnDevice(const RowsCase& rows, const ByteVector& slots, const ByteVector& tokens)
      : case_(rows),
        slots(slots),
        tokens(tokens),
        expert_(rows.expert),
        slot_(rows.slot),
        weight_(rows.weight),
        counts_(rows.counts),
        first_rows_(PoisonedValues<int64_t>(CellCount(rows.cells) + 1)) {}

  // Of all blocks, or of the own one.
  TokensAndSlots Prepare(bool own_block) {
    PlacedRows placed = {.data = slots.data(), .cells = case_.cells, .first_rows = first_rows_.data()};
    if (placed.cells.counts != nullptr) {
      placed.cells.counts = counts_.data();
      EXPECT_EQ(FindFirstRows(placed.cells, first_rows_.data(), nullptr), OkStatus());
    }
    const RoutedPairs pairs = {.routing = {.expert = expert_.data(), .slot = slot_.data(), .weight = weight_.data()},
                               .choices = case_.layer.top_k,
                               .first_block = own_block ? case_.own_block : 0,
                               .blocks = own_block ? 1 : case_.tokens.blocks,
                               .rows_per_block = case_.tokens.rows_per_block,
                               .valid_rows = case_.tokens.valid_rows};
    places = std::make_unique<OnDevice<int32_t>>(PoisonedValues<int32_t>(pairs.Pairs()));
    // What an earlier call may have left there.
    std::vector<int32_t> left(MostRows(case_.cells));
    for (int32_t& pair : left) pair = static_cast<int32_t>(random_() % (pairs.Pairs() + 2)) - 1;
    sources = std::make_unique<OnDevice<int32_t>>(left);
    EXPECT_EQ(FindPlaces(pairs, placed, case_.address, places->data(), sources->data(), nullptr), OkStatus());
    return {.shape = case_.shape,
            .pairs = pairs,
            .places = places->data(),
            .sources = sources->data(),
            .tokens = tokens.data(),
            .slots = placed};
  }

 private:
  const RowsCase& case_;

 public:
  OnDevice<std::byte> slots, tokens;
  std::unique_ptr<OnDevice<int32_t>> places, sources;

 private:
  std::mt19937_64 random_{TestSeed()};
  OnDevice<int32_t> expert_, slot_;
  OnDevice<float> weight_;
  OnDevice<int32_t> counts_;
  OnDevice<int64_t> first_rows_;
};

class RowKernelsTest : public DeviceTest {
 protected:
  void Start(std::mt19937_64& random) {
    case_ = RandomCase(random);
    reference_ = std::make_unique<HostReference>(case_.layer);
    slots_ = ElementBytes(RandomValues(random, MostRows(case_.cells) * case_.shape.columns), case_.shape.type);
    tokens_ =
        ElementBytes(RandomValues(random, static_cast<size_t>(case_.rows()) * case_.shape.columns), case_.shape.type);
    own_ = ElementBytes(RandomValues(random, static_cast<size_t>(case_.tokens.rows_per_block) * case_.shape.columns),
                        case_.shape.type);
  }

  TokenRows Tokens(ByteVector& data) const {
    TokenRows rows = case_.tokens;
    rows.data = data.data();
    return rows;
  }
  TokenRows OwnTokens(ByteVector& data) const {
    TokenRows rows = Tokens(data);
    rows.blocks = 1;
    return rows;
  }
  SlotRows Slots(ByteVector& data) const {
    return {.data = data.data(), .cells = case_.cells, .address = case_.address};
  }
  Routing HostRouting() { return {case_.expert.data(), case_.slot.data(), case_.weight.data()}; }

  RowsCase case_;
  std::unique_ptr<HostReference> reference_;
  ByteVector slots_, tokens_, own_;
};

constexpr int kCases = 150;

TEST_F(RowKernelsTest, DispatchPlacesEveryRowAsTheHostDoes) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    Start(random);
    ByteVector expected = Poisoned(case_.slot_bytes());
    reference_->kernels().Dispatch(Tokens(tokens_), HostRouting(), Slots(expected), reference_->stream());
    reference_->Finish();
    CaseOnDevice device(case_, Poisoned(case_.slot_bytes()), tokens_);
    const TokensAndSlots rows = device.Prepare(/*own_block=*/false);
    EXPECT_EQ(ScatterRows(rows, /*weighted=*/false, nullptr), OkStatus());
    EXPECT_EQ(device.slots.Read(), expected) << "case " << i;
    EXPECT_EQ(device.tokens.Read(), tokens_) << "case " << i;
  }
}

TEST_F(RowKernelsTest, CombineGradientWeighsEveryRowAsTheHostDoes) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    Start(random);
    ByteVector expected = Poisoned(case_.slot_bytes());
    reference_->kernels().CombineGradient(Tokens(tokens_), HostRouting(), Slots(expected), reference_->stream());
    reference_->Finish();
    CaseOnDevice device(case_, Poisoned(case_.slot_bytes()), tokens_);
    const TokensAndSlots rows = device.Prepare(/*own_block=*/false);
    EXPECT_EQ(ScatterRows(rows, /*weighted=*/true, nullptr), OkStatus());
    EXPECT_EQ(device.slots.Read(), expected) << "case " << i;
  }
}

TEST_F(RowKernelsTest, CombineSumsInTheOrderOfTheHost) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    Start(random);
    const bool adds = random() % 2 == 0;
    ByteVector expected = Poisoned(own_.size());
    reference_->kernels().Combine({.slots = Slots(slots_),
                                   .routing = HostRouting(),
                                   .out = OwnTokens(expected),
                                   .addend = adds ? own_.data() : nullptr},
                                  reference_->stream());
    reference_->Finish();
    CaseOnDevice device(case_, slots_, Poisoned(own_.size()));
    const OnDevice<std::byte> addend(own_);
    const TokensAndSlots rows = device.Prepare(/*own_block=*/true);
    EXPECT_EQ(GatherRows(rows, /*weighted=*/true, adds ? addend.data() : nullptr, nullptr), OkStatus());
    EXPECT_EQ(device.tokens.Read(), expected) << "case " << i;
  }
}

TEST_F(RowKernelsTest, DispatchGradientSumsInTheOrderOfTheHost) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    Start(random);
    ByteVector expected = Poisoned(tokens_.size());
    reference_->kernels().DispatchGradient(Slots(slots_), HostRouting(), Tokens(expected), reference_->stream());
    reference_->Finish();
    CaseOnDevice device(case_, slots_, Poisoned(tokens_.size()));
    const TokensAndSlots rows = device.Prepare(/*own_block=*/false);
    EXPECT_EQ(GatherRows(rows, /*weighted=*/false, /*addend=*/nullptr, nullptr), OkStatus());
    EXPECT_EQ(device.tokens.Read(), expected) << "case " << i;
  }
}

TEST_F(RowKernelsTest, RoutingGradientIsTheProductOfRows) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    Start(random);
    const size_t pairs = static_cast<size_t>(case_.tokens.rows_per_block) * case_.layer.top_k;
    CaseOnDevice device(case_, slots_, own_);
    const TokensAndSlots rows = device.Prepare(/*own_block=*/true);
    const OnDevice<float> gradient(PoisonedValues<float>(pairs));
    EXPECT_EQ(RoutingGradient(rows, gradient.data(), nullptr), OkStatus());
    const std::vector<float> found = gradient.Read(), slots = ValuesOf(slots_, case_.shape.type);
    const std::vector<float> tokens = ValuesOf(own_, case_.shape.type);
    const std::vector<int32_t> places = device.places->Read();
    std::vector<float> host = PoisonedValues<float>(pairs);
    reference_->kernels().RoutingGradient(OwnTokens(own_), Slots(slots_), HostRouting(), host.data(),
                                          reference_->stream());
    reference_->Finish();
    for (size_t pair = 0; pair < pairs; ++pair) {
      double product = 0, size = 1e-30;
      for (int column = 0; places[pair] >= 0 && column < case_.shape.columns; ++column) {
        const double part = static_cast<double>(tokens[pair / case_.layer.top_k * case_.shape.columns + column]) *
                            slots[static_cast<size_t>(places[pair]) * case_.shape.columns + column];
        product += part;
        size += std::abs(part);
      }
      EXPECT_LE(std::abs(found[pair] - product), 1e-6 * size) << "pair " << pair;
      EXPECT_LE(std::abs(found[pair] - host[pair]), 1e-5 * size) << "pair " << pair;
    }
  }
}

TEST_F(RowKernelsTest, FirstRowsOfPiecesBeginAsIfAllCellsWereFull) {
  // Two blocks of three cells in two pieces of three; the counts of three pieces, of which the buffer holds the last
  // two.
  const std::vector<int32_t> counts = {9, 9, 9, 1, 0, 2, 4, 4, 4};
  const OnDevice<int32_t> on_device(counts);
  const CellLayout cells = {.blocks = 2,
                            .cells_per_block = 3,
                            .rows_per_cell = 4,
                            .counts = on_device.data(),
                            .counted_pieces = 3,
                            .first_piece = 1,
                            .pieces = 2};
  const OnDevice<int64_t> first_rows(PoisonedValues<int64_t>(7));
  ASSERT_EQ(FindFirstRows(cells, first_rows.data(), nullptr), OkStatus());
  EXPECT_EQ(first_rows.Read(), (std::vector<int64_t>{0, 1, 1, 12, 16, 20, 24}));
}

TEST_F(RowKernelsTest, FirstRowsOfManyCellsAreTheirRunningSum) {
  std::mt19937_64 random(TestSeed());
  std::vector<int32_t> counts(1000);
  for (int32_t& count : counts) count = Between(random, 0, 50);
  const OnDevice<int32_t> on_device(counts);
  const CellLayout cells = {.cells_per_block = 1000, .rows_per_cell = 50, .counts = on_device.data()};
  const OnDevice<int64_t> first_rows(PoisonedValues<int64_t>(1001));
  ASSERT_EQ(FindFirstRows(cells, first_rows.data(), nullptr), OkStatus());
  std::vector<int64_t> expected(1001, 0);
  std::inclusive_scan(counts.begin(), counts.end(), expected.begin() + 1, std::plus<>(), int64_t{0});
  EXPECT_EQ(first_rows.Read(), expected);
}

}  // namespace
}  // namespace moeplan::executor::cuda
