#include "executor/runtime/graph_runner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "executor/errors.h"
#include "executor/host/elements.h"
#include "models/check.h"
#include "models/schedule/chunk_units.h"

namespace moeplan::executor {
namespace {

constexpr size_t kPhases = static_cast<size_t>(Phase::kTraining) + 1;

using Coordinates = std::map<Axis, int>;

// The coordinates of cell number `cell`, and back: axes that a buffer lacks do not count.
Coordinates CoordinatesOf(const Buffer& buffer, int cell) {
  Coordinates coordinates;
  for (auto extent = buffer.cells.rbegin(); extent != buffer.cells.rend(); ++extent) {
    coordinates[extent->axis] = cell % extent->size;
    cell /= extent->size;
  }
  return coordinates;
}

int CellAt(const Buffer& buffer, const Coordinates& coordinates) {
  int cell = 0;
  for (const Extent& extent : buffer.cells) {
    const auto found = coordinates.find(extent.axis);
    cell = cell * extent.size + (found == coordinates.end() ? 0 : found->second);
  }
  return cell;
}

int64_t StrideOf(const Buffer& buffer, Axis axis) {
  int64_t stride = 0, next = 1;
  for (auto extent = buffer.cells.rbegin(); extent != buffer.cells.rend(); ++extent) {
    if (extent->axis == axis) stride = next;
    next *= extent->size;
  }
  return stride;
}

int PartsOf(const std::vector<Extent>& slot_axes, Axis axis) {
  const auto found = std::ranges::find(slot_axes, axis, &Extent::axis);
  return found == slot_axes.end() ? 1 : found->size;
}

ChunkUnits UnitsOf(const TaskGraph& graph) {
  static_assert(ChunkUnits::kMost == kMostUnequalChunks);
  ChunkUnits units = {.chunks = PartsOf(graph.slot_axes, Axis::kChunk), .equal = graph.chunk_units.empty()};
  std::partial_sum(graph.chunk_units.begin(), graph.chunk_units.end(), units.first + 1);
  return units;
}

class Runner final : public GraphRunner {
 public:
  Runner(const TaskGraph& graph, const RankContext& context, const std::optional<WholeBatch>& whole,
         std::shared_ptr<ReplayAgreement> agreement)
      : graph_(graph),
        context_(context),
        whole_(whole),
        type_(ElementTypeOf(graph.layer.bytes_per_element)),
        units_(UnitsOf(graph)),
        agreement_(agreement != nullptr ? std::move(agreement) : std::make_shared<ReplayAgreement>()) {
    for (const Group group : kGroups) own_[static_cast<size_t>(group)] = IndexIn(group, graph.layout, context.rank);
  }

  Status Allocate() {
    memory_.resize(graph_.buffers.size());
    for (size_t id = 0; id < graph_.buffers.size(); ++id) {
      const Buffer& buffer = graph_.buffers[id];
      if (buffer.view_of != kNoBuffer) continue;
      ASSIGN_OR_RETURN(memory_[id], context_.device.Allocate(static_cast<size_t>(MaxRows(buffer) * buffer.row_bytes)));
    }
    router_sums_.resize(RouterSums::Count(graph_.layer.experts));
    ASSIGN_OR_RETURN(sums_memory_, context_.device.Allocate(router_sums_.size() * sizeof(double)));
    ASSIGN_OR_RETURN(answers_memory_, context_.device.Allocate(context_.groups.stage().size() * sizeof(int32_t)));
    if (whole_) {
      const size_t counts = static_cast<size_t>(2 * GatedBlocks() + 1) * graph_.layer.experts + 1;
      ASSIGN_OR_RETURN(carried_memory_, context_.device.Allocate(counts * sizeof(int32_t)));
    }
    for (size_t i = 0; i < graph_.tasks.size(); ++i) {
      started_.push_back(context_.device.MakeEvent());
      ended_.push_back(context_.device.MakeEvent());
      halves_.emplace_back();
      PairCells(graph_.tasks[i]);
    }
    for (const Task& task : graph_.tasks) {
      if (!SummedGradients(task)) continue;
      RETURN_IF_ERROR(context_.groups.JoinReplicas(graph_.layout));
      (void)StreamOf(task);  // Made now.
    }
    RETURN_IF_ERROR(JoinTeams());
    Register();
    return PrepareAllToAlls();
  }

  Status JoinTeams() {
    for (const Task& task : graph_.tasks) {
      const auto* op = std::get_if<CollectiveOp>(&task.op);
      if (op != nullptr && op->team != Team::kGroup) RETURN_IF_ERROR(TeamsOf(*op).status());
    }
    return OkStatus();
  }
  StatusOr<AllToAllTeams*> TeamsOf(const CollectiveOp& op) {
    return context_.groups.TeamsOf(op.group, ShapeOf(op.group, graph_.layout, graph_.gpus_per_node), own(op.group));
  }
  // Among whom a collective runs. Teams have been joined by now.
  Communicator& CommunicatorOf(const CollectiveOp& op) {
    return op.team == Team::kGroup ? context_.groups[op.group] : (**TeamsOf(op))[op.team];
  }

  // What the network sends from and receives into.
  void Register() {
    std::set<std::tuple<Group, Team, BufferId>> known;
    for (const Task& task : graph_.tasks) {
      const auto* op = std::get_if<CollectiveOp>(&task.op);
      if (op == nullptr) continue;
      for (BufferId id : {op->in, op->out, op->partial}) {
        while (id != kNoBuffer && graph_.buffers[id].view_of != kNoBuffer) id = graph_.buffers[id].view_of;
        if (id == kNoBuffer || memory_[id].bytes() == 0 || !known.emplace(op->group, op->team, id).second) continue;
        registered_.push_back(CommunicatorOf(*op).Register({memory_[id].data(), memory_[id].bytes()}));
      }
    }
  }

