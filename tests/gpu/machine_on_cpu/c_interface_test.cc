// The C interface on cards: the job's memory is used where it lies, behind the job's stream, and calls come back once
// their work is queued.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstring>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <utility>

#include "executor/c/moeplan.h"
#include "models/workload/names.h"
#include "tests/executor/example_layer.h"

namespace moeplan::executor {
namespace {

using namespace testing::example_layer;
using ::testing::HasSubstr;

#define EXPECT_OK(call) EXPECT_EQ(call, MOEPLAN_OK) << moeplan_last_error()
#define ASSERT_OK(call) ASSERT_EQ(call, MOEPLAN_OK) << moeplan_last_error()

// Memory of the card that is freed with the test.
class OnCard {
 public:
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    if (values.empty()) return nullptr;
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(T)), cudaSuccess);
    std::memcpy(memory, values.data(), values.size() * sizeof(T));
    kept_.emplace_back(memory, cudaFree);
    return static_cast<T*>(memory);
  }

 private:
  std::vector<std::unique_ptr<void, cudaError_t (*)(void*)>> kept_;
};

std::vector<float> Read(const float* from, size_t count) { return {from, from + count}; }

class JobStream {
 public:
  JobStream() { EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess); }
  ~JobStream() { cudaStreamDestroy(stream_); }
  void Queue(std::function<void()> work) { EXPECT_EQ(on_cpu::Launch(std::move(work), stream_), cudaSuccess); }
  void Wait() { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }
  void* get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct CPlan {
  explicit CPlan(const LayerPlan& plan) : schedule(Name(plan.knobs.family)) {
    const Layer& layer = plan.workload.layer;
    const Layout& layout = plan.workload.layout;
    fields = {.nodes = plan.cluster.nodes,
              .gpus_per_node = plan.cluster.gpus_per_node,
              .batch = layer.batch,
              .sequence_length = layer.sequence_length,
              .model_dim = layer.model_dim,
              .hidden_dim = layer.hidden_dim,
              .experts = layer.experts,
              .top_k = layer.top_k,
              .capacity_factor = layer.capacity_factor,
              .bytes_per_element = layer.bytes_per_element,
              .expert_matrices = layer.expert_matrices,
              .expert_bias = layer.expert_bias,
              .shared_hidden_dim = layer.shared_hidden_dim,
              .aux_loss_coefficient = layer.aux_loss_coefficient,
              .z_loss_coefficient = layer.z_loss_coefficient,
              .tensor_parallel = layout.tensor_parallel,
              .expert_parallel = layout.expert_parallel,
              .expert_sharding_parallel = layout.expert_sharding_parallel,
              .schedule = schedule.c_str()};
  }
  std::string schedule;
  moeplan_plan fields = {};
};

// Every rank as a thread with a world of its own; with `own_cards` each has a card, and they meet over NCCL.
void OnEveryCard(int ranks, double deadline_s, const std::function<void(moeplan_world*, int rank)>& body,
                 bool own_cards = false) {
  if (own_cards) on_cpu::SetCards(ranks);
  std::vector<std::string> addresses(ranks);
  std::barrier<> all_here(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(cudaSetDevice(own_cards ? rank : 0), cudaSuccess);
      const moeplan_place place = {.rank = rank,
                                   .ranks = ranks,
                                   .ranks_per_node = ranks % 2 == 0 ? ranks / 2 : ranks,
                                   .host_address = "127.0.0.1",
                                   .deadline_s = deadline_s,
                                   .backend = "cuda"};
      moeplan_join* join = nullptr;
      EXPECT_OK(moeplan_join_create(&place, &join));
      addresses[rank] = moeplan_join_address(join);
      all_here.arrive_and_wait();
      std::vector<const char*> all;
      for (const std::string& address : addresses) all.push_back(address.c_str());
      moeplan_world* world = nullptr;
      EXPECT_OK(moeplan_world_create(join, all.data(), &world));
      moeplan_join_free(join);
      body(world, rank);
      all_here.arrive_and_wait();
      moeplan_world_free(world);
    });
  }
  for (std::thread& thread : threads) thread.join();
  on_cpu::SetCards(1);
}

