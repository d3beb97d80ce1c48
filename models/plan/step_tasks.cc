#include "models/plan/step_tasks.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "models/check.h"
#include "models/text.h"

namespace moeplan {
namespace {

TaskKind KindOf(InstructionOp op) {
  switch (op) {
    case InstructionOp::kGate: return TaskKind::kGate;
    case InstructionOp::kDispatch: return TaskKind::kPermute;
    case InstructionOp::kExpert: return TaskKind::kExpert;
    case InstructionOp::kCombine: return TaskKind::kCombine;
    case InstructionOp::kSend:
    case InstructionOp::kHeadExchange:
    case InstructionOp::kAllToAll: return TaskKind::kAllToAll;
    case InstructionOp::kAllGather: return TaskKind::kAllGather;
    case InstructionOp::kReduceScatter: return TaskKind::kReduceScatter;
    case InstructionOp::kAllReduce: return TaskKind::kAllReduce;
    default: return TaskKind::kOther;
  }
}

bool HasGroup(const Instruction& one) { return one.bytes && one.group_size && one.ranks_per_node; }

// Returns the work of a part that is such a share of the whole.
std::vector<Work> PartWork(const Instruction& one, double share, bool with_kernels) {
  std::vector<Work> work;
  if (CollectiveOf(one.op) && HasGroup(one)) work = {CollectiveWork(one)};
  if (!CollectiveOf(one.op) && with_kernels) work = one.work;
  for (Work& kernel : work) kernel.size *= share;
  return work;
}

// The way back of a range, among `ranges` ranges and as many ways back.
int WayBackOf(int range, size_t ranges) { return range + static_cast<int>(ranges); }

// ---- From the names of an answer.

Status Bad(const std::string& where, const std::string& found, std::string_view expected) {
  return InvalidInput(StrCat(where, ": found ", found, ", expected ", expected));
}

class Reader {
 public:
  explicit Reader(const TrainingGraph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.instructions.size(); ++i) places_[graph.instructions[i].id] = static_cast<int>(i);
    parts_.assign(graph.instructions.size(), 1);
    range_of_.assign(graph.instructions.size(), -1);
  }

  Status ReadRanges(const LancetAnswer& plan) {
    for (size_t i = 0; i < plan.partitions.size(); ++i) {
      const LancetAnswer::Partition& one = plan.partitions[i];
      const std::string at = StrCat("rules.lancet.partitions[", i, "]");
      const int first = PlaceOf(one.first), last = PlaceOf(one.last);
      if (first < 0 || last < first) {
        return Bad(at, StrCat(one.first, " to ", one.last), "two instructions of the graph in its order");
      }
      if (!ranges_.empty() && first <= ranges_.back().last) return Bad(at, one.first, "one behind the range before");
      if (one.parts < 2 || one.parts > kMostParts) {
        return Bad(at + ".parts", StrCat(one.parts), StrCat("2 to ", kMostParts));
      }
      ranges_.push_back({first, last, one.parts, one.axis});
      std::fill(parts_.begin() + first, parts_.begin() + last + 1, one.parts);
      std::fill(range_of_.begin() + first, range_of_.begin() + last + 1, static_cast<int>(i));
    }
    ReadWaysBack(plan);
    return OkStatus();
  }

  Status ReadOrder(const LancetAnswer& plan) {
    const size_t expected = std::accumulate(parts_.begin(), parts_.end(), size_t{0});
    if (plan.order.size() != expected) {
      return Bad("rules.lancet.order", StrCat(plan.order.size(), " launches"), StrCat(expected));
    }
    for (size_t i = 0; i < plan.order.size(); ++i) {
      const std::string at = StrCat("rules.lancet.order[", i, "]");
      const std::optional<StepLaunch> launch = LaunchOf(plan.order[i]);
      if (!launch) return Bad(at, plan.order[i], "an instruction, or a part of one that is cut");
      RETURN_IF_ERROR(CheckFirst(*launch, at));
      launches_.push_back(*launch);
    }
    return OkStatus();
  }