  void Enqueue(Phase phase) override {
    std::unique_ptr<Recording>& recording = RecordingOf(phase, gradient_place_);
    if (recording == nullptr) {
      recording = Take([this, phase] { Queue(phase); }, agreement_->phases[static_cast<size_t>(phase)]);
    }
    recording->Enqueue();
  }
  void Enqueue(BackwardHalf half) override {
    std::unique_ptr<Recording>& recording = half_recordings_[gradient_place_][static_cast<size_t>(half)];
    if (recording == nullptr) {
      const auto queue = [this, half] { Queue(Phase::kBackward, half); };
      // Weight gradients meet no other rank.
      const bool meets_ranks = half != BackwardHalf::kWeightGradients;
      recording = meets_ranks ? Take(queue, agreement_->input_gradients) : context_.device.Capture(queue);
    }
    recording->Enqueue();
  }
  void HoldForExperts(Stream& stream) override {
    const TaskRange range = TasksOf(graph_, Phase::kBackward);
    for (TaskId id = range.first; id < range.end; ++id) {
      const auto* const op = std::get_if<ExpertInputGradientOp>(&graph_.tasks[id].op);
      if (op != nullptr && !op->shared) context_.device.Wait(stream, *ended_[id]);
    }
  }
  void HoldForCounts(Stream& stream) override {
    const TaskRange range = TasksOf(graph_, Phase::kForward);
    for (TaskId id = range.first; id < range.end; ++id) {
      const TaskOp& op = graph_.tasks[id].op;
      const bool counts = std::holds_alternative<GateOp>(op) || std::holds_alternative<AssignSlotsOp>(op);
      if (counts) context_.device.Wait(stream, *ended_[id]);
    }
  }
  void UseGradientPlace(int place) override { gradient_place_ = place; }
  void RecordAnew(Phase phase, int place) override {
    RecordingOf(phase, place) = nullptr;
    RecordingOf(Phase::kTraining, place) = nullptr;
    if (phase != Phase::kForward) half_recordings_[place] = {};
  }

  Timeline LastTimeline(Phase phase) const override {
    Timeline timeline;
    const TaskRange range = TasksOf(graph_, phase);
    for (TaskId id = range.first; id < range.end; ++id) {
      const Task& task = graph_.tasks[id];
      timeline.push_back({.task = task.name,
                          .kind = task.kind,
                          .stream = task.stream,
                          .chunk = task.chunk,
                          .start_s = context_.device.TimeS(*started_[id]),
                          .end_s = context_.device.TimeS(*ended_[id])});
    }
    return timeline;
  }

  std::byte* input() override { return DataOf(graph_.input); }
  const std::byte* output() const override { return DataOf(graph_.output); }
  std::byte* output_gradient() override { return DataOf(graph_.output_gradient); }
  const std::byte* input_gradient() const override { return DataOf(graph_.input_gradient); }
  const float* gate_gradient() const override { return reinterpret_cast<const float*>(DataOf(graph_.gate_gradient)); }
  std::vector<std::span<std::byte>> dense_gradients() override {
    std::vector<std::span<std::byte>> slices;
    for (const Task& task : graph_.tasks) {
      if (const auto buffer = SummedGradients(task)) slices.push_back(BytesOf(*buffer));
    }
    return slices;
  }
  Routing routing() const override { return RoutingOf(GateTask().routing); }

  RoutedRows routed_rows() const override {
    const BufferId tokens = GateTask().tokens;
    const TokenRows rows = TokensOf(tokens);
    const int own_block = OwnBlock(rows);
    return {.first_row = own_block * rows.rows_per_block, .count = rows.valid_rows, .first_token = rows.first_token};
  }

  CarriedMemory carried() override {
    MOEPLAN_CHECK(whole_.has_value());
    return {.blocks = GatedBlocks(),
            .own_block = OwnBlock(TokensOf(GateTask().tokens)),
            .earlier = reinterpret_cast<std::byte*>(EarlierCounts()),
            .now = reinterpret_cast<std::byte*>(CountsNow()),
            .batch_pairs = reinterpret_cast<std::byte*>(BatchPairs())};
  }

  // The sums stay on the device until somebody asks: a run that ends in a copy to the host would end on the host.
  StatusOr<RouterStatistics> router_statistics() override {
    Stream& stream = context_.streams[StreamKind::kCompute];
    context_.device.Label(stream, "router statistics");
    context_.device.Copy(reinterpret_cast<std::byte*>(router_sums_.data()), sums_memory_.data(), sums_memory_.bytes(),
                         stream);
    RETURN_IF_ERROR(context_.device.Await(stream));
    return StatisticsOf(router_sums_, graph_.layer.experts);
  }

 private:
  std::unique_ptr<Recording>& RecordingOf(Phase phase, int place) {
    return recordings_[phase == Phase::kForward ? 0 : place][static_cast<size_t>(phase)];
  }

  // Replayed on all ranks of the stage or on none: a network library wants either, and not both in one collective. What
  // the ranks have agreed on once holds for work that a rank takes down again.
  std::unique_ptr<Recording> Take(std::function<void()> queue, std::optional<bool>& agreed) {
    std::unique_ptr<Recording> recording = context_.device.Capture(std::move(queue));
    if (!agreed) agreed = !recording->MayDiffer() || AllRanks(recording->CanReplay());
    *agreed ? recording->ReplayOrFail() : recording->QueueAnew();
    return recording;
  }