// A rank's part of the example's layer in memory of the card, as a job has it.
struct JobLayer {
  JobLayer(const LayerPlan& plan, int rank, uint64_t seed)
      : layer(plan.workload.layer), host(WeightsOf(plan, rank, seed)), zero(ZeroGradients(host)) {
    const auto elements = [&](const std::vector<float>& values) { return card.Upload(RowBytesOf(values, layer)); };
    const ExpertWeights &own = host.experts, &shared = host.shared;
    weights = {.gate = card.Upload(host.gate),
               .up = elements(own.up),
               .gate_up = elements(own.gate_up),
               .down = elements(own.down),
               .up_bias = card.Upload(own.up_bias),
               .gate_up_bias = card.Upload(own.gate_up_bias),
               .down_bias = card.Upload(own.down_bias),
               .shared_up = elements(shared.up),
               .shared_gate_up = elements(shared.gate_up),
               .shared_down = elements(shared.down),
               .shared_up_bias = card.Upload(shared.up_bias),
               .shared_gate_up_bias = card.Upload(shared.gate_up_bias),
               .shared_down_bias = card.Upload(shared.down_bias)};
    const ExpertGradients &zeros = zero.experts, &shared_zeros = zero.shared;
    gradients = {.gate = card.Upload(std::vector<float>(host.gate.size(), 0)),
                 .up = card.Upload(zeros.up),
                 .gate_up = card.Upload(zeros.gate_up),
                 .down = card.Upload(zeros.down),
                 .up_bias = card.Upload(zeros.up_bias),
                 .gate_up_bias = card.Upload(zeros.gate_up_bias),
                 .down_bias = card.Upload(zeros.down_bias),
                 .shared_up = card.Upload(shared_zeros.up),
                 .shared_gate_up = card.Upload(shared_zeros.gate_up),
                 .shared_down = card.Upload(shared_zeros.down),
                 .shared_up_bias = card.Upload(shared_zeros.up_bias),
                 .shared_gate_up_bias = card.Upload(shared_zeros.gate_up_bias),
                 .shared_down_bias = card.Upload(shared_zeros.down_bias)};
  }

  const Layer layer;
  const LayerWeights host;
  const LayerGradients zero;
  OnCard card;
  moeplan_weights weights = {};
  moeplan_gradients gradients = {};
};

// A step of a rank: its input is written, and its results are read, by work of the job's stream. Where calls come back
// once queued, the input is written after the calls have come back.
void Step(moeplan_layer* moe, JobLayer& job, JobStream& stream, const Rows& rows, bool returns_once_queued,
          Bytes& output, Bytes& input_gradient) {
  const Bytes input = RowBytesOf(rows.input, job.layer), out_gradient = RowBytesOf(rows.output_gradient, job.layer);
  std::byte *const there = job.card.Upload(Bytes(input.size())), *const back = job.card.Upload(Bytes(input.size()));
  std::latch may_begin(1);
  stream.Queue([&] {
    may_begin.wait();
    std::ranges::copy(input, there);
    std::ranges::copy(out_gradient, back);
  });
  if (!returns_once_queued) may_begin.count_down();
  moeplan_pass* pass = nullptr;
  const auto tokens = static_cast<int32_t>(rows.input.size()) / job.layer.model_dim;
  ASSERT_OK(moeplan_layer_forward(moe, tokens, there, there, &job.weights, &pass));
  if (returns_once_queued) may_begin.count_down();
  output.resize(input.size());
  stream.Queue([&] { std::copy_n(there, output.size(), output.begin()); });
  EXPECT_OK(moeplan_pass_backward(pass, back, back, &job.gradients));
  input_gradient.resize(input.size());
  stream.Queue([&] { std::copy_n(back, input_gradient.size(), input_gradient.begin()); });
  stream.Wait();
  std::vector<int64_t> kept(job.layer.experts);
  moeplan_statistics statistics = {.kept = kept.data()};
  EXPECT_OK(moeplan_pass_statistics(pass, &statistics));
  EXPECT_GT(statistics.tokens, 0);
  const moeplan_task* tasks = nullptr;
  int32_t count = 0;
  EXPECT_OK(moeplan_pass_timeline(pass, "TRAINING", &tasks, &count));
  EXPECT_GT(count, 0);
  moeplan_pass_free(pass);
}

