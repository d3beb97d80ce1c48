#include "executor/c/moeplan.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/c/plan_fields.h"
#include "executor/host/host_rank.h"
#include "executor/training_layer.h"
#include "models/text.h"
#include "models/workload/names.h"
#ifdef MOEPLAN_C_WITH_CUDA
#include "executor/cuda/cuda_backend.h"
#endif

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
  bool on_card = false;
  Lane lane = Lane::kInLine;  // That of the forward passes to come.
  std::mutex mutex;           // One call at a time.
  const pid_t process = getpid();
  // On a card, whose calls leave work behind: looks after that while nobody else does, so that who is lost is found.
  std::condition_variable_any stopped;
  std::jthread watch;

  bool forked() const { return process != getpid(); }

  void Watch() {
    static constexpr std::chrono::milliseconds kBetweenLooks{50};
    watch = std::jthread([this](const std::stop_token& stop) {
      std::unique_lock lock(mutex);
      while (!stopped.wait_for(lock, stop, kBetweenLooks, [] { return false; }) && !stop.stop_requested()) {
        const std::shared_ptr<void> entered = rank->device().Enter();
        try {
          rank->device().Look();  // What it finds the next call answers.
        } catch (const std::exception&) {
          continue;  // Out of memory: the next look may find some.
        }
      }
    });
  }

  ~World() {
    watch = {};
    if (rank == nullptr) return;
    const std::shared_ptr<void> entered = rank->device().Enter();
    rank = nullptr;
  }
};

void Release(World* world) {
  if (!world->forked()) delete world;
}

struct Layer_ {
  std::shared_ptr<World> world;
  std::unique_ptr<TrainingLayer> layer;
};

// A forked child frees nothing: buffers, streams and connections belong to threads that it does not have.
template <typename Object>
void Free(Object* object, const std::shared_ptr<World> world) {
  if (world->forked()) return;
  const std::lock_guard lock(world->mutex);
  const std::shared_ptr<void> entered = world->rank->device().Enter();
  delete object;
}

template <typename Function>
moeplan_status OnWorld(World& world, const Function& function) {
  if (world.forked()) {
    return Answer(Unavailable(StrCat("found a process that was forked off process ", world.process,
                                     ", expected that process, which has the rank's connections")));
  }
  const std::lock_guard lock(world.mutex);
  const std::shared_ptr<void> entered = world.rank->device().Enter();
  return Guarded(function);
}

StatusOr<const RankBackend*> BackendOf(const char* name) {
  const std::string_view asked = name == nullptr ? HostBackend().name() : name;
  if (asked == HostBackend().name()) return &HostBackend();
  if (asked != "cuda") return InvalidInput(StrCat("backend: found ", asked, ", expected host or cuda"));
#ifdef MOEPLAN_C_WITH_CUDA
  return &cuda::CudaBackend();
#else
  return Unimplemented(
      "backend: found cuda, expected host, which is all that this library has; libmoeplan_gpu.so has both");
#endif
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
  bool on_card = false;
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
};

namespace {

// The memory that a call names, of the host or of the card that the rank runs on.
StatusOr<WeightsMemory> MemoryOf(const Layer_& layer, const moeplan_weights& weights) {
  const Layer& shape = layer.layer->workload().layer;
  const LayerShard& shard = layer.layer->shard();
  if (!layer.world->on_card) {
    ASSIGN_OR_RETURN(const LayerWeightsView view, ViewOf(weights, shape, shard));
    return WeightsMemory(view);
  }
  ASSIGN_OR_RETURN(const DeviceWeights memory, DeviceWeightsOf(weights, shape, shard, layer.world->rank->device()));
  return WeightsMemory(memory);
}

Status CheckRows(const World& world, std::initializer_list<std::pair<const char*, const void*>> rows) {
  if (!world.on_card) return OkStatus();
  for (const auto& [name, memory] : rows) {
    if (memory != nullptr) RETURN_IF_ERROR(CheckOnDevice(name, memory, world.rank->device()));
  }
  return OkStatus();
}

// `batch`: null for a source batch in one call.
Status Forward(const std::shared_ptr<Layer_>& layer, moeplan_batch* batch, int32_t tokens, const void* input,
               void* output, const moeplan_weights& weights, moeplan_pass*& pass) {
  TrainingLayer& own = *layer->layer;
  ASSIGN_OR_RETURN(const WeightsMemory view, MemoryOf(*layer, weights));
  RETURN_IF_ERROR(CheckRows(*layer->world, {{"input", input}, {"output", output}}));
  const size_t bytes = RowsBytes(own.workload().layer, tokens);
  const std::span<const std::byte> in = Rows(input, bytes);
  const std::span<std::byte> out = Rows(output, bytes);
  const Lane lane = layer->world->lane;
  ASSIGN_OR_RETURN(TrainingLayer::Pass made, batch == nullptr ? own.Forward(tokens, in, out, view, lane)
                                                              : own.Forward(tokens, in, out, view, batch->parts, lane));
  pass = new moeplan_pass{.layer = layer, .bytes = bytes, .pass = std::move(made)};
  return OkStatus();
}

StatusOr<GradientsMemory> MemoryOf(const Layer_& layer, const moeplan_gradients& gradients) {
  const Layer& shape = layer.layer->workload().layer;
  const LayerShard& shard = layer.layer->shard();
  if (!layer.world->on_card) {
    if (gradients.matrices_are_elements != 0) {
      return InvalidInput(StrCat("gradients.matrices_are_elements: found ", gradients.matrices_are_elements,
                                 ", expected 0, as the rank runs on the host"));
    }
    ASSIGN_OR_RETURN(const LayerGradientsView view, ViewOf(gradients, shape, shard));
    return GradientsMemory(view);
  }
  ASSIGN_OR_RETURN(const DeviceGradients memory,
                   DeviceGradientsOf(gradients, shape, shard, layer.world->rank->device()));
  return GradientsMemory(memory);
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
    ASSIGN_OR_RETURN(const RankBackend* const backend, BackendOf(place->backend));
    ASSIGN_OR_RETURN(std::unique_ptr<RankJoin> made, backend->Join({.rank = place->rank,
                                                                    .ranks = place->ranks,
                                                                    .ranks_per_node = place->ranks_per_node,
                                                                    .host_address = place->host_address,
                                                                    .deadline_s = place->deadline_s,
                                                                    .takes_current_card = true}));
    *join = new moeplan_join{.join = std::move(made), .ranks = place->ranks, .on_card = backend != &HostBackend()};
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
    made->on_card = join->on_card;
    if (made->on_card) {
      made->rank->runtime().SetJobStream(nullptr);
      made->Watch();
    }
    *world = new moeplan_world{.world = std::move(made)};
    return OkStatus();
  });
}

