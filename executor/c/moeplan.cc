#include "executor/c/moeplan.h"

#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/c/plan_fields.h"
#include "executor/host/host_rank.h"
#include "executor/training_layer.h"
#include "models/text.h"
#include "models/workload/names.h"

namespace {

using namespace moeplan;
using namespace moeplan::executor;

static_assert(static_cast<int>(StatusCode::kInvalidInput) == MOEPLAN_INVALID_INPUT);
static_assert(static_cast<int>(StatusCode::kPeerLost) == MOEPLAN_PEER_LOST);
static_assert(static_cast<int>(StatusCode::kInternal) == MOEPLAN_INTERNAL);

thread_local std::string last_error;

moeplan_status Answer(const Status& status) {
  if (!status.ok()) last_error = status.message();
  return static_cast<moeplan_status>(status.code());
}

// C has no exceptions: what the library throws ends here.
template <typename Function>
moeplan_status Guarded(const Function& function) {
  try {
    return Answer(function());
  } catch (const std::bad_alloc&) {
    return Answer(Unavailable("out of memory"));
  } catch (const std::exception& exception) {
    return Answer(InternalError(exception.what()));
  }
}

// A world is shared by all objects made on it and deleted with the last of them. A forked child never deletes its copy,
// which has no threads.
struct World {
  std::shared_ptr<RankJoin> join;  // Outlives the rank.
  std::unique_ptr<Rank> rank;
  std::mutex mutex;  // One call at a time.
  const pid_t process = getpid();

  bool forked() const { return process != getpid(); }
};

void Release(World* world) {
  if (!world->forked()) delete world;
}

struct Layer_ {
  std::shared_ptr<World> world;
  std::unique_ptr<TrainingLayer> layer;
};

template <typename Function>
moeplan_status OnWorld(World& world, const Function& function) {
  if (world.forked()) {
    return Answer(Unavailable(StrCat("found a process that was forked off process ", world.process,
                                     ", expected that process, which has the rank's connections")));
  }
  const std::lock_guard lock(world.mutex);
  return Guarded(function);
}

size_t RowsBytes(const Layer& layer, int tokens) {
  return static_cast<size_t>(std::max(tokens, 0)) * layer.model_dim * layer.bytes_per_element;
}

std::span<const std::byte> Rows(const void* data, size_t bytes) { return {static_cast<const std::byte*>(data), bytes}; }
std::span<std::byte> Rows(void* data, size_t bytes) { return {static_cast<std::byte*>(data), bytes}; }

Status Missing(const char* what) { return InvalidInput(StrCat(what, ": found null")); }

}  // namespace

struct moeplan_join {
  std::shared_ptr<RankJoin> join;
  int ranks = 0;
};

struct moeplan_world {
  std::shared_ptr<World> world;
};

struct moeplan_layer {
  std::shared_ptr<Layer_> own;
};

struct moeplan_batch {
  std::shared_ptr<Layer_> layer;
  BatchInParts parts;
};

struct moeplan_pass {
  std::shared_ptr<Layer_> layer;
  size_t bytes = 0;  // What its rows take.
  std::optional<TrainingLayer::Pass> pass;
  // The last timeline that was asked for.
  Timeline timeline;
  std::vector<moeplan_task> tasks;

  const Layer& shape() const { return layer->layer->workload().layer; }
  size_t gate_values() const { return static_cast<size_t>(shape().experts) * shape().model_dim; }
};

namespace {

// `batch`: null for a source batch in one call.
Status Forward(const std::shared_ptr<Layer_>& layer, moeplan_batch* batch, int32_t tokens, const void* input,
               void* output, const moeplan_weights& weights, moeplan_pass*& pass) {
  TrainingLayer& own = *layer->layer;
  ASSIGN_OR_RETURN(const LayerWeightsView view, ViewOf(weights, own.workload().layer, own.shard()));
  const size_t bytes = RowsBytes(own.workload().layer, tokens);
  const std::span<const std::byte> in = Rows(input, bytes);
  const std::span<std::byte> out = Rows(output, bytes);
  ASSIGN_OR_RETURN(TrainingLayer::Pass made, batch == nullptr ? own.Forward(tokens, in, out, view)
                                                              : own.Forward(tokens, in, out, view, batch->parts));
  pass = new moeplan_pass{.layer = layer, .bytes = bytes, .pass = std::move(made)};
  return OkStatus();
}

template <typename Function>
moeplan_status OnPass(moeplan_pass* pass, const Function& function) {
  if (pass == nullptr) return Answer(Missing("pass"));
  return OnWorld(*pass->layer->world, function);
}

}  // namespace