  StepTasks Build() const { return StepTaskBuilder(graph_).Build(ranges_, launches_); }

 private:
  int PlaceOf(const std::string& id) const {
    const auto found = places_.find(id);
    return found == places_.end() ? -1 : found->second;
  }

  // Cuts the way back of each range along with it, but for weight gradients that cover an all-to-all.
  void ReadWaysBack(const LancetAnswer& plan) {
    std::unordered_set<std::string_view> whole;
    for (const auto& moved : plan.weight_gradients) whole.insert(moved.instruction);
    const std::vector<int> forwards = ForwardsOf(graph_);
    for (size_t i = 0; i < forwards.size(); ++i) {
      if (forwards[i] < 0 || range_of_[forwards[i]] < 0 || whole.contains(graph_.instructions[i].id)) continue;
      parts_[i] = parts_[forwards[i]];
      range_of_[i] = WayBackOf(range_of_[forwards[i]], ranges_.size());
    }
  }

  std::optional<StepLaunch> LaunchOf(const std::string& name) const {
    if (const int place = PlaceOf(name); place >= 0) {
      if (parts_[place] > 1) return std::nullopt;
      return StepLaunch{place};
    }
    const size_t mark = name.rfind('#');
    if (mark == std::string::npos) return std::nullopt;
    const int place = PlaceOf(name.substr(0, mark));
    int part = 0;
    const char *first = name.data() + mark + 1, *end = name.data() + name.size();
    const auto [read, error] = std::from_chars(first, end, part);
    if (place < 0 || error != std::errc() || read != end || part < 1 || part > parts_[place] || parts_[place] == 1) {
      return std::nullopt;
    }
    return StepLaunch{place, part - 1, parts_[place]};
  }

  // Checks that it is launched once, and after what it reads.
  Status CheckFirst(const StepLaunch& launch, const std::string& at) {
    if (done_.empty()) done_.resize(parts_.size());
    std::vector<bool>& own = done_[launch.instruction];
    own.resize(launch.parts, false);
    if (own[launch.part]) return Bad(at, "a launch for the second time", "each once");
    for (const int producer : producers_[launch.instruction]) {
      const std::vector<bool>& ready = done_[producer];
      const bool together = SameRange(producer, launch.instruction);
      const bool there = together ? launch.part < static_cast<int>(ready.size()) && ready[launch.part]
                                  : !ready.empty() && std::ranges::all_of(ready, [](bool one) { return one; });
      if (!there) {
        return Bad(at,
                   StrCat(graph_.instructions[launch.instruction].id, " before ", graph_.instructions[producer].id,
                          ", which it reads"),
                   "producers first");
      }
    }
    own[launch.part] = true;
    return OkStatus();
  }

  bool SameRange(int a, int b) const { return range_of_[a] >= 0 && range_of_[a] == range_of_[b]; }

  const TrainingGraph& graph_;
  const std::vector<std::vector<int>> producers_ = ProducersOf(graph_);
  std::unordered_map<std::string, int> places_;
  std::vector<int> parts_, range_of_;  // Of each instruction; a range of -1: none.
  std::vector<std::vector<bool>> done_;
  std::vector<StepRange> ranges_;
  std::vector<StepLaunch> launches_;
};

}  // namespace

// The tasks of one order as they are launched.
class StepTaskBuilder::Tape {
 public:
  Tape(const StepTaskBuilder& builder, std::span<const StepRange> ranges, bool with_kernels)
      : builder_(builder),
        graph_(builder.graph_),
        ranges_(ranges),
        with_kernels_(with_kernels),
        range_of_(graph_.instructions.size(), -1),
        launched_(graph_.instructions.size()),
        join_(graph_.instructions.size(), -1),
        to_launch_(ranges.size(), 0) {
    for (size_t range = 0; range < ranges.size(); ++range) {
      for (int i = ranges[range].first; i <= ranges[range].last; ++i) range_of_[i] = static_cast<int>(range);
      to_launch_[range] = (ranges[range].last - ranges[range].first + 1) * ranges[range].parts;
    }
  }