  // Whether all ranks of the stage say so; false where the device has failed. Blocks.
  bool AllRanks(bool own) {
    Communicator& stage = context_.groups.stage();
    if (stage.size() == 1) return own;
    const int32_t word = own ? 1 : 0;
    std::vector<int32_t> words(stage.size());
    const std::span<std::byte> all(answers_memory_.data(), answers_memory_.bytes());
    const std::span<std::byte> mine = all.subspan(context_.rank * sizeof word, sizeof word);
    Stream& stream = context_.streams[StreamKind::kInterNode];
    context_.device.Label(stream, "agree");
    context_.device.Copy(mine.data(), reinterpret_cast<const std::byte*>(&word), mine.size(), stream);
    stage.AllGather(mine, all, stream);
    context_.device.Copy(reinterpret_cast<std::byte*>(words.data()), all.data(), all.size(), stream);
    return context_.device.Await(stream).ok() && std::ranges::all_of(words, [](int32_t one) { return one == 1; });
  }

  // The buffer of a slice of dense gradients.
  static std::optional<BufferId> SummedGradients(const Task& task) {
    const auto* op = std::get_if<CollectiveOp>(&task.op);
    if (op == nullptr || op->group != Group::kDenseReplicas) return std::nullopt;
    return op->in;
  }

  // Which of the device's streams; the place in the order of the task's own stream stays.
  Stream& StreamOf(const Task& task) {
    return SummedGradients(task) ? context_.streams.ForData(task.stream) : context_.streams[task.stream];
  }

  bool IsIn(std::optional<BackwardHalf> half, TaskId id) const {
    const bool of_weights = std::holds_alternative<ExpertWeightGradientOp>(graph_.tasks[id].op);
    return !half || of_weights == (*half == BackwardHalf::kWeightGradients);
  }

  // Holds `task` until `before` has passed. Where that runs with the other half: until what it waits for has, and what
  // its stream runs before it.
  void WaitFor(TaskId before, const Task& task, std::optional<BackwardHalf> half, TaskRange range) {
    if (IsIn(half, before)) {
      if (graph_.tasks[before].stream == task.stream) return;
      return context_.device.Wait(context_.streams[task.stream], *ended_[before]);
    }
    if (half == BackwardHalf::kWeightGradients) return;  // The other half has ended.
    for (const TaskId earlier : graph_.tasks[before].dependencies) WaitFor(earlier, task, half, range);
    for (TaskId id = before; id-- > range.first;) {
      if (graph_.tasks[id].stream != graph_.tasks[before].stream || !IsIn(half, id)) continue;
      return WaitFor(id, task, half, range);
    }
  }

  // Whether the task is a chunk's all-to-all that needs nothing of what its own stream does before it, so that it may
  // begin before that has ended.
  bool HasHalves(const Task& task, std::optional<BackwardHalf> half) {
    const auto* op = std::get_if<CollectiveOp>(&task.op);
    return op != nullptr && !half && units_.chunks > 1 && op->collective == Collective::kAllToAll &&
           op->algorithm == AllToAllAlgorithm::kDirect && CommunicatorOf(*op).HasHalves() &&
           std::ranges::none_of(task.dependencies,
                                [&](TaskId before) { return graph_.tasks[before].stream == task.stream; });
  }

  // Queues the first half on a stream that does nothing else, and the second on the task's own. `before`: the task that
  // its own stream runs before it, if there is one.
  void QueueHalves(TaskId id, std::optional<TaskId> before) {
    const Task& task = graph_.tasks[id];
    Stream &ahead = context_.streams.ahead(task.stream), &stream = context_.streams[task.stream];
    if (halves_[id].ready == nullptr) halves_[id] = {context_.device.MakeEvent(), context_.device.MakeEvent()};
    Event &ready = *halves_[id].ready, &begun = *halves_[id].begun;
    if (!before) {
      context_.device.Record(ready, stream);
      context_.device.Wait(ahead, ready);
    } else if (halves_[*before].ready == nullptr) {
      context_.device.Wait(ahead, *ended_[*before]);
    }
    for (const TaskId needed : task.dependencies) context_.device.Wait(ahead, *ended_[needed]);
    context_.device.Record(ready, ahead);
    context_.device.Label(ahead, task.name);
    context_.device.SetTokens(ahead, CallTokensNow());
    const auto& op = std::get<CollectiveOp>(task.op);
    const Communicator::SecondHalf second =
        CommunicatorOf(op).StartAllToAll(PeersOf(op.in, PeersIn(op.in)), PeersOf(op.out, PeersIn(op.out)), ahead);
    context_.device.SetTokens(ahead, {});
    context_.device.Record(begun, ahead);
    context_.device.Wait(stream, ready);
    context_.device.Record(*started_[id], stream);
    context_.device.Wait(stream, begun);
    second(stream);
    context_.device.Record(*ended_[id], stream);
  }

  void Queue(Phase phase, std::optional<BackwardHalf> half = {}) {
    const TaskRange range = TasksOf(graph_, phase);
    std::array<std::optional<TaskId>, kStreamKinds> last;  // Of each stream, so far.
    for (TaskId id = range.first; id < range.end; ++id) {
      if (!IsIn(half, id)) continue;
      const Task& task = graph_.tasks[id];
      const std::optional<TaskId> before = std::exchange(last[static_cast<size_t>(task.stream)], id);
      if (HasHalves(task, half)) {
        QueueHalves(id, before);
        continue;
      }
      Stream &order = context_.streams[task.stream], &stream = StreamOf(task);
      for (const TaskId before : task.dependencies) WaitFor(before, task, half, range);
      context_.device.Label(stream, task.name);
      context_.device.Record(*started_[id], order);
      if (&stream != &order) context_.device.Wait(stream, *started_[id]);
      std::visit([&](const auto& op) { Launch(op, id, stream); }, task.op);
      context_.device.Record(*ended_[id], stream);
      if (&stream != &order) context_.device.Wait(order, *ended_[id]);
    }
  }