// A layer whose calls are queued behind the stream.
moeplan_layer* MakeLayer(moeplan_world* world, const LayerPlan& plan, const JobStream& stream) {
  EXPECT_OK(moeplan_world_set_stream(world, stream.get()));
  const CPlan c_plan(plan);
  moeplan_layer* moe = nullptr;
  EXPECT_OK(moeplan_layer_create(world, &c_plan.fields, &moe));
  return moe;
}

class CInterfaceOnCardTest : public ::testing::TestWithParam<std::tuple<Family, int, double>> {};

TEST_P(CInterfaceOnCardTest, LayersUseTheJobsMemoryBehindItsStream) {
  const auto [family, bytes_per_element, capacity_factor] = GetParam();
  LayerPlan plan = PlanOf(family, bytes_per_element);
  plan.workload.layer.capacity_factor = capacity_factor;
  // Where the host has to know how many rows there are, calls wait for them.
  const bool counts_rows = family == Family::kParmS1 || family == Family::kOncePerNode;
  const bool returns_once_queued = !counts_rows && capacity_factor > 0;
  OnEveryCard(kRanks, /*deadline_s=*/20, [&, family = family](moeplan_world* world, int rank) {
    JobStream stream;
    JobLayer job(plan, rank, /*seed=*/1);
    moeplan_layer* const moe = MakeLayer(world, plan, stream);
    std::vector<double> gate(job.host.gate.size()), up(job.host.experts.up.size());
    for (int step = 0; step < 3; ++step) {
      SCOPED_TRACE(StrCat(Name(family), " step ", step));
      const Rows rows = RowsOf(plan, rank, /*seed=*/1 + step);
      LayerPlan of_step = plan;
      const LayerWeights full = MakeWeights(job.layer, ShardOf(job.layer, {}, 0), /*seed=*/1);
      const int slots = capacity_factor > 0 ? static_cast<int>(SlotsOfExpert(of_step.workload))
                                            : static_cast<int>(rows.input.size()) / job.layer.model_dim;
      const ReferenceOutput forward = ComputeReference(job.layer, full, rows.input, slots, /*slices=*/1);
      const ReferenceGradients backward =
          ComputeReferenceGradients(job.layer, full, rows.input, rows.output_gradient, forward);
      Bytes output, input_gradient;
      Step(moe, job, stream, rows, returns_once_queued && step > 0, output, input_gradient);
      ExpectClose(RowFloatsOf(output, job.layer), forward.output, forward.largest_magnitude, job.layer, "output");
      ExpectClose(RowFloatsOf(input_gradient, job.layer), backward.input.values, backward.input.largest_magnitude,
                  job.layer, "input gradient");
      for (size_t i = 0; i < gate.size(); ++i) gate[i] += backward.gate.values[i];
      ExpectClose(Read(job.gradients.gate, gate.size()), gate, backward.gate.largest_magnitude * (step + 1), job.layer,
                  "gate gradient");
    }
    moeplan_layer_free(moe);
  });
}

INSTANTIATE_TEST_SUITE_P(Layers, CInterfaceOnCardTest,
                         ::testing::Values(std::tuple(Family::kBaseline, 4, 0.8), std::tuple(Family::kParmS1, 4, 0.8),
                                           std::tuple(Family::kParmS2, 2, 0.8), std::tuple(Family::kMontaO3, 4, 0.8),
                                           std::tuple(Family::kPipeline, 2, 0.8), std::tuple(Family::kPipeline, 4, 0.0),
                                           std::tuple(Family::kOncePerNode, 4, 0.8)));