  StepTasks Build(std::span<const StepLaunch> launches) {
    for (const StepLaunch& launch : launches) {
      const int forward = builder_.forwards_[launch.instruction];
      if (forward >= 0 && launch.parts > 1) {
        range_of_[launch.instruction] = WayBackOf(range_of_[forward], ranges_.size());
      }
      if (HasCounts(launch)) AddCounts(launch);
      AddPart(launch);
      if (At(launch.instruction).phase == Pass::kBackward) continue;
      const int range = range_of_[launch.instruction];
      if (range >= 0 && --to_launch_[range] == 0) AddJoins(ranges_[range]);
    }
    return std::move(built_);
  }

 private:
  const Instruction& At(int i) const { return graph_.instructions[i]; }

  // Says along what the launch's instruction is cut: on the way back as its forward one.
  CutAxis AxisOf(const StepLaunch& launch) const {
    const int range = range_of_[launch.instruction];
    return range < 0 ? CutAxis::kSamples : ranges_[static_cast<size_t>(range) % ranges_.size()].axis;
  }

  bool HasCounts(const StepLaunch& launch) const {
    const Instruction& one = At(launch.instruction);
    return launch.parts > 1 && one.phase == Pass::kForward && one.counts_bytes && HasGroup(one) &&
           *one.group_size > 1 && AxisOf(launch) == CutAxis::kSamples;
  }

  // Finds the tasks that the launch waits for: the same part inside its range; outside, what was put together or else
  // the last part.
  std::vector<TaskId> Before(const StepLaunch& launch) const {
    std::vector<TaskId> before;
    for (const int producer : builder_.producers_[launch.instruction]) {
      const int range = range_of_[producer];
      if (range >= 0 && range == range_of_[launch.instruction]) {
        before.push_back(launched_[producer].at(launch.part));
      } else {
        const bool joined = join_[producer] >= 0 && At(launch.instruction).phase == Pass::kForward;
        before.push_back(joined ? join_[producer] : std::ranges::max(launched_[producer]));
      }
    }
    std::ranges::sort(before);
    before.erase(std::unique(before.begin(), before.end()), before.end());
    return before;
  }

  TaskId Add(Task task, StepTask step) {
    built_.graph.tasks.push_back(std::move(task));
    built_.tasks.push_back(std::move(step));
    return static_cast<TaskId>(built_.tasks.size()) - 1;
  }

  Task TaskOf(const StepLaunch& launch, const char* suffix) const {
    const Instruction& one = At(launch.instruction);
    const std::string part = launch.parts > 1 ? StrCat("#", launch.part + 1) : "";
    return {.name = StrCat(one.id, part, suffix),
            .kind = KindOf(one.op),
            .stream = StreamOf(one),
            .chunk = launch.part,
            .dependencies = Before(launch)};
  }

  void AddCounts(const StepLaunch& launch) {
    const double bytes = *At(launch.instruction).counts_bytes;
    Task task = TaskOf(launch, ".counts");
    task.size = bytes;
    counts_ = Add(std::move(task), {.instruction = launch.instruction,
                                    .parts = launch.parts,
                                    .role = StepRole::kCounts,
                                    .work = {{CollectiveWork(At(launch.instruction)).key, bytes}}});
  }

  void AddPart(const StepLaunch& launch) {
    const Instruction& one = At(launch.instruction);
    const CutAxis axis = AxisOf(launch);
    const double share = builder_.shares_.Of(one, launch.parts, axis);
    const std::optional<double> even_s =
        axis == CutAxis::kCapacity ? builder_.shares_.EvenS(one, launch.parts) : std::nullopt;
    Task task = TaskOf(launch, "");
    if (CollectiveOf(one.op)) task.size = CollectiveBytes(one) * share;
    if (HasCounts(launch)) task.dependencies.push_back(counts_);
    std::vector<TaskId>& parts = launched_[launch.instruction];
    parts.resize(launch.parts, -1);
    parts[launch.part] = Add(std::move(task), {.instruction = launch.instruction,
                                               .parts = launch.parts,
                                               .axis = axis,
                                               .work = PartWork(one, share, with_kernels_),
                                               .time_s = even_s ? even_s : KnownPartS(one, launch.parts)});
  }