  int own(Group group) const { return own_[static_cast<size_t>(group)]; }

  int OwnBlock(const TokenRows& tokens) const { return tokens.blocks > 1 ? own(Group::kShard) : 0; }

  const GateOp& GateTask() const {
    for (const Task& task : graph_.tasks) {
      if (const auto* gate = std::get_if<GateOp>(&task.op)) return *gate;
    }
    MOEPLAN_CHECK(false && "every layer has a gate");
    std::abort();
  }

  std::byte* DataOf(BufferId id) const {
    const Buffer& buffer = graph_.buffers[id];
    if (buffer.view_of == kNoBuffer) return memory_[id].data();
    const int block = buffer.view_block == kOwnTensorBlock ? own(Group::kTensor) : buffer.view_block;
    // The last slices may lie beyond the tokens; they hold no valid row.
    const double rows = std::min(block * MaxRows(buffer) / buffer.units, MaxRows(graph_.buffers[buffer.view_of]));
    return DataOf(buffer.view_of) + static_cast<size_t>(rows * buffer.row_bytes);
  }

  std::byte* OptionalDataOf(BufferId id) const { return id == kNoBuffer ? nullptr : DataOf(id); }

  std::span<std::byte> BytesOf(BufferId id) const {
    const Buffer& buffer = graph_.buffers[id];
    return {DataOf(id), static_cast<size_t>(MaxRows(buffer) * buffer.row_bytes)};
  }

  // The buffer as `blocks` equal blocks of cells.
  CellLayout CellsOf(BufferId id, int blocks) const {
    const Buffer& buffer = graph_.buffers[id];
    CellLayout cells{
        .blocks = blocks, .cells_per_block = Cells(buffer) / blocks, .rows_per_cell = buffer.rows_per_cell};
    // Of counts there is one for each chunk, however many units it has.
    if (const int chunks = ExtentOf(buffer, Axis::kChunk); chunks == 1) {
      cells.rows_per_cell *= buffer.units;
    } else if (buffer.units > chunks) {
      cells.chunk_stride = StrideOf(buffer, Axis::kChunk);
      cells.units = units_;
    }
    if (buffer.counts != kNoBuffer) {
      const Buffer& counts = graph_.buffers[buffer.counts];
      cells.counts = reinterpret_cast<const int32_t*>(DataOf(buffer.counts));
      cells.counted_pieces = ExtentOf(counts, Axis::kChunk);
      cells.pieces = ExtentOf(buffer, Axis::kChunk);
      cells.first_piece = cells.pieces == 1 ? buffer.chunk : 0;
      cells.repeat = Cells(buffer) / cells.pieces / (Cells(counts) / cells.counted_pieces);
      // Counts that lack the shard axis stand for every shard of a block of experts.
      cells.cells_per_block = ExtentOf(buffer, Axis::kExpert);
      cells.blocks = Cells(buffer) / cells.cells_per_block;
    }
    return cells;
  }

  PeerRows PeersOf(BufferId id, int peers) const {
    return {.data = DataOf(id),
            .row_bytes = static_cast<size_t>(graph_.buffers[id].row_bytes),
            .cells = CellsOf(id, peers)};
  }

  // How many ranks of a group or team the leading axes of a buffer name.
  int PeersIn(BufferId id) const {
    const Buffer& buffer = graph_.buffers[id];
    return ExtentOf(buffer, Axis::kExpertRank) * ExtentOf(buffer, Axis::kShard) * ExtentOf(buffer, Axis::kNode);
  }

  SlotRows SlotsOf(BufferId id) const {
    const Buffer& buffer = graph_.buffers[id];
    const int tensor_parts = PartsOf(graph_.slot_axes, Axis::kTensor);
    const int blocks = ExtentOf(buffer, Axis::kBlock);
    if (IsByNode(buffer)) {  // Nodes stand for experts.
      return {.data = DataOf(id),
              .cells = CellsOf(id, 1),
              .address = {.expert_rank_stride = StrideOf(buffer, Axis::kNode)}};
    }
    return {.data = DataOf(id),
            .cells = CellsOf(id, 1),
            .address = {.experts_per_rank = graph_.layer.experts / graph_.layout.expert_parallel,
                        .expert_rank_stride = StrideOf(buffer, Axis::kExpertRank),
                        .expert_stride = StrideOf(buffer, Axis::kExpert),
                        .block_stride = StrideOf(buffer, Axis::kBlock),
                        .tensor_stride = StrideOf(buffer, Axis::kTensor),
                        .chunk_stride = StrideOf(buffer, Axis::kChunk),
                        .all_tensor = ExtentOf(buffer, Axis::kTensor) == tensor_parts,
                        .all_chunks = ExtentOf(buffer, Axis::kChunk) == units_.chunks,
                        .own_tensor = own(Group::kTensor),
                        .own_chunk = buffer.chunk,
                        .own_block = blocks > 1 ? own(Group::kShard) : 0,
                        .tensor_parts = tensor_parts,
                        .units = units_}};
  }

  CallTokens CallTokensNow() const { return {.call = Tokens(), .batch = BatchTokens()}; }
  int Tokens() const { return static_cast<int>(SizesOf(graph_.layer, graph_.layout).tokens); }

  static bool IsByNode(const Buffer& buffer) { return ExtentOf(buffer, Axis::kNode) > 1; }

