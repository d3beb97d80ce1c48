#include "models/schedule/schedules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "models/all_to_all/algorithm.h"
#include "models/check.h"
#include "models/registry.h"
#include "models/schedule/carry.h"
#include "models/schedule/chunk_units.h"
#include "models/schedule/families.h"
#include "models/text.h"
#include "models/workload/codec.h"

namespace moeplan {
namespace {

Status NeedsShardsEqualTensor(const Workload& workload) {
  const Layout& layout = workload.layout;
  if (layout.tensor_parallel == layout.expert_sharding_parallel) return OkStatus();
  return Infeasible(StrCat("needs expertShardingParallel = tensorParallel, found ", layout.expert_sharding_parallel,
                           " and ", layout.tensor_parallel));
}

bool LooksAtWholeBatch(GateKind gate) { return gate == GateKind::kBatchPrioritized || gate == GateKind::kExpertChoice; }

Status NeedsGateOfSlices(const Workload& workload) {
  if (!LooksAtWholeBatch(workload.layer.gate) || workload.layout.tensor_parallel == 1) return OkStatus();
  return Infeasible("the gate looks at the whole batch, and this gates slices of it");
}

// Rows cross between ranks of one place, each of which then serves its own node: both have to be the same for all
// tokens, whatever slice of a batch they are of, and for all shards of an expert.
Status NeedsSeveralNodes(const Workload& workload, const Cluster& cluster) {
  const Layout& layout = workload.layout;
  const GroupShape group = ShapeOf(Group::kExpertShard, layout, cluster.gpus_per_node);
  const std::string found =
      StrCat(", found groups of ", group.size, " ranks, ", group.ranks_per_node, " of them on a node");
  if (group.size == group.ranks_per_node) return Infeasible("needs EP&ESP groups on several nodes" + found);
  if (group.ranks_per_node % layout.expert_sharding_parallel != 0) {
    return Infeasible(StrCat("needs the ", layout.expert_sharding_parallel, " shards of an expert on one node", found));
  }
  if (cluster.gpus_per_node % layout.tensor_parallel != 0) {
    return Infeasible(StrCat("needs tensor-parallel groups inside a node, found tensorParallel ",
                             layout.tensor_parallel, " on nodes of ", cluster.gpus_per_node));
  }
  return OkStatus();
}

ScheduleDefinition MontaDefinition(int Knobs::*pieces) {
  return {.build = BuildMonta,
          .allowed = NeedsShardsEqualTensor,
          .exchange_group = Group::kExpert,
          .pieces = pieces,
          .unequal_pieces = true};
}

// Stand in the order of Family; registered ones, which alone carry their names, follow.
Registry<ScheduleDefinition>& Definitions() {
  static Registry<ScheduleDefinition> definitions({
      {.build = BuildBaseline, .exchange_group = Group::kExpert, .baseline = true},
      {.build = BuildBaselineTp, .allowed = NeedsShardsEqualTensor, .exchange_group = Group::kExpert, .baseline = true},
      {.build = BuildParmS1, .allowed = NeedsGateOfSlices, .pieces = &Knobs::partition_degree, .unequal_pieces = true},
      {.build = BuildParmS2, .pieces = &Knobs::partition_degree, .unequal_pieces = true},
      MontaDefinition(nullptr),
      MontaDefinition(&Knobs::chunks),
      MontaDefinition(&Knobs::chunks),
      {.build = BuildPipeline,
       .pieces = &Knobs::partition_degree,
       .unequal_pieces = true,
       .tensor_ranks_share_slots = false},
      {.build = BuildOncePerNode,
       .allowed = NeedsGateOfSlices,
       .allowed_on = NeedsSeveralNodes,
       .exchange_team = Team::kPlace},
  });
  return definitions;
}

const ScheduleDefinition& DefinitionOf(Family family) { return Definitions().At(static_cast<size_t>(family)); }

Status CheckPieces(const char* field, int Knobs::*knob, const Knobs& knobs, const Workload& workload) {
  const int most = DefinitionOf(knobs.family).pieces == knob ? MaxPieces(knobs.family, workload) : 1;
  if (knobs.*knob >= 1 && knobs.*knob <= most) return OkStatus();
  const std::string expected = most == 1 ? "1" : StrCat("1 to ", most);
  return InvalidInput(StrCat(field, ": found ", knobs.*knob, ", expected ", expected, " for ", Name(knobs.family)));
}

Status CheckKnobs(const Knobs& knobs, const Workload& workload) {
  RETURN_IF_ERROR(CheckPieces("chunks", &Knobs::chunks, knobs, workload));
  RETURN_IF_ERROR(CheckPieces("partitionDegree", &Knobs::partition_degree, knobs, workload));
  RETURN_IF_ERROR(CodecAllowed(knobs.dispatch_codec, knobs.family, workload).Within("dispatchCodec"));
  RETURN_IF_ERROR(CodecAllowed(knobs.combine_codec, knobs.family, workload).Within("combineCodec"));
  RETURN_IF_ERROR(ChunkSharesAllowed(knobs, workload).Within("chunkShares"));
  RETURN_IF_ERROR(ValidateCtas(knobs.communication_ctas, "communicationCtas"));
  return knobs.overlapped_gather ? OverlappedGatherAllowed(knobs, workload.layout) : OkStatus();
}

// Buffers of two graphs, matched up in the order in which their tasks touch them. What a buffer is called, and at which
// number it stands, does not matter.
class BufferMatch {
 public:
  BufferMatch(const TaskGraph& a, const TaskGraph& b) : a_(a), b_(b) {}