// A micro-batch on a lane, behind a stream of its own.
struct OnLane {
  OnLane(const LayerPlan& plan, int rank, uint64_t seed, int lane)
      : lane(lane), job(plan, rank, /*seed=*/1), rows(RowsOf(plan, rank, seed)) {
    there = job.card.Upload(RowBytesOf(rows.input, job.layer));
    back = job.card.Upload(RowBytesOf(rows.output_gradient, job.layer));
    bytes = rows.input.size() * job.layer.bytes_per_element;
  }

  void Forward(moeplan_world* world, moeplan_layer* moe) {
    ASSERT_OK(moeplan_world_set_stream(world, stream.get()));
    ASSERT_OK(moeplan_world_set_lane(world, lane));
    const auto tokens = static_cast<int32_t>(rows.input.size()) / job.layer.model_dim;
    ASSERT_OK(moeplan_layer_forward(moe, tokens, there, there, &job.weights, &pass));
    ASSERT_OK(moeplan_world_set_lane(world, 0));
  }
  void Backward(moeplan_world* world) {
    ASSERT_OK(moeplan_world_set_stream(world, stream.get()));
    ASSERT_OK(moeplan_pass_backward(pass, back, back, &job.gradients));
  }
  // Gives the bytes that the job's stream finds at `data` once the pass is finished.
  Bytes Finish(moeplan_world* world, const std::byte* data) {
    Bytes found(bytes);
    EXPECT_OK(moeplan_world_set_stream(world, stream.get()));
    EXPECT_OK(moeplan_pass_finish(pass));
    stream.Queue([&] { std::copy_n(data, bytes, found.begin()); });
    stream.Wait();
    return found;
  }

  int lane;
  JobStream stream;
  JobLayer job;
  Rows rows;
  std::byte *there = nullptr, *back = nullptr;
  size_t bytes = 0;
  moeplan_pass* pass = nullptr;
};

TEST(CInterfaceOnCardTest, TwoMicroBatchesRunOnLanesBehindStreamsOfTheirOwn) {
  const std::pair<Family, bool> cases[] = {
      {Family::kMontaO2, false}, {Family::kParmS2, false}, {Family::kMontaO2, true}, {Family::kPipeline, true}};
  for (const auto& [family, own_cards] : cases) {
    SCOPED_TRACE(StrCat(Name(family), own_cards ? " on cards of their own" : ""));
    const LayerPlan plan = PlanOf(family);
    const auto body = [&](moeplan_world* world, int rank) {
      JobStream in_line;
      moeplan_layer* const moe = MakeLayer(world, plan, in_line);
      for (int step = 0; step < 3; ++step) {
        OnLane one(plan, rank, /*seed=*/1 + step, 1), two(plan, rank, /*seed=*/11 + step, 2);
        one.Forward(world, moe);
        two.Forward(world, moe);
        std::vector<Bytes> found = {one.Finish(world, one.there)};
        found.push_back(two.Finish(world, two.there));
        // The stream of the first is held up, which holds up no pass of the second, but where that is being recorded.
        std::promise<void> may_go;
        bool waited_in_vain = false;
        if (step == 0) may_go.set_value();
        one.stream.Queue([&] {
          waited_in_vain = may_go.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::timeout;
        });
        one.Backward(world);
        two.Backward(world);
        const Bytes second = two.Finish(world, two.back);
        if (step > 0) may_go.set_value();
        found.push_back(one.Finish(world, one.back));
        found.push_back(second);
        EXPECT_FALSE(waited_in_vain);
        ASSERT_OK(moeplan_world_set_stream(world, in_line.get()));
        for (const OnLane* const batch : {&one, &two}) {
          moeplan_pass_free(batch->pass);
          JobLayer job(plan, rank, /*seed=*/1);
          Bytes output, input_gradient;
          Step(moe, job, in_line, batch->rows, /*returns_once_queued=*/false, output, input_gradient);
          EXPECT_EQ(found[batch->lane - 1], output);
          EXPECT_EQ(found[batch->lane + 1], input_gradient);
          const size_t gate = job.host.gate.size(), up = job.host.experts.up.size();
          EXPECT_EQ(Read(batch->job.gradients.gate, gate), Read(job.gradients.gate, gate));
          EXPECT_EQ(Read(static_cast<float*>(batch->job.gradients.up), up),
                    Read(static_cast<float*>(job.gradients.up), up));
        }
      }
      moeplan_layer_free(moe);
    };
    OnEveryCard(kRanks, /*deadline_s=*/20, body, own_cards);
  }
}