  TokenRows TokensOf(BufferId id) const {
    const Buffer& buffer = graph_.buffers[id];
    if (IsByNode(buffer)) {  // Those of all nodes, one behind the other.
      const int rows = static_cast<int>(MaxRows(buffer));
      return {.data = DataOf(id), .rows_per_block = rows, .valid_rows = rows};
    }
    const int first = buffer.sliced ? own(Group::kTensor) * buffer.rows_per_cell : 0;
    return {.data = DataOf(id),
            .blocks = Cells(buffer),
            .rows_per_block = buffer.rows_per_cell,
            .valid_rows = std::clamp(Tokens() - first, 0, buffer.rows_per_cell),
            .first_token = first};
  }

  Routing RoutingOf(BufferId id) const {
    const size_t pairs = static_cast<size_t>(MaxRows(graph_.buffers[id])) * RoutingWidth(graph_.layer);
    return Routing::At(DataOf(id), pairs);
  }

  RouterSums Sums() const {
    return RouterSums::At(reinterpret_cast<double*>(sums_memory_.data()), graph_.layer.experts);
  }

  std::span<const int32_t> CountsOf(BufferId id) const {
    if (id == kNoBuffer) return {};
    return {reinterpret_cast<const int32_t*>(DataOf(id)), static_cast<size_t>(MaxRows(graph_.buffers[id]))};
  }

  int GatedBlocks() const { return Cells(graph_.buffers[GateTask().tokens]); }
  // A part's carried memory holds, one behind the other, earlier counts and the place of the first token, the counts
  // now, and the pairs of the whole source batch.
  int32_t* EarlierCounts() const { return reinterpret_cast<int32_t*>(carried_memory_.data()); }
  int32_t* CountsNow() const { return EarlierCounts() + static_cast<size_t>(GatedBlocks()) * graph_.layer.experts + 1; }
  int32_t* BatchPairs() const { return CountsNow() + static_cast<size_t>(GatedBlocks()) * graph_.layer.experts; }

  CarriedCounts Carried() const {
    if (!whole_) return {};
    return {.first_token = CountsNow() - 1, .earlier = EarlierCounts(), .now = CountsNow(), .slots = whole_->slots};
  }
  // For a slice, whose pairs are counted once all slices are known.
  CarriedCounts PlaceAlone() const { return whole_ ? CarriedCounts{.first_token = CountsNow() - 1} : CarriedCounts(); }

  int BatchTokens() const { return whole_ ? whole_->tokens : Tokens(); }
  std::span<const int32_t> PairCountsOf(BufferId id) const {
    if (id == kNoBuffer || !whole_) return CountsOf(id);
    return {BatchPairs(), static_cast<size_t>(graph_.layer.experts)};
  }

  // Where tokens of several blocks were gated, the routing of the own one.
  Routing OwnBlockOf(BufferId id) const {
    Routing routing = RoutingOf(id);
    const Buffer& buffer = graph_.buffers[id];
    if (Cells(buffer) == 1) return routing;
    const size_t first = static_cast<size_t>(own(Group::kShard)) * buffer.rows_per_cell * RoutingWidth(graph_.layer);
    return {.expert = routing.expert + first, .slot = routing.slot + first, .weight = routing.weight + first};
  }

  // Cells that belong together, by destination cell.
  std::vector<CellPair> Pairs(BufferId from, BufferId to) const {
    std::vector<CellPair> pairs;
    for (int cell = 0; cell < Cells(graph_.buffers[from]); ++cell) {
      Coordinates coordinates = CoordinatesOf(graph_.buffers[from], cell);
      coordinates.try_emplace(Axis::kChunk, graph_.buffers[from].chunk);
      pairs.push_back({cell, CellAt(graph_.buffers[to], coordinates)});
    }
    std::ranges::stable_sort(pairs, {}, &CellPair::to);
    return pairs;
  }

  void PairCells(const Task& task) {
    cell_pairs_.emplace_back();
    expert_pairs_.emplace_back();
    if (const auto* copy = std::get_if<CopyOp>(&task.op)) cell_pairs_.back() = Pairs(copy->in, copy->out);
    if (const auto* reduce = std::get_if<ReduceOp>(&task.op)) cell_pairs_.back() = Pairs(reduce->in, reduce->out);
    if (const auto* expert = std::get_if<ExpertOp>(&task.op)) PairExperts(expert->in, expert->out);
    if (const auto* expert = std::get_if<ExpertInputGradientOp>(&task.op); expert != nullptr && !expert->shared) {
      PairExperts(expert->out_gradient, expert->in_gradient);
    }
    if (const auto* expert = std::get_if<ExpertWeightGradientOp>(&task.op); expert != nullptr && !expert->shared) {
      PairExperts(expert->in, expert->in);
    }
  }

  void PairExperts(BufferId in, BufferId out) {
    expert_pairs_.back().resize(graph_.layer.experts / graph_.layout.expert_parallel);
    for (const CellPair& pair : Pairs(in, out)) {
      const Coordinates coordinates = CoordinatesOf(graph_.buffers[in], pair.from);
      const auto local = coordinates.find(Axis::kExpert);
      expert_pairs_.back()[local == coordinates.end() ? 0 : local->second].push_back(pair);
    }
  }

  // The all-to-alls that are not DIRECT. They run on one stream one after the other, so they share their scratch.
  Status PrepareAllToAlls() {
    phased_.resize(graph_.tasks.size());
    ASSIGN_OR_RETURN(scratch_, context_.device.Allocate(static_cast<size_t>(ScratchBytes(graph_, context_.rank))));
    for (size_t id = 0; id < graph_.tasks.size(); ++id) {
      const auto* op = std::get_if<CollectiveOp>(&graph_.tasks[id].op);
      if (op == nullptr || op->algorithm == AllToAllAlgorithm::kDirect) continue;
      const GroupShape shape = ShapeOf(op->group, graph_.layout, graph_.gpus_per_node);
      ASSIGN_OR_RETURN(AllToAllTeams * teams, context_.groups.TeamsOf(op->group, shape, own(op->group)));
      const PhasedExchange exchange = {.algorithm = op->algorithm,
                                       .group = shape,
                                       .rank = own(op->group),
                                       .send = PeersOf(op->in, PeersIn(op->in)),
                                       .recv = PeersOf(op->out, PeersIn(op->out)),
                                       .scratch = {scratch_.data(), scratch_.bytes()}};
      ASSIGN_OR_RETURN(phased_[id],
                       PhasedAllToAll::Prepare(exchange, context_.device, *teams, context_.streams.inside_nodes()));
    }
    return OkStatus();
  }