void moeplan_world_free(moeplan_world* world) { delete world; }

moeplan_status moeplan_world_set_stream(moeplan_world* world, void* stream) {
  if (world == nullptr) return Answer(Missing("world"));
  return OnWorld(*world->world, [&] {
    if (world->world->on_card) world->world->rank->runtime().SetJobStream(stream);
    return OkStatus();
  });
}

moeplan_status moeplan_world_set_lane(moeplan_world* world, int32_t lane) {
  if (world == nullptr) return Answer(Missing("world"));
  return OnWorld(*world->world, [&]() -> Status {
    if (lane < 0 || lane >= kLanes) {
      return InvalidInput(StrCat("lane: found ", lane, ", expected 0 (in line), 1 or 2"));
    }
    world->world->lane = static_cast<Lane>(lane);
    return OkStatus();
  });
}

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

void moeplan_layer_free(moeplan_layer* layer) {
  if (layer != nullptr) Free(layer, layer->own->world);
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
  if (batch != nullptr) Free(batch, batch->layer->world);
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
    RETURN_IF_ERROR(CheckRows(*pass->layer->world, {{"output_gradient", output_gradient},
                                                    {"input_gradient", input_gradient},
                                                    {"gradients.gate", gradients->gate},
                                                    {"gradients.gate_bias", gradients->gate_bias}}));
    ASSIGN_OR_RETURN(const GradientsMemory view, MemoryOf(*pass->layer, *gradients));
    ASSIGN_OR_RETURN(const GateGradientsView gate,
                     GateViewOf("gradients.", gradients->gate, gradients->gate_bias, pass->shape()));
    return pass->pass->Backward(Rows(output_gradient, pass->bytes), Rows(input_gradient, pass->bytes), view, gate);
  });
}

moeplan_status moeplan_pass_backward_of_input(moeplan_pass* pass, const void* output_gradient, void* input_gradient,
                                              float* gate_gradient, float* gate_bias_gradient) {
  return OnPass(pass, [&]() -> Status {
    if (output_gradient == nullptr || input_gradient == nullptr) return Missing("output_gradient or input_gradient");
    RETURN_IF_ERROR(CheckRows(*pass->layer->world, {{"output_gradient", output_gradient},
                                                    {"input_gradient", input_gradient},
                                                    {"gate_gradient", gate_gradient},
                                                    {"gate_bias_gradient", gate_bias_gradient}}));
    ASSIGN_OR_RETURN(const GateGradientsView gate, GateViewOf("", gate_gradient, gate_bias_gradient, pass->shape()));
    return pass->pass->BackwardOfInput(Rows(output_gradient, pass->bytes), Rows(input_gradient, pass->bytes), gate);
  });
}

moeplan_status moeplan_pass_add_weight_gradients(moeplan_pass* pass, const moeplan_gradients* gradients) {
  return OnPass(pass, [&]() -> Status {
    if (gradients == nullptr) return Missing("gradients");
    ASSIGN_OR_RETURN(const GradientsMemory view, MemoryOf(*pass->layer, *gradients));
    return pass->pass->AddWeightGradients(view);
  });
}

moeplan_status moeplan_pass_finish(moeplan_pass* pass) {
  return OnPass(pass, [&] { return pass->pass->Finish(); });
}

moeplan_status moeplan_pass_await_experts(moeplan_pass* pass) {
  return OnPass(pass, [&] { return pass->pass->AwaitExperts(); });
}

moeplan_status moeplan_pass_statistics(moeplan_pass* pass, moeplan_statistics* statistics) {
  return OnPass(pass, [&]() -> Status {
    if (statistics == nullptr) return Missing("statistics");
    ASSIGN_OR_RETURN(const RouterStatistics found, pass->pass->router_statistics());
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
    RETURN_IF_ERROR(pass->layer->world->rank->device().Synchronize());
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
  if (pass != nullptr) Free(pass, pass->layer->world);
}

}  // extern "C"