TEST(CInterfaceOnCardTest, TheJobMayMoveItsWeightsAndGradients) {
  LayerPlan plan = ExpertParallelPlan();
  OnEveryCard(kRanks, /*deadline_s=*/20, [&](moeplan_world* world, int rank) {
    JobStream stream;
    moeplan_layer* const moe = MakeLayer(world, plan, stream);
    const Rows rows = RowsOf(plan, rank, /*seed=*/1);
    std::vector<Bytes> outputs(3), input_gradients(3);
    std::vector<std::vector<float>> gradients;
    JobLayer first(plan, rank, /*seed=*/1), second(plan, rank, /*seed=*/2), third(plan, rank, /*seed=*/1);
    for (int i = 0; JobLayer * job : {&first, &second, &third}) {
      Step(moe, *job, stream, rows, /*returns_once_queued=*/false, outputs[i], input_gradients[i]);
      gradients.push_back(Read(static_cast<float*>(job->gradients.up), job->zero.experts.up.size()));
      ++i;
    }
    EXPECT_NE(outputs[0], outputs[1]);
    EXPECT_EQ(outputs[0], outputs[2]);
    EXPECT_NE(gradients[0], gradients[1]);
    EXPECT_EQ(gradients[0], gradients[2]);
    moeplan_layer_free(moe);
  });
}

TEST(CInterfaceOnCardTest, GradientsOfMatricesMayBeElementsThatAreOverwritten) {
  LayerPlan plan = ExpertParallelPlan();
  plan.workload.layer.bytes_per_element = 2;
  plan.workload.layer.batch = 4;  // Slots for two pieces.
  for (const int pieces : {1, 2}) {
    SCOPED_TRACE(StrCat("pieces ", pieces));
    OnEveryCard(kRanks, /*deadline_s=*/20, [&](moeplan_world* world, int rank) {
      JobStream stream;
      ASSERT_OK(moeplan_world_set_stream(world, stream.get()));
      CPlan c_plan(plan);
      c_plan.fields.schedule = "PIPELINE";
      c_plan.fields.partition_degree = pieces;
      moeplan_layer* moe = nullptr;
      ASSERT_OK(moeplan_layer_create(world, &c_plan.fields, &moe));
      const Rows rows = RowsOf(plan, rank, /*seed=*/1);
      JobLayer sums(plan, rank, /*seed=*/1), elements(plan, rank, /*seed=*/1);
      Bytes output, input_gradient;
      Step(moe, sums, stream, rows, /*returns_once_queued=*/false, output, input_gradient);
      const auto garbage = [&](const std::vector<float>& like) {
        return elements.card.Upload(RowBytesOf(std::vector<float>(like.size(), 7), elements.layer));
      };
      elements.gradients.matrices_are_elements = 1;
      elements.gradients.up = garbage(elements.host.experts.up);
      elements.gradients.gate_up = garbage(elements.host.experts.gate_up);
      elements.gradients.down = garbage(elements.host.experts.down);
      elements.gradients.shared_up = garbage(elements.host.shared.up);
      elements.gradients.shared_gate_up = garbage(elements.host.shared.gate_up);
      elements.gradients.shared_down = garbage(elements.host.shared.down);
      for (int step = 0; step < 2; ++step) {  // The second is no sum of both.
        Step(moe, elements, stream, rows, /*returns_once_queued=*/false, output, input_gradient);
      }
      const auto expect_near = [&](const void* found, const void* expected, size_t count, const char* what) {
        const auto* const bytes = static_cast<const std::byte*>(found);
        const std::vector<float> values = RowFloatsOf({bytes, bytes + 2 * count}, elements.layer);
        const auto* const floats = static_cast<const float*>(expected);
        const float largest = std::abs(
            *std::max_element(floats, floats + count, [](float a, float b) { return std::abs(a) < std::abs(b); }));
        ASSERT_GT(largest, 0) << what;
        for (size_t i = 0; i < count; ++i) ASSERT_NEAR(values[i], floats[i], largest / 64) << what << " " << i;
      };
      const ExpertWeights &own = elements.host.experts, &shared = elements.host.shared;
      const moeplan_gradients &found = elements.gradients, &expected = sums.gradients;
      expect_near(found.up, expected.up, own.up.size(), "up");
      expect_near(found.gate_up, expected.gate_up, own.gate_up.size(), "gate_up");
      expect_near(found.down, expected.down, own.down.size(), "down");
      expect_near(found.shared_up, expected.shared_up, shared.up.size(), "shared_up");
      expect_near(found.shared_gate_up, expected.shared_gate_up, shared.gate_up.size(), "shared_gate_up");
      expect_near(found.shared_down, expected.shared_down, shared.down.size(), "shared_down");
      moeplan_layer_free(moe);
    });
  }
}