  void Launch(const GateOp& op, TaskId, Stream& stream) {
    int32_t* counts = op.counts == kNoBuffer ? nullptr : reinterpret_cast<int32_t*>(DataOf(op.counts));
    const TokenRows tokens = TokensOf(op.tokens);
    context_.kernels.Gate({.tokens = tokens,
                           .routing = RoutingOf(op.routing),
                           .capacity = op.drops ? graph_.capacity : std::numeric_limits<int>::max(),
                           .carried = op.drops ? Carried() : PlaceAlone(),
                           .own_block = OwnBlock(tokens),
                           .counts = counts,
                           .sums = Sums()},
                          stream);
  }

  void Launch(const AssignSlotsOp& op, TaskId, Stream& stream) {
    context_.kernels.AssignSlots({.all_counts = reinterpret_cast<const int32_t*>(DataOf(op.all_counts)),
                                  .slices = graph_.layout.tensor_parallel,
                                  .own_slice = own(Group::kTensor),
                                  .capacity = graph_.capacity,
                                  .carried = Carried(),
                                  .tokens = TokensOf(GateTask().tokens),
                                  .routing = RoutingOf(op.routing),
                                  .experts_per_rank = graph_.layer.experts / graph_.layout.expert_parallel,
                                  .units = units_,
                                  .send_counts = reinterpret_cast<int32_t*>(DataOf(op.send_counts)),
                                  .sums = Sums()},
                                 stream);
  }

  void Launch(const DispatchOp& op, TaskId, Stream& stream) {
    context_.kernels.Dispatch(TokensOf(op.tokens), RoutingOf(op.routing), SlotsOf(op.out), stream);
  }

  void Launch(const SplitByNodeOp& op, TaskId, Stream& stream) {
    const int nodes = ExtentOf(graph_.buffers[op.node_counts], Axis::kNode);
    context_.kernels.SplitByNode({.tokens = TokensOf(op.tokens),
                                  .routing = RoutingOf(op.routing),
                                  .nodes = nodes,
                                  .experts_per_node = graph_.layer.experts / nodes,
                                  .node_routing = RoutingOf(op.node_routing),
                                  .node_counts = reinterpret_cast<int32_t*>(DataOf(op.node_counts))},
                                 stream);
  }

  void Launch(const RelayRoutingOp& op, TaskId, Stream& stream) {
    const Buffer& routings = graph_.buffers[op.all_routings];
    const int nodes = ExtentOf(routings, Axis::kNode), ranks = GroupSize(Group::kExpertShard, graph_.layout);
    context_.kernels.RelayRouting({.routings = DataOf(op.all_routings),
                                   .nodes = nodes,
                                   .own_node = own(Group::kExpertShard) / (ranks / nodes),
                                   .experts_per_node = graph_.layer.experts / nodes,
                                   .rows_per_node = routings.rows_per_cell,
                                   // Ranks of one place have slices of the same place in their batches.
                                   .valid_rows = TokensOf(GateTask().tokens).valid_rows,
                                   .capacity = graph_.capacity,
                                   .routing = RoutingOf(op.routing),
                                   .row_counts = reinterpret_cast<int32_t*>(DataOf(op.row_counts)),
                                   .pair_counts = reinterpret_cast<int32_t*>(DataOf(op.pair_counts))},
                                  stream);
  }

  void Launch(const SumOverNodesOp& op, TaskId, Stream& stream) {
    context_.kernels.SumOverNodes(SlotsOf(op.in), RoutingOf(op.node_routing), TokensOf(GateTask().tokens),
                                  reinterpret_cast<float*>(DataOf(op.out)), stream);
  }

  void Launch(const EncodeOp& op, TaskId, Stream& stream) {
    context_.kernels.Encode(op.codec, SlotsOf(op.in), DataOf(op.out), stream);
  }

  void Launch(const DecodeOp& op, TaskId, Stream& stream) {
    context_.kernels.Decode(op.codec, DataOf(op.in), SlotsOf(op.out), stream);
  }

  void Launch(const CopyOp& op, TaskId id, Stream& stream) {
    context_.kernels.CopyCells(SlotsOf(op.in), SlotsOf(op.out), cell_pairs_[id], stream);
  }

  void Launch(const ExpertOp& op, TaskId id, Stream& stream) {
    context_.kernels.Expert(SlotsOf(op.in), SlotsOf(op.out), OptionalDataOf(op.hidden), expert_pairs_[id], stream);
  }

  void Launch(const ExpertInputGradientOp& op, TaskId id, Stream& stream) {
    if (op.shared) {
      context_.kernels.SharedInputGradient({.out_gradient = TokensOf(op.out_gradient),
                                            .hidden = DataOf(op.hidden),
                                            .hidden_gradient = DataOf(op.hidden_gradient),
                                            .in_gradient = DataOf(op.in_gradient)},
                                           stream);
      return;
    }
    context_.kernels.ExpertInputGradient({.out_gradient = SlotsOf(op.out_gradient),
                                          .in_gradient = SlotsOf(op.in_gradient),
                                          .hidden = DataOf(op.hidden),
                                          .hidden_gradient = DataOf(op.hidden_gradient),
                                          .pairs = expert_pairs_[id]},
                                         stream);
  }