  void AddJoins(const StepRange& range) {
    for (int i = range.first; i <= range.last; ++i) {
      double bytes = 0;
      for (const int output : builder_.ReadBehind(i, range.last)) {
        if (!At(i).output_bytes.empty()) bytes += At(i).output_bytes[output];
      }
      if (bytes <= 0) continue;
      join_[i] = Add({.name = At(i).id + "#join", .kind = TaskKind::kCopy, .size = bytes, .dependencies = launched_[i]},
                     {.instruction = i,
                      .parts = range.parts,
                      .role = StepRole::kJoin,
                      .work = {{KernelKey{.kernel = Kernel::kDeviceCopy}, bytes}}});
    }
  }

  const StepTaskBuilder& builder_;
  const TrainingGraph& graph_;
  const std::span<const StepRange> ranges_;
  const bool with_kernels_;
  std::vector<int> range_of_;                  // Of each instruction: its range or way back; -1: not cut.
  std::vector<std::vector<TaskId>> launched_;  // Of each instruction: its parts.
  std::vector<TaskId> join_;                   // Of each instruction; -1: none.
  std::vector<int> to_launch_;                 // Of each range: the launches still to come.
  TaskId counts_ = -1;                         // The last ones.
  StepTasks built_;
};

std::optional<double> KnownPartS(const Instruction& one, int parts) {
  const auto listed = [&](int k) -> std::optional<double> {
    if (k > static_cast<int>(one.part_times_s.size())) return std::nullopt;
    return one.part_times_s[k - 1];
  };
  if (parts == 1) return one.time_s ? one.time_s : listed(1);
  if (const auto part_s = listed(parts)) return part_s;
  if (CollectiveOf(one.op)) return std::nullopt;
  return *KnownPartS(one, 1) / parts;
}

std::vector<StepLaunch> GivenOrder(const TrainingGraph& graph) {
  std::vector<StepLaunch> launches(graph.instructions.size());
  for (size_t i = 0; i < launches.size(); ++i) launches[i].instruction = static_cast<int>(i);
  return launches;
}

StepTaskBuilder::StepTaskBuilder(const TrainingGraph& graph)
    : graph_(graph),
      shares_(graph),
      producers_(ProducersOf(graph)),
      forwards_(ForwardsOf(graph)),
      last_reader_(graph.instructions.size()) {
  std::unordered_map<std::string_view, int*> readers;
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    const Instruction& one = graph.instructions[i];
    has_boundaries_ = has_boundaries_ || one.counts_bytes || !one.output_bytes.empty();
    last_reader_[i].assign(one.outputs.size(), -1);
    for (size_t output = 0; output < one.outputs.size(); ++output)
      readers[one.outputs[output]] = &last_reader_[i][output];
    if (one.phase != Pass::kForward) continue;
    for (const std::string& tensor : one.inputs) {
      if (const auto found = readers.find(tensor); found != readers.end()) *found->second = static_cast<int>(i);
    }
  }
}

std::vector<int> StepTaskBuilder::ReadBehind(int instruction, int last) const {
  std::vector<int> outputs;
  for (size_t output = 0; output < last_reader_[instruction].size(); ++output) {
    if (last_reader_[instruction][output] > last) outputs.push_back(static_cast<int>(output));
  }
  return outputs;
}

StepTasks StepTaskBuilder::Build(std::span<const StepRange> ranges, std::span<const StepLaunch> launches,
                                 bool with_kernels) const {
  return Tape(*this, ranges, with_kernels).Build(launches);
}

StatusOr<StepTasks> BuildStepTasks(const TrainingGraph& graph, const LancetAnswer& plan) {
  Reader reader(graph);
  RETURN_IF_ERROR(reader.ReadRanges(plan));
  RETURN_IF_ERROR(reader.ReadOrder(plan));
  return reader.Build();
}

}  // namespace moeplan