TEST(CInterfaceOnCardTest, ARankMayKeepPassesThatOthersFree) {
  const LayerPlan plan = ExpertParallelPlan();
  const auto body = [&](moeplan_world* world, int rank) {
    JobStream stream;
    moeplan_layer* const moe = MakeLayer(world, plan, stream);
    JobLayer job(plan, rank, /*seed=*/1);
    const Rows rows = RowsOf(plan, rank, /*seed=*/1);
    const auto tokens = static_cast<int32_t>(rows.input.size()) / job.layer.model_dim;
    const Bytes input = RowBytesOf(rows.input, job.layer);
    std::vector<moeplan_pass*> kept;
    Bytes first;
    for (int step = 0; step < 4; ++step) {
      std::byte* const there = job.card.Upload(input);
      std::byte* const back = job.card.Upload(RowBytesOf(rows.output_gradient, job.layer));
      moeplan_pass* pass = nullptr;
      ASSERT_OK(moeplan_layer_forward(moe, tokens, there, there, &job.weights, &pass));
      if (step > 0) {  // The first buffers run backward when others are there.
        ASSERT_OK(moeplan_pass_backward(pass, back, back, &job.gradients));
      }
      stream.Wait();
      const Bytes output(there, there + input.size());
      if (step == 0) first = output;
      EXPECT_EQ(output, first) << "step " << step;
      rank == 0 ? kept.push_back(pass) : moeplan_pass_free(pass);
    }
    for (moeplan_pass* pass : kept) moeplan_pass_free(pass);
    moeplan_layer_free(moe);
  };
  OnEveryCard(kRanks, /*deadline_s=*/10, body, /*own_cards=*/true);
}