  bool Match(BufferId a, BufferId b) {
    if (a == kNoBuffer || b == kNoBuffer) return a == b;
    const auto [known, fresh] = b_of_a_.try_emplace(a, b);
    if (!fresh) return known->second == b;
    const Buffer &left = a_.buffers[a], &right = b_.buffers[b];
    return left.cells == right.cells && left.rows_per_cell == right.rows_per_cell &&
           left.expected_rows_per_cell == right.expected_rows_per_cell && left.row_bytes == right.row_bytes &&
           left.sliced == right.sliced && left.chunk == right.chunk && left.units == right.units &&
           left.view_block == right.view_block && Match(left.counts, right.counts) &&
           Match(left.view_of, right.view_of);
  }

  bool MatchAll(const BufferIds& a, const BufferIds& b) {
    return std::ranges::equal(a, b, [this](BufferId left, BufferId right) { return Match(left, right); });
  }

 private:
  const TaskGraph &a_, &b_;
  std::map<BufferId, BufferId> b_of_a_;
};

bool SameOperation(const TaskOp& a, const TaskOp& b, const Layout& layout) {
  if (a.index() != b.index()) return false;
  const auto* left = std::get_if<CollectiveOp>(&a);
  const auto* right = std::get_if<CollectiveOp>(&b);
  return left == nullptr || (left->collective == right->collective && left->algorithm == right->algorithm &&
                             left->team == right->team && SameMembers(left->group, right->group, layout));
}

bool SameShape(const TaskGraph& a, const TaskGraph& b) {
  BufferMatch buffers(a, b);
  const auto same = [&](const Task& left, const Task& right) {
    return left.name == right.name && left.kind == right.kind && left.stream == right.stream &&
           left.size == right.size && left.dependencies == right.dependencies &&
           SameOperation(left.op, right.op, a.layout) && buffers.MatchAll(Reads(left.op), Reads(right.op)) &&
           buffers.MatchAll(Writes(left.op), Writes(right.op));
  };
  return std::ranges::equal(a.tasks, b.tasks, same) && buffers.Match(a.input, b.input) &&
         buffers.Match(a.output, b.output);
}

}  // namespace

StatusOr<Family> AddSchedule(ScheduleDefinition schedule) {
  if (!schedule.build) return InvalidInput(StrCat("schedule ", schedule.name, ": found no build, expected one"));
  ASSIGN_OR_RETURN(const Family added, AddOwnName<Family>(schedule.name, "schedule"));
  Definitions().Add(std::move(schedule));
  return added;
}

Status FamilyAllowed(Family family, const Workload& workload, const Cluster& cluster) {
  const ScheduleDefinition& schedule = DefinitionOf(family);
  if (schedule.allowed) RETURN_IF_ERROR(schedule.allowed(workload));
  return schedule.allowed_on ? schedule.allowed_on(workload, cluster) : OkStatus();
}

bool IsBaseline(Family family) { return DefinitionOf(family).baseline; }

Status CodecAllowed(Codec codec, Family family, const Workload& workload) {
  if (codec == Codec::kNone) return OkStatus();
  const std::string found = StrCat("found ", Name(codec), ", expected NONE");
  if (IsBaseline(family)) return Infeasible(found + " for a baseline");
  if (!IsLossy(codec, workload.layer.bytes_per_element)) {
    return Infeasible(StrCat(found, ", which it is for elements of ", workload.layer.bytes_per_element, " bytes"));
  }
  if (!workload.allow_lossy) return InvalidInput(found + ", as allowLossy is false");
  if (GroupSize(DefinitionOf(family).exchange_group, workload.layout) == 1)
    return Infeasible(found + ", as nothing is exchanged");
  return OkStatus();
}

Status OverlappedGatherAllowed(const Knobs& knobs, const Layout& layout) {
  if (knobs.family != Family::kParmS2 || layout.tensor_parallel == 1 || GroupSize(Group::kExpertShard, layout) == 1) {
    return Infeasible(
        "the overlapped gather needs PARM_S2, tensorParallel above 1 and expertParallel·expertShardingParallel above "
        "1");
  }
  if (knobs.combine_codec != Codec::kNone) {
    return Infeasible(StrCat("combineCodec: found ", Name(knobs.combine_codec),
                             ", expected NONE, as the overlapped gather exchanges and sums in one"));
  }
  if (knobs.all_to_all != AllToAllAlgorithm::kDirect) {
    return Infeasible(StrCat("allToAll: found ", Name(knobs.all_to_all),
                             ", expected DIRECT, as the overlapped gather exchanges and sums in one"));
  }
  return OkStatus();
}

GroupShape ExchangeShape(Family family, const Layout& layout, int gpus_per_node) {
  const ScheduleDefinition& schedule = DefinitionOf(family);
  return ShapeOf(schedule.exchange_team, ShapeOf(schedule.exchange_group, layout, gpus_per_node));
}

Status ExchangeAllowed(AllToAllAlgorithm algorithm, Family family, const Layout& layout, int gpus_per_node) {
  if (algorithm != AllToAllAlgorithm::kDirect && DefinitionOf(family).exchange_team != Team::kGroup) {
    return Infeasible(StrCat("allToAll: found ", Name(algorithm), ", expected DIRECT, as rows of ", Name(family),
                             " go node by node already"));
  }
  return AlgorithmAllowed(algorithm, ExchangeShape(family, layout, gpus_per_node));
}

namespace {

// Into how many pieces the slots can be cut at most.
struct PieceLimits {
  double by_bytes;  // So that none is smaller than min_chunk_bytes.
  int by_slots;     // So that each holds one.
};

PieceLimits LimitsOf(const ScheduleDefinition& schedule, const Workload& workload) {
  const Layout& layout = workload.layout;
  const LayerSizes sizes = SizesOf(workload.layer, layout);
  // How many ranks share the slots of a source batch, and how often each slot is sent.
  const int senders = schedule.tensor_ranks_share_slots ? layout.tensor_parallel : 1;
  const int copies = schedule.exchange_group == Group::kExpertShard ? layout.expert_sharding_parallel : 1;
  // The smallest message is a piece's all-to-all.
  return {.by_bytes = std::floor(sizes.dispatched_bytes * copies / senders / workload.min_chunk_bytes),
          .by_slots = (sizes.slots + senders - 1) / senders};
}

}  // namespace

int MaxPieces(Family family, const Workload& workload) {
  const ScheduleDefinition& schedule = DefinitionOf(family);
  if (schedule.pieces == nullptr) return 1;
  const auto [by_bytes, by_slots] = LimitsOf(schedule, workload);
  const int by_request = schedule.pieces == &Knobs::chunks ? workload.max_chunks : workload.max_partition_degree;
  return static_cast<int>(std::clamp<double>(by_bytes, 1, std::min(by_request, by_slots)));
}

Status ChunkSharesAllowed(const Knobs& knobs, const Workload& workload) {
  if (knobs.chunk_shares.empty()) return OkStatus();
  const ScheduleDefinition& schedule = DefinitionOf(knobs.family);
  if (schedule.pieces == nullptr || !schedule.unequal_pieces) {
    return InvalidInput(StrCat("found shares, expected none, as ", Name(knobs.family), " cuts no unequal chunks"));
  }
  const int pieces = PiecesOf(knobs);
  if (pieces == 1) return InvalidInput("found shares, expected none, as there is one chunk");
  if (static_cast<int>(knobs.chunk_shares.size()) != pieces) {
    return InvalidInput(StrCat("found ", knobs.chunk_shares.size(), " shares, expected ", pieces, ", one for each ",
                               schedule.pieces == &Knobs::chunks ? "chunk" : "partition"));
  }
  ASSIGN_OR_RETURN(const std::vector<int> units, UnitsOf(knobs.chunk_shares));
  const auto [by_bytes, by_slots] = LimitsOf(schedule, workload);
  const int all = std::accumulate(units.begin(), units.end(), 0), least = *std::ranges::min_element(units);
  if (all > by_slots) {
    return InvalidInput(
        StrCat("found units of 1/", all, ", expected no less than 1/", by_slots, ", which is one slot"));
  }
  if (all > by_bytes * least) {
    return InvalidInput(StrCat("found a share of ", least, "/", all, ", expected at least 1/",
                               static_cast<int64_t>(by_bytes), ", as a piece sends minChunkBytes"));
  }
  return OkStatus();
}

std::vector<int> ChunkUnitsOf(const Knobs& knobs) {
  if (knobs.chunk_shares.empty()) return {};
  StatusOr<std::vector<int>> units = UnitsOf(knobs.chunk_shares);
  MOEPLAN_CHECK(units.ok());
  return *std::move(units);
}

int PiecesOf(const Knobs& knobs) { return std::max(knobs.chunks, knobs.partition_degree); }

Knobs WithPieces(Knobs knobs, int pieces) {
  if (int Knobs::*counted = DefinitionOf(knobs.family).pieces) knobs.*counted = pieces;
  return knobs;
}

Status ScheduleAllowed(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  RETURN_IF_ERROR(FamilyAllowed(knobs.family, workload, cluster));
  RETURN_IF_ERROR(CheckKnobs(knobs, workload));
  return ExchangeAllowed(knobs.all_to_all, knobs.family, workload.layout, cluster.gpus_per_node);
}

StatusOr<TaskGraph> BuildSchedule(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  RETURN_IF_ERROR(ScheduleAllowed(knobs, workload, cluster));
  Knobs built = knobs;  // What ExchangeBy chooses is none of a schedule's business.
  built.all_to_all = AllToAllAlgorithm::kDirect;
  built.communication_ctas = 0;
  TaskGraph graph = DefinitionOf(knobs.family).build(built, workload, cluster);
  ExchangeBy(knobs.all_to_all, knobs.communication_ctas, graph);
  return graph;
}

bool SameTasks(const TaskGraph& a, const TaskGraph& b) {
  return a.layer == b.layer && a.layout == b.layout && a.gpus_per_node == b.gpus_per_node &&
         a.communication_ctas == b.communication_ctas && a.slot_axes == b.slot_axes && a.chunk_units == b.chunk_units &&
         a.slots_per_cell == b.slots_per_cell && a.capacity == b.capacity && SameShape(a, b);
}

}  // namespace moeplan
