// Makes what the tasks of a training step run on a rank: collectives that carry bytes, and kernels that compute.
//
// A simulated GPU has all kernels of a step, each by its shape. A real rank has those of MoE layers; linear layers and
// attention are there products of as many flops, of the layer's own dimensions, and what moves memory is a copy of half
// the bytes that it reads and writes. A task of which the graph knows the time alone takes that on a simulated GPU, and
// is a product on a real rank, as large as takes so long there, which is measured when the operation is made. Nothing
// waits in the place of work.
//
// Operations of equal key and size on one stream are the same one. One thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/operation.h"
#include "executor/rank_backend.h"
#include "models/plan/step_tasks.h"

namespace moeplan::agent {

class StepOperations {
 public:
  // `workload`: the MoE layers', where the graph has it. The rank is borrowed.
  StepOperations(executor::Rank& rank, int rank_number, const Cluster& cluster, std::optional<Workload> workload);

  // The operations of one task, to be queued on its stream in order. The same calls on all ranks, in the same order:
  // the first collective of a group splits it. kInvalidInput naming the task: its collective has no bytes or groups
  // that these ranks have not, or its kernels need a workload that the graph lacks.
  StatusOr<std::vector<Operation*>> Of(const Task& task, const StepTask& step);

 private:
  using Key = std::tuple<StreamKind, CostKey, double>;
  StatusOr<Operation*> Find(StreamKind stream, const Work& work);
  StatusOr<std::unique_ptr<Operation>> Make(StreamKind stream, const Work& work);
  StatusOr<std::unique_ptr<Operation>> MakeGroupOperation(StreamKind stream, const CollectiveKey& key, double bytes);
  StatusOr<std::unique_ptr<Operation>> MakeStandIn(const KernelKey& key, double size);
  StatusOr<Operation*> OfTime(double time_s);
  StatusOr<double> TimeOf(Operation& operation);

  executor::Rank& rank_;
  const int rank_number_;
  const Cluster cluster_;
  const std::optional<Workload> workload_;
  std::map<Key, std::unique_ptr<Operation>> operations_;
  std::map<double, std::unique_ptr<Operation>> timed_;
};

}  // namespace moeplan::agent