TEST(CInterfaceOnCardTest, MemoryOfTheHostIsRefusedByName) {
  OnEveryCard(1, /*deadline_s=*/5, [](moeplan_world* world, int) {
    LayerPlan plan = ExpertParallelPlan();
    plan.cluster = {.nodes = 1, .gpus_per_node = 1};
    plan.workload.layout = {};
    JobLayer job(plan, 0, /*seed=*/1);
    const CPlan c_plan(plan);
    moeplan_layer* moe = nullptr;
    ASSERT_OK(moeplan_layer_create(world, &c_plan.fields, &moe));
    const Rows rows = RowsOf(plan, 0, /*seed=*/1);
    Bytes host = RowBytesOf(rows.input, job.layer);
    std::byte* const card = job.card.Upload(host);
    const auto tokens = static_cast<int32_t>(rows.input.size()) / job.layer.model_dim;
    moeplan_pass* pass = nullptr;
    EXPECT_EQ(moeplan_layer_forward(moe, tokens, host.data(), card, &job.weights, &pass), MOEPLAN_INVALID_INPUT);
    EXPECT_THAT(moeplan_last_error(), HasSubstr("input: found memory that is not the card's"));
    moeplan_weights weights = job.weights;
    weights.shared_down = job.host.shared.down.data();
    EXPECT_EQ(moeplan_layer_forward(moe, tokens, card, card, &weights, &pass), MOEPLAN_INVALID_INPUT);
    EXPECT_THAT(moeplan_last_error(), HasSubstr("weights.shared_down: found memory that is not the card's"));
    moeplan_layer_free(moe);
  });
}

TEST(CInterfaceOnCardTest, AStreamThatAGraphIsCapturedFromIsRefusedAndTheJobGoesOn) {
  OnEveryCard(1, /*deadline_s=*/5, [](moeplan_world* world, int rank) {
    LayerPlan plan = ExpertParallelPlan();
    plan.cluster = {.nodes = 1, .gpus_per_node = 1};
    plan.workload.layout = {};
    JobStream stream;
    JobLayer job(plan, rank, /*seed=*/1);
    moeplan_layer* const moe = MakeLayer(world, plan, stream);
    const Rows rows = RowsOf(plan, rank, /*seed=*/1);
    std::byte* const card = job.card.Upload(RowBytesOf(rows.input, job.layer));
    const auto tokens = static_cast<int32_t>(rows.input.size()) / job.layer.model_dim;
    moeplan_pass* pass = nullptr;
    const auto captured = static_cast<cudaStream_t>(stream.get());
    ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(moeplan_layer_forward(moe, tokens, card, card, &job.weights, &pass), MOEPLAN_INVALID_INPUT);
    EXPECT_THAT(moeplan_last_error(), HasSubstr("stream: found one that a graph is captured from"));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    EXPECT_OK(moeplan_layer_forward(moe, tokens, card, card, &job.weights, &pass));
    stream.Wait();
    moeplan_pass_free(pass);
    moeplan_layer_free(moe);
  });
}

TEST(CInterfaceOnCardTest, APeerThatIsLostIsFoundWhileTheJobWaitsForItsStream) {
  constexpr double kDeadlineS = 3;
  const LayerPlan plan = ExpertParallelPlan();
  OnEveryCard(kRanks, kDeadlineS, [&](moeplan_world* world, int rank) {
    JobStream stream;
    JobLayer job(plan, rank, /*seed=*/1);
    moeplan_layer* const moe = MakeLayer(world, plan, stream);
    const Rows rows = RowsOf(plan, rank, /*seed=*/1);
    Bytes output, input_gradient;
    Step(moe, job, stream, rows, /*returns_once_queued=*/false, output, input_gradient);
    if (rank == 1) return moeplan_layer_free(moe);  // It comes no more.
    std::byte* const card = job.card.Upload(RowBytesOf(rows.input, job.layer));
    const auto tokens = static_cast<int32_t>(rows.input.size()) / job.layer.model_dim;
    moeplan_pass* pass = nullptr;
    EXPECT_OK(moeplan_layer_forward(moe, tokens, card, card, &job.weights, &pass));
    stream.Wait();  // Nobody calls meanwhile.
    moeplan_pass* next = nullptr;
    const moeplan_status status = moeplan_layer_forward(moe, tokens, card, card, &job.weights, &next);
    EXPECT_THAT(status, ::testing::AnyOf(MOEPLAN_DEADLINE_EXCEEDED, MOEPLAN_PEER_LOST)) << moeplan_last_error();
    EXPECT_EQ(next, nullptr);
    moeplan_pass_free(pass);
    moeplan_layer_free(moe);
  });
}

}  // namespace
}  // namespace moeplan::executor