  void Launch(const ExpertWeightGradientOp& op, TaskId id, Stream& stream) {
    if (op.shared) {
      context_.kernels.SharedWeightGradient({.in = TokensOf(op.in),
                                             .hidden = DataOf(op.hidden),
                                             .out_gradient = DataOf(op.out_gradient),
                                             .hidden_gradient = DataOf(op.hidden_gradient)},
                                            stream);
      return;
    }
    context_.kernels.ExpertWeightGradient({.in = SlotsOf(op.in),
                                           .hidden = DataOf(op.hidden),
                                           .out_gradient = DataOf(op.out_gradient),
                                           .hidden_gradient = DataOf(op.hidden_gradient),
                                           .scale = static_cast<float>(op.scale),
                                           .is_first = IsFirstOfExperts(id),
                                           .pairs = expert_pairs_[id]},
                                          stream);
  }

  // Whether no weight gradient of the experts that are cut comes before it.
  bool IsFirstOfExperts(TaskId id) const {
    return std::none_of(graph_.tasks.begin(), graph_.tasks.begin() + id, [](const Task& task) {
      const auto* op = std::get_if<ExpertWeightGradientOp>(&task.op);
      return op != nullptr && !op->shared;
    });
  }

  void Launch(const CombineGradientOp& op, TaskId, Stream& stream) {
    context_.kernels.CombineGradient(TokensOf(op.out_gradient), RoutingOf(op.routing), SlotsOf(op.slots_gradient),
                                     stream);
  }

  void Launch(const RoutingGradientOp& op, TaskId, Stream& stream) {
    context_.kernels.RoutingGradient(TokensOf(op.out_gradient), SlotsOf(op.slots), RoutingOf(op.routing),
                                     reinterpret_cast<float*>(DataOf(op.routing_gradient)), stream);
  }

  void Launch(const DispatchGradientOp& op, TaskId, Stream& stream) {
    context_.kernels.DispatchGradient(SlotsOf(op.slots_gradient), RoutingOf(op.routing), TokensOf(op.tokens_gradient),
                                      stream);
  }

  void Launch(const GateGradientOp& op, TaskId, Stream& stream) {
    context_.kernels.GateGradient(
        {.tokens = TokensOf(op.tokens),
         .routing = OwnBlockOf(op.routing),
         .routing_gradient = reinterpret_cast<const float*>(OptionalDataOf(op.routing_gradient)),
         .tokens_gradient = DataOf(op.tokens_gradient),
         .shared_gradient = OptionalDataOf(op.shared_gradient),
         .in_gradient = DataOf(op.in_gradient),
         .gate_gradient = reinterpret_cast<float*>(DataOf(op.gate_gradient)),
         .batch_tokens = BatchTokens(),
         .pair_counts = PairCountsOf(op.pair_counts)},
        stream);
  }

  void Launch(const SharedExpertOp& op, TaskId, Stream& stream) {
    context_.kernels.SharedExpert(TokensOf(op.in), TokensOf(op.out), OptionalDataOf(op.hidden), stream);
  }

  void Launch(const ReduceOp& op, TaskId id, Stream& stream) {
    context_.kernels.SumCells(SlotsOf(op.in), SlotsOf(op.out), cell_pairs_[id], stream);
  }

  void Launch(const CombineOp& op, TaskId, Stream& stream) {
    context_.kernels.Combine({.slots = SlotsOf(op.slots),
                              .routing = RoutingOf(op.routing),
                              .out = TokensOf(op.out),
                              .addend = op.shared == kNoBuffer ? nullptr : DataOf(op.shared)},
                             stream);
  }

  void Launch(const CollectiveOp& op, TaskId id, Stream& stream) {
    context_.device.SetTokens(stream, CallTokensNow());
    Start(op, id, stream);
    context_.device.SetTokens(stream, {});
  }

  void Start(const CollectiveOp& op, TaskId id, Stream& stream) {
    if (phased_[id] != nullptr) return phased_[id]->Enqueue(graph_.tasks[id].name, stream);
    Communicator& group = CommunicatorOf(op);
    switch (op.collective) {
      case Collective::kAllToAll:
        group.AllToAll(PeersOf(op.in, PeersIn(op.in)), PeersOf(op.out, PeersIn(op.out)), stream);
        return;
      case Collective::kAllGather: group.AllGather(BytesOf(op.in), BytesOf(op.out), stream); return;
      case Collective::kReduceScatter: group.ReduceScatter(BytesOf(op.in), BytesOf(op.out), type_, stream); return;
      case Collective::kAllReduce:
        group.AllReduce(BytesOf(op.in), BytesOf(op.out),
                        graph_.buffers[op.in].float_rows ? ElementType::kFloat32 : type_, stream);
        return;
      case Collective::kAllToAllAllGather:
        group.AllToAllAllGather(PeersOf(op.in, PeersIn(op.in)), PeersOf(op.partial, PeersIn(op.partial)),
                                graph_.layout.expert_sharding_parallel, BytesOf(op.out), type_,
                                context_.groups[Group::kTensor], stream);
        return;
    }
  }

