// The sizes that go ahead of the rows: how many slots each expert needs in one call of a dropless layer, or for a part
// of a source batch, which may take few of the slots that all its parts share.
//
// Slots are alike for all experts and ranks of a pipeline stage, so the expert that most pairs of any source batch
// chose says how many there are (as Tutel's automatic capacity does). The gate runs once more for this, and one number
// of each rank is gathered. One thread, that of the rank.
#pragma once

#include <cstddef>
#include <span>

#include "executor/runtime/rank_runtime.h"

namespace moeplan::executor {

class PairCounter {
 public:
  // Takes a resolved workload and borrows the runtime. Collective where the stage has no communicator yet.
  static StatusOr<PairCounter> Make(const Workload& workload, RankRuntime& rank);

  // A call is about `tokens` of the `batch_tokens` of a source batch, from `first_token` on, and counts on the streams
  // of `lane`.
  struct Call {
    int tokens = 0, batch_tokens = 0, first_token = 0;
    Lane lane = Lane::kInLine;
    int batch_slots =
        0;  // What each expert has for the whole source batch, where pairs beyond that are dropped; else 0.
  };
  // Collective over the stage; blocks. `input`: the call's rows, at most B·L. The kernels have the layer's weights. The
  // answer is the same on every rank: as many slots as the most pairs that any expert has in a source batch, rounded up
  // by a sixteenth at most so that few different numbers come up, and at most the call's tokens, or batch_slots.
  // kInvalidInput on every rank, naming the rank and its rows, where a dropless layer gets more than
  // layer.receiveFactor allows.
  StatusOr<int> Slots(const Call& call, std::span<const std::byte> input, Kernels& kernels);

 private:
  PairCounter(const Workload& workload, RankRuntime& rank, Communicator& stage)
      : layer_(workload.layer), layout_(workload.layout), rank_(&rank), stage_(&stage) {}

  Status Allocate();
  // The most pairs that an expert has here.
  StatusOr<int> Most(const Call& call, std::span<const std::byte> input, Kernels& kernels);

  Layer layer_;
  Layout layout_;
  RankRuntime* rank_;
  Communicator* stage_;
  DeviceMemory rows_, routing_, counts_, sums_, own_, all_;
};

}  // namespace moeplan::executor
