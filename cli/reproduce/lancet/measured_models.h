// The models, gates and machines of Lancet's evaluation (§7), and what training steps of them cost on simulations of
// these machines.
//
// Costs are measured at the sizes of each step's own instructions, as `moeplan calibrate --graph` does. Seconds.
#pragma once

#include <array>
#include <iterator>
#include <list>

#include "cli/reproduce/testbed.h"
#include "models/cost/profile.h"
#include "models/status.h"
#include "models/training/training_graph.h"

namespace moeplan::cli {

struct Model {
  const char* name;
  int layers, model_dim;
};
inline constexpr Model kModels[] = {{"GPT2-S", 12, 768}, {"GPT2-L", 24, 1024}};

struct Gate {
  const char* name;
  GateKind kind;
};
inline constexpr Gate kGates[] = {{"Switch", GateKind::kSwitch}, {"Prioritized", GateKind::kBatchPrioritized}};

struct Machines {
  const char* name;
  const char* testbed;
  int nics;                                             // Of a node.
  int sms;                                              // Of a GPU.
  double without_tf32;                                  // How many times as long products take in plain FP32.
  std::array<int, 2> batches;                           // Samples of a GPU, by kModels.
  std::array<double, 2> largest_speedup, mean_speedup;  // The paper's, by kGates.
  double cut_over_tutel, cut_over_raf;                  // The paper's largest cuts of exposed communication.
  int experiment_gpus;                                  // Where the largest cut over RAF is.

  // The part of RAF's exposed communication that the paper's Tutel leaves, if both cuts are of the same step.
  double ExposedByTutel() const { return (1 - cut_over_raf) / (1 - cut_over_tutel); }
};
inline constexpr Machines kMachines[] = {
    {"A100",
     "lancet-p4de",
     4,
     108,
     1.56e14 * 0.6 / (1.95e13 * 0.9),
     {24, 48},
     {1.21, 1.24},
     {1.17, 1.17},
     0.66,
     0.69,
     16},
    {"V100", "lancet-p3dn", 1, 80, 1, {16, 8}, {1.30, 1.24}, {1.22, 1.21}, 0.77, 0.83, 32},
};
// How many samples a "small batch" of Figure 6 has is not said: this is the least of §7.
inline constexpr int kSmallBatch = 8;
inline constexpr int kGpus[] = {16, 32, 64};
inline constexpr int kRangeGpus = 16;  // Of Figure 6.

// One model on one cluster, with costs measured at the sizes of its own instructions.
struct MeasuredModel {
  const Machines* machines = nullptr;
  int gpus = 0, batch = 0;
  const Model* model = nullptr;
  Profile profile;
  std::array<TrainingGraph, std::size(kGates)> graphs;  // By kGates; without limits of groups and ranges.
};

struct Setting {
  std::list<MeasuredModel> models;       // Each of kModels on each of kGpus of each of kMachines.
  std::list<MeasuredModel> small_batch;  // The larger model with kSmallBatch on kRangeGpus of the first.
};

// The machines of one kind with so many GPUs, simulated.
StatusOr<Testbed> StartOn(const Machines& machines, int gpus, const ShowProgress& progress);

StatusOr<Setting> MeasureAll(const ShowProgress& progress);

}  // namespace moeplan::cli