  const TaskGraph graph_;
  RankContext context_;
  const std::optional<WholeBatch> whole_;
  const ElementType type_;
  const ChunkUnits units_;
  std::array<int, std::size(kGroups)> own_{};
  std::vector<DeviceMemory> memory_;               // By buffer; empty for views.
  std::vector<std::shared_ptr<void>> registered_;  // Of memory_.
  DeviceMemory sums_memory_, carried_memory_, answers_memory_;
  std::vector<double> router_sums_;                      // What sums_memory_ held after the last run.
  std::vector<std::unique_ptr<Event>> started_, ended_;  // By task.
  // By task: what an all-to-all in halves waits for has ended, and its first half has. Null for others.
  struct Halves {
    std::unique_ptr<Event> ready, begun;
  };
  std::vector<Halves> halves_;
  DeviceMemory scratch_;
  std::vector<std::unique_ptr<PhasedAllToAll>> phased_;           // By task; null unless an all-to-all not DIRECT.
  std::vector<std::vector<CellPair>> cell_pairs_;                 // By task, of COPY and REDUCE.
  std::vector<std::vector<std::vector<CellPair>>> expert_pairs_;  // By task, of EXPERT, by local expert.
  const std::shared_ptr<ReplayAgreement> agreement_;
  int gradient_place_ = 0;
  // Last: they wait for what uses all of the above. By place and phase, and by place and BackwardHalf.
  std::array<std::array<std::unique_ptr<Recording>, kPhases>, kGradientPlaces> recordings_;
  std::array<std::array<std::unique_ptr<Recording>, 2>, kGradientPlaces> half_recordings_;
};

}  // namespace

RankStreams::RankStreams(Device& device) : device_(device) {
  for (int kind = 0; kind < kStreamKinds; ++kind) {
    const auto stream = static_cast<StreamKind>(kind);
    streams_[kind] = device.MakeStream(
        std::string(Name(stream)), stream == StreamKind::kCompute ? StreamPriority::kNormal : StreamPriority::kHigh);
    reached_[kind] = device.MakeEvent();
  }
}

void RankStreams::Join() {
  for (int kind = 0; kind < kStreamKinds; ++kind) {
    if (static_cast<StreamKind>(kind) == StreamKind::kCompute) continue;
    device_.Record(*reached_[kind], *streams_[kind]);
    device_.Wait((*this)[StreamKind::kCompute], *reached_[kind]);
  }
}

void RankStreams::Fork() {
  Event& reached = *reached_[static_cast<size_t>(StreamKind::kCompute)];
  device_.Record(reached, (*this)[StreamKind::kCompute]);
  for (int kind = 0; kind < kStreamKinds; ++kind) {
    if (static_cast<StreamKind>(kind) != StreamKind::kCompute) device_.Wait(*streams_[kind], reached);
  }
}

Stream& RankStreams::inside_nodes() {
  if (inside_nodes_ == nullptr) inside_nodes_ = device_.MakeStream("INSIDE_NODES", StreamPriority::kHigh);
  return *inside_nodes_;
}

Stream& RankStreams::awaited() {
  if (awaited_ == nullptr) awaited_ = device_.MakeStream("AWAITED", StreamPriority::kNormal);
  return *awaited_;
}

Stream& RankStreams::ahead(StreamKind kind) {
  std::unique_ptr<Stream>& stream = ahead_[static_cast<size_t>(kind)];
  if (stream == nullptr) stream = device_.MakeStream(StrCat(Name(kind), "_AHEAD"), StreamPriority::kHigh);
  return *stream;
}

Stream& RankStreams::ForData(StreamKind kind) {
  if (!device_.data_goes_last()) return (*this)[kind];
  std::unique_ptr<Stream>& stream = for_data_[static_cast<size_t>(kind)];
  if (stream == nullptr) stream = device_.MakeStream(StrCat(Name(kind), "_DATA"), StreamPriority::kData);
  return *stream;
}

StatusOr<GroupCommunicators> GroupCommunicators::Make(Communicator& world, const Layout& layout, int ctas) {
  GroupCommunicators groups;
  groups.world_ = &world;
  groups.ctas_ = ctas;
  for (const Group group : kGroups) {
    ASSIGN_OR_RETURN(groups.communicators_[static_cast<size_t>(group)], groups.Join(group, layout));
  }
  return groups;
}

StatusOr<std::unique_ptr<Communicator>> GroupCommunicators::Join(Group group, const Layout& layout) {
  const int color = MembersOf(group, layout, world_->rank()).front();
  return ctas_ == 0 ? world_->Split(color) : world_->SplitLimited(color, ctas_);
}

Status GroupCommunicators::JoinReplicas(const Layout& layout) {
  std::unique_ptr<Communicator>& replicas = communicators_[static_cast<size_t>(Group::kDenseReplicas)];
  if (replicas != nullptr) return OkStatus();
  ASSIGN_OR_RETURN(replicas, Join(Group::kDenseReplicas, layout));
  return OkStatus();
}

StatusOr<AllToAllTeams*> GroupCommunicators::TeamsOf(Group group, const GroupShape& shape, int rank) {
  std::unique_ptr<AllToAllTeams>& teams = teams_[static_cast<size_t>(group)];
  if (teams == nullptr) {
    ASSIGN_OR_RETURN(AllToAllTeams made, AllToAllTeams::Make((*this)[group], shape, rank));
    teams = std::make_unique<AllToAllTeams>(std::move(made));
  }
  return teams.get();
}

StatusOr<std::unique_ptr<GraphRunner>> GraphRunner::Prepare(const TaskGraph& graph, const RankContext& context,
                                                            const std::optional<WholeBatch>& whole,
                                                            std::shared_ptr<ReplayAgreement> agreement) {
  MOEPLAN_CHECK(graph.communication_ctas == context.groups.ctas());
  for (const Task& task : graph.tasks) {
    if (const auto* encode = std::get_if<EncodeOp>(&task.op))
      RETURN_IF_ERROR(context.kernels.CheckCodec(encode->codec));
  }
  auto runner = std::make_unique<Runner>(graph, context, whole, std::move(agreement));
  RETURN_IF_ERROR(runner->Allocate());
  return runner;
}

}  // namespace moeplan::executor
