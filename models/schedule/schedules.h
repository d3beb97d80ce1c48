// The schedules of design.md §2: one builder for each family, from (workload, cluster, knobs) to a TaskGraph.
//
// Sources: BASELINE and PARM_S1/S2, Parm §II–III; BASELINE_TP and MONTA_O1–O3, MoNTA §4; PIPELINE, ScheMoE §4;
// ONCE_PER_NODE, DeepEP (deepseek-ai, 2025); what each moves, forward and backward, is design.md §5. Pure: the same
// arguments give the same graph.
#pragma once

#include <functional>
#include <string>

#include "models/schedule/knobs.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"

namespace moeplan {

// One family of schedules.
struct ScheduleDefinition {
  std::string name;
  // From the knobs to the graph, usually BuildLayer (models/schedule/route.h) of a Route. The workload is resolved and
  // allowed, the knobs are in range but for the all-to-all algorithm and the limit on CTAs, which are chosen afterwards
  // (models/schedule/carry.h): all-to-alls are added as DIRECT.
  std::function<TaskGraph(const Knobs& knobs, const Workload& workload, const Cluster& cluster)> build;
  // OK, or kInfeasible with the reason why this layout, gate or phase rules the family out. Null: nothing does.
  std::function<Status(const Workload& workload)> allowed;
  // The same of what depends on the nodes that ranks lie on, asked after `allowed`. Null: nothing does.
  std::function<Status(const Workload& workload, const Cluster& cluster)> allowed_on = nullptr;
  // The group over which its all-to-alls send rows, by whose shape an algorithm is allowed or not
  // (models/all_to_all/algorithm.h): EP, or EP&ESP where each slot goes to all shards of its expert. Where rows travel
  // team by team, the team that crosses nodes; the algorithm is DIRECT then.
  Group exchange_group = Group::kExpertShard;
  Team exchange_team = Team::kGroup;
  // The knob that counts the pieces into which the slots are cut (chunks N, or partition_degree r). Null: none does.
  int Knobs::*pieces = nullptr;
  // Whether those pieces may differ in size, as the knobs' chunk_shares say: the same tasks then, of sizes that grow
  // evenly with the units of their chunk.
  bool unequal_pieces = false;
  // Whether the ranks of an MP group share the slots of their batch, rather than each sending them all.
  bool tensor_ranks_share_slots = true;
  bool baseline = false;
};

// kInvalidInput for a name that is none or is taken, and where `build` is missing.
StatusOr<Family> AddSchedule(ScheduleDefinition schedule);

// OK, or kInfeasible with the reason why this layout, gate or phase rules the family out on such nodes. Requires a
// resolved workload.
Status FamilyAllowed(Family family, const Workload& workload, const Cluster& cluster);

bool IsBaseline(Family family);

// Whether `codec` may stand on the family's all-to-alls, there or back: not on a baseline's, not where it changes
// nothing or nothing is exchanged (kInfeasible), and not where the workload allows no loss (kInvalidInput). NONE
// always.
Status CodecAllowed(Codec codec, Family family, const Workload& workload);

// OK, or kInfeasible with the reason why these knobs cannot have the overlapped gather: it is of PARM_S2, where there
// is something to exchange and something to gather, and leaves no room for another all-to-all or a codec on its way.
Status OverlappedGatherAllowed(const Knobs& knobs, const Layout& layout);

// The shape of what the family's all-to-alls of rows run over: as in its definition. And which algorithms they may go
// by: kInfeasible, with the reason, for others than DIRECT where rows travel team by team.
GroupShape ExchangeShape(Family family, const Layout& layout, int gpus_per_node);
Status ExchangeAllowed(AllToAllAlgorithm algorithm, Family family, const Layout& layout, int gpus_per_node);

// The most pieces that `workload` allows `family` to cut slots into: N chunks, such as those of O2 and O3, at most
// max_chunks; r partitions, such as those of S1, S2 and PIPELINE, at most max_partition_degree; 1 for the others. The
// smallest message of a piece is at least min_chunk_bytes.
int MaxPieces(Family family, const Workload& workload);
// OK, or kInvalidInput with the reason why the knobs' chunk_shares cannot be: the family cuts no unequal pieces, there
// is not one share for each of several, they are no shares (models/schedule/chunk_units.h), or the smallest piece would
// be less than a slot or min_chunk_bytes. None are always OK.
Status ChunkSharesAllowed(const Knobs& knobs, const Workload& workload);
// N or r, whichever the family has; 1 where it has neither. And the knobs with as many.
int PiecesOf(const Knobs& knobs);
Knobs WithPieces(Knobs knobs, int pieces);

// OK; kInfeasible when FamilyAllowed or the algorithm is, kInvalidInput for knobs out of range. Requires a resolved
// workload.
Status ScheduleAllowed(const Knobs& knobs, const Workload& workload, const Cluster& cluster);

// The graph of one candidate; its all-to-alls of rows go by the knobs' algorithm, those of counts and SAA are DIRECT.
// All its collectives are limited to the knobs' CTAs. Requires a resolved workload; errors are those of
// ScheduleAllowed.
StatusOr<TaskGraph> BuildSchedule(const Knobs& knobs, const Workload& workload, const Cluster& cluster);

// Whether two graphs have the same tasks, so that one measurement serves both (with ESP = MP = 1 several families
// coincide).
bool SameTasks(const TaskGraph& a, const TaskGraph& b);

}  // namespace moeplan
