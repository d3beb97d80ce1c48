// What one family of schedules is: how slots travel to the experts and back. What all families share, forward and
// backward, is BuildLayer.
//
// The backward pass sends the gradients of what came back the way that dispatched slots went, and brings the gradients
// of what was sent back the way that computed slots took (design.md §5): a route is walked twice. Where the mirror of a
// step is not what the same place of the other pass does, the step looks at `pass`.
//
// A route works through the builder it was made for, piece by piece: pieces are the N chunks or r partitions into which
// the slots are cut; 1 for schedules that do not cut.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/schedule/graph_builder.h"

namespace moeplan {

// Which tokens a rank gates, dispatches and combines.
enum class TokenShare {
  kBatch,    // The source batch of its MP group, like every other rank of the group.
  kSlice,    // Its own slice of the batch over MP.
  kBatches,  // The batches of its ESP group, gathered; the own one is combined.
};

// One step on the way back from the experts. The steps of a piece run in order. All pieces pass round 0, each right
// after its experts, before any starts round 1.
struct ReturnStep {
  int round = 0;
  std::function<BufferId(const std::string& name)> make_room;  // For the result, where it is not the last step.
  std::function<void(BufferId in, BufferId out)> add;
};

class Route {
 public:
  virtual ~Route() = default;

  virtual TokenShare token_share() const = 0;
  virtual int pieces() const = 0;
  // How many ranks compute the same row of an expert's shard; weight gradients add up to that multiple.
  virtual int copies() const = 0;
  // Whether the experts run once, on all pieces, rather than on each as it arrives.
  virtual bool experts_wait() const = 0;

  // Cuts the slots, too.
  virtual GraphBuilder::Gated Gate(BufferId tokens) = 0;

  // ---- For the builder's current piece.
  // Room for the slots that this rank sends.
  virtual BufferId OwnSlots(const std::string& name) = 0;
  // From there to the rows that experts read: the same buffer for all pieces when the experts wait. Or to where the
  // rows get on the way, and Arrive has the rest, which waits for them on the compute stream: it comes behind the work
  // that is there for the time that the pieces are on their way.
  virtual BufferId Send(BufferId own) = 0;
  virtual BufferId Arrive(BufferId sent) { return sent; }
  // The steps back that this layout really has.
  virtual std::vector<ReturnStep> Return(Pass pass) = 0;
  // The piece's part of a buffer that holds all of them.
  virtual BufferId PieceOf(BufferId all) = 0;

  // The gradients of the gate's weights, once a backward pass has arrived: from those of the own tokens' outputs and
  // what the forward pass brought home.
  virtual BufferId RoutingGradient(GraphBuilder& build, BufferId own_gradient, BufferId home,
                                   const GraphBuilder::Gated& gated) {
    return build.RoutingGradient(own_gradient, home, gated.routing);
  }

  // Room for what the experts give: for the current piece, or for all when they wait.
  virtual BufferId ExpertRows(const std::string& name) = 0;
  // Room for the slots of all pieces, back home.
  virtual BufferId HomeSlots(const std::string& name) = 0;
};

// The task graph of the layer in the phase of the builder's workload: forward; or forward and backward, for TRAINING
// and BACKWARD alike, which differ in what is priced and timed.
TaskGraph BuildLayer(GraphBuilder& build, Route& route);

}  // namespace moeplan