extern "C" {

int32_t moeplan_c_version(void) { return MOEPLAN_C_VERSION; }

const char* moeplan_last_error(void) { return last_error.c_str(); }

moeplan_status moeplan_join_create(const moeplan_place* place, moeplan_join** join) {
  return Guarded([&]() -> Status {
    if (place == nullptr || join == nullptr) return Missing(place == nullptr ? "place" : "join");
    if (place->host_address == nullptr) return Missing("host_address");
    if (place->ranks < 1 || place->rank < 0 || place->rank >= place->ranks) {
      return InvalidInput(
          StrCat("rank: found ", place->rank, " of ", place->ranks, ", expected a rank below the ranks"));
    }
    if (place->ranks_per_node < 1 || place->ranks % place->ranks_per_node != 0) {
      return InvalidInput(StrCat("ranks_per_node: found ", place->ranks_per_node, ", expected a divisor of the ",
                                 place->ranks, " ranks"));
    }
    if (!(place->deadline_s > 0)) {
      return InvalidInput(StrCat("deadline_s: found ", place->deadline_s, ", expected a number above 0"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<RankJoin> made, HostBackend().Join({.rank = place->rank,
                                                                         .ranks = place->ranks,
                                                                         .ranks_per_node = place->ranks_per_node,
                                                                         .host_address = place->host_address,
                                                                         .deadline_s = place->deadline_s}));
    *join = new moeplan_join{.join = std::move(made), .ranks = place->ranks};
    return OkStatus();
  });
}

const char* moeplan_join_address(const moeplan_join* join) { return join->join->address().c_str(); }

void moeplan_join_free(moeplan_join* join) { delete join; }

moeplan_status moeplan_world_create(moeplan_join* join, const char* const* addresses, moeplan_world** world) {
  return Guarded([&]() -> Status {
    if (join == nullptr || addresses == nullptr || world == nullptr) return Missing("join, addresses or world");
    std::vector<std::string> all;
    for (int rank = 0; rank < join->ranks; ++rank) {
      if (addresses[rank] == nullptr) return Missing(StrCat("addresses[", rank, "]").c_str());
      all.emplace_back(addresses[rank]);
    }
    std::shared_ptr<World> made(new World, Release);
    made->join = join->join;
    ASSIGN_OR_RETURN(made->rank, join->join->Connect(all));
    *world = new moeplan_world{.world = std::move(made)};
    return OkStatus();
  });
}

void moeplan_world_free(moeplan_world* world) { delete world; }

moeplan_status moeplan_layer_create(moeplan_world* world, const moeplan_plan* plan, moeplan_layer** layer) {
  if (world == nullptr || plan == nullptr || layer == nullptr) return Answer(Missing("world, plan or layer"));
  return OnWorld(*world->world, [&]() -> Status {
    ASSIGN_OR_RETURN(std::unique_ptr<TrainingLayer> made,
                     TrainingLayer::Make(LayerPlanOf(*plan), world->world->rank->runtime()));
    *layer =
        new moeplan_layer{.own = std::make_shared<Layer_>(Layer_{.world = world->world, .layer = std::move(made)})};
    return OkStatus();
  });
}

// A forked child frees nothing: buffers, streams and connections belong to threads that it does not have.
void moeplan_layer_free(moeplan_layer* layer) {
  if (layer == nullptr || layer->own->world->forked()) return;
  const std::shared_ptr<World> world = layer->own->world;
  const std::lock_guard lock(world->mutex);
  delete layer;
}

void moeplan_layer_shard(const moeplan_layer* layer, moeplan_shard* shard) {
  const TrainingLayer& own = *layer->own->layer;
  const ExpertShard &experts = own.shard().experts, &shared = own.shard().shared;
  *shard = {.first_expert = experts.first_expert,
            .experts = experts.experts,
            .first_hidden = experts.first_hidden,
            .hidden = experts.hidden,
            .adds_last_bias = experts.adds_last_bias,
            .shared_first_hidden = shared.first_hidden,
            .shared_hidden = shared.hidden,
            .shared_adds_last_bias = shared.adds_last_bias,
            .tokens = static_cast<int32_t>(SizesOf(own.workload().layer, own.workload().layout).tokens),
            .gates_slices = own.gates_slices()};
}

moeplan_status moeplan_layer_forward(moeplan_layer* layer, int32_t tokens, const void* input, void* output,
                                     const moeplan_weights* weights, moeplan_pass** pass) {
  if (layer == nullptr || input == nullptr || output == nullptr || weights == nullptr || pass == nullptr)
    return Answer(Missing("layer, input, output, weights or pass"));
  return OnWorld(*layer->own->world,
                 [&] { return Forward(layer->own, nullptr, tokens, input, output, *weights, *pass); });
}

moeplan_status moeplan_batch_create(moeplan_layer* layer, int32_t tokens, moeplan_batch** batch) {
  if (layer == nullptr || batch == nullptr) return Answer(Missing("layer or batch"));
  return OnWorld(*layer->own->world, [&]() -> Status {
    *batch = new moeplan_batch{.layer = layer->own, .parts = BatchInParts(tokens)};
    return OkStatus();
  });
}

void moeplan_batch_free(moeplan_batch* batch) {
  if (batch == nullptr || batch->layer->world->forked()) return;
  const std::shared_ptr<World> world = batch->layer->world;
  const std::lock_guard lock(world->mutex);
  delete batch;
}

moeplan_status moeplan_batch_forward(moeplan_batch* batch, int32_t tokens, const void* input, void* output,
                                     const moeplan_weights* weights, moeplan_pass** pass) {
  if (batch == nullptr || input == nullptr || output == nullptr || weights == nullptr || pass == nullptr)
    return Answer(Missing("batch, input, output, weights or pass"));
  return OnWorld(*batch->layer->world,
                 [&] { return Forward(batch->layer, batch, tokens, input, output, *weights, *pass); });
}

moeplan_status moeplan_pass_backward(moeplan_pass* pass, const void* output_gradient, void* input_gradient,
                                     const moeplan_gradients* gradients) {
  return OnPass(pass, [&]() -> Status {
    if (output_gradient == nullptr || input_gradient == nullptr || gradients == nullptr)
      return Missing("output_gradient, input_gradient or gradients");
    if (gradients->gate == nullptr) return Missing("gradients.gate");
    ASSIGN_OR_RETURN(const LayerGradientsView view, ViewOf(*gradients, pass->shape(), pass->layer->layer->shard()));
    return pass->pass->Backward(Rows(output_gradient, pass->bytes), Rows(input_gradient, pass->bytes), view,
                                {gradients->gate, pass->gate_values()});
  });
}

moeplan_status moeplan_pass_backward_of_input(moeplan_pass* pass, const void* output_gradient, void* input_gradient,
                                              float* gate_gradient) {
  return OnPass(pass, [&]() -> Status {
    if (output_gradient == nullptr || input_gradient == nullptr || gate_gradient == nullptr)
      return Missing("output_gradient, input_gradient or gate_gradient");
    return pass->pass->BackwardOfInput(Rows(output_gradient, pass->bytes), Rows(input_gradient, pass->bytes),
                                       {gate_gradient, pass->gate_values()});
  });
}

moeplan_status moeplan_pass_add_weight_gradients(moeplan_pass* pass, const moeplan_gradients* gradients) {
  return OnPass(pass, [&]() -> Status {
    if (gradients == nullptr) return Missing("gradients");
    ASSIGN_OR_RETURN(const LayerGradientsView view, ViewOf(*gradients, pass->shape(), pass->layer->layer->shard()));
    return pass->pass->AddWeightGradients(view);
  });
}

moeplan_status moeplan_pass_statistics(moeplan_pass* pass, moeplan_statistics* statistics) {
  return OnPass(pass, [&]() -> Status {
    if (statistics == nullptr) return Missing("statistics");
    const RouterStatistics found = pass->pass->router_statistics();
    statistics->tokens = found.tokens;
    statistics->squared_log_sum_exp_sum = found.squared_log_sum_exp_sum;
    statistics->entropy_sum = found.entropy_sum;
    statistics->load_balance_loss = LoadBalanceLoss(found);
    statistics->z_loss = RouterZLoss(found);
    if (statistics->pairs != nullptr) std::ranges::copy(found.pairs, statistics->pairs);
    if (statistics->kept != nullptr) std::ranges::copy(found.kept, statistics->kept);
    if (statistics->probability_sum != nullptr) std::ranges::copy(found.probability_sum, statistics->probability_sum);
    return OkStatus();
  });
}

moeplan_status moeplan_pass_timeline(moeplan_pass* pass, const char* phase, const moeplan_task** tasks,
                                     int32_t* count) {
  return OnPass(pass, [&]() -> Status {
    if (phase == nullptr || tasks == nullptr || count == nullptr) return Missing("phase, tasks or count");
    const auto asked = NamedValue<Phase>(phase);
    if (!asked) return InvalidInput(StrCat("phase: found ", phase, ", expected one of FORWARD, BACKWARD, TRAINING"));
    pass->timeline = pass->pass->LastTimeline(*asked);
    pass->tasks.clear();
    for (const TaskTiming& timing : pass->timeline) {
      pass->tasks.push_back({.task = timing.task.c_str(),
                             .kind = Name(timing.kind).data(),
                             .stream = Name(timing.stream).data(),
                             .chunk = timing.chunk,
                             .start_s = timing.start_s,
                             .end_s = timing.end_s});
    }
    *tasks = pass->tasks.data();
    *count = static_cast<int32_t>(pass->tasks.size());
    return OkStatus();
  });
}

void moeplan_pass_free(moeplan_pass* pass) {
  if (pass == nullptr || pass->layer->world->forked()) return;
  const std::shared_ptr<World> world = pass->layer->world;
  const std::lock_guard lock(world->mutex);
  delete pass;
}

}  // extern "C"
