// The memory that a step's tensors take: by hand, and against a plain count at every moment.
#include "planner/lancet/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/lancet/judge.h"
#include "planner/lancet/schedule.h"
#include "planner/rules/lancet.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

Instruction Make(const std::string& id, InstructionOp op, double time_s, std::vector<std::string> inputs,
                 double bytes) {
  Instruction one = {.id = id, .op = op, .time_s = time_s, .inputs = std::move(inputs), .outputs = {id + ".y"}};
  one.output_bytes = {bytes};
  if (op == InstructionOp::kAllToAll) one.part_times_s = {time_s, time_s / 2, time_s / 3, time_s / 4};
  return one;
}

Instruction Back(Instruction one, const std::string& forward = {}) {
  one.phase = Pass::kBackward;
  one.forward = forward;
  return one;
}

struct Played {
  explicit Played(const TrainingGraph& graph) : graph(graph), timed(*TimeGraph(graph, nullptr, notes)) {}

  std::optional<double> PeakBytes(const StepChoice& choice) {
    Judge judge(graph, timed, nullptr);
    return judge.PeakBytes(*judge.Play(choice));
  }

  const TrainingGraph& graph;
  PriceNotes notes;
  TimedGraph timed;
};

TEST(StepMemoryTest, AnOutputIsThereUntilTheLastThatReadsItEnds) {
  TrainingGraph graph;
  graph.instructions = {Make("a", InstructionOp::kMatmul, 1, {"x"}, 100),
                        Make("b", InstructionOp::kMatmul, 1, {"a.y"}, 10),
                        Make("c", InstructionOp::kMatmul, 1, {"b.y"}, 1),
                        Back(Make("d", InstructionOp::kMatmul, 1, {"c.y", "a.y"}, 1000))};
  EXPECT_EQ(Played(graph).PeakBytes({}), 100 + 1 + 1000);  // b is gone.
  graph.instructions[3].inputs = {"c.y"};
  EXPECT_EQ(Played(graph).PeakBytes({}), 1 + 1000);
  graph.instructions[3].output_bytes = {0};
  EXPECT_EQ(Played(graph).PeakBytes({}), 100 + 10);
  for (Instruction& one : graph.instructions) one.output_bytes.clear();
  EXPECT_FALSE(Played(graph).PeakBytes({}).has_value());
}

// A product whose weight gradient may wait for an exchange behind it, and so may another's.
TrainingGraph Waiting() {
  TrainingGraph graph;
  graph.instructions = {Back(Make("a", InstructionOp::kMatmul, 1, {"x"}, 64)),
                        Back(Make("a.dw", InstructionOp::kMatmul, 3, {"a.y"}, 1)),
                        Back(Make("b", InstructionOp::kMatmul, 1, {"a.y"}, 16)),
                        Back(Make("b.dw", InstructionOp::kMatmul, 3, {"b.y"}, 1)),
                        Back(Make("rows", InstructionOp::kAllToAll, 6, {"b.y"}, 16)),
                        Back(Make("end", InstructionOp::kMatmul, 1, {"rows.y"}, 16))};
  for (const int i : {1, 3}) graph.instructions[i].weight_gradient = true;
  return graph;
}

TEST(StepMemoryTest, AWeightGradientThatWaitsKeepsWhatItReads) {
  const TrainingGraph graph = Waiting();
  Played played(graph);
  EXPECT_EQ(played.PeakBytes({}), 64 + 16 + 1);  // Gradients of weights are kept.
  EXPECT_EQ(played.PeakBytes({.places = {{1, 4}, {3, 4}}}), 64 + 16 + 16 + 1);
}

TEST(StepMemoryTest, APlanTakesNoMoreThanTheGraphSays) {
  TrainingGraph graph = Waiting();
  const auto plan = [&] { return PlanGraph(graph, nullptr)->lancet; };
  const LancetAnswer free = plan();
  EXPECT_EQ(free.weight_gradients.size(), 2u);
  EXPECT_EQ(free.time_s, 9);
  EXPECT_EQ(free.peak_bytes, 97);
  EXPECT_EQ(free.unscheduled_peak_bytes, 81);
  graph.most_bytes = 97;
  EXPECT_EQ(plan(), free);
  graph.most_bytes = 96;
  const LancetAnswer less = plan();
  EXPECT_LE(less.peak_bytes, 96);
  EXPECT_EQ(less.weight_gradients.size(), 1u);
  EXPECT_GT(less.time_s, free.time_s);
  graph.most_bytes = 1;  // Less than the given order takes: no more than that.
  EXPECT_LE(plan().peak_bytes, 81);
}

TEST(StepMemoryTest, PartsThatArePutTogetherAreThereTwice) {
  TrainingGraph graph;
  graph.instructions = {Make("rows", InstructionOp::kAllToAll, 4, {"x"}, 32),
                        Make("experts", InstructionOp::kExpert, 4, {"rows.y"}, 8),
                        Make("all", InstructionOp::kOther, 1, {"experts.y"}, 0)};
  graph.max_parts = 4;
  const StepChoice cut = {.ranges = {{0, 1, 2}}};
  // Both parts of the rows, of which the first is read while the second comes, and then what experts make of them.
  EXPECT_EQ(Played(graph).PeakBytes({}), 32 + 8);
  EXPECT_EQ(Played(graph).PeakBytes(cut), 16 + 16 + 4);
  graph.instructions[1].output_bytes = {100};
  EXPECT_EQ(Played(graph).PeakBytes(cut), 100 + 100);
}

TEST(StepMemoryTest, OfSeveralOutputsThoseAreThereTwiceThatTheForwardPassReads) {
  TrainingGraph graph;
  graph.instructions = {Make("rows", InstructionOp::kAllToAll, 4, {"x"}, 8),
                        Make("experts", InstructionOp::kExpert, 4, {"rows.y"}, 100),
                        Make("all", InstructionOp::kOther, 1, {"experts.y"}, 0),
                        Back(Make("back", InstructionOp::kOther, 1, {"experts.kept"}, 0))};
  graph.max_parts = 4;
  graph.instructions[1].outputs.push_back("experts.kept");
  graph.instructions[1].output_bytes.push_back(1000);
  EXPECT_EQ(Played(graph).PeakBytes({.ranges = {{0, 1, 2}}}), 100 + 100 + 1000);
}

TEST(StepMemoryTest, GradientsOfWeightsAreKeptAndNoBytesAreSome) {
  TrainingGraph graph;
  graph.instructions = {Back(Make("dw", InstructionOp::kMatmul, 1, {"x"}, 64)),
                        Back(Make("other", InstructionOp::kMatmul, 1, {"x"}, 16))};
  EXPECT_EQ(Played(graph).PeakBytes({}), 64);
  graph.instructions[0].weight_gradient = true;
  EXPECT_EQ(Played(graph).PeakBytes({}), 64 + 16);
  for (Instruction& one : graph.instructions) one.output_bytes = {0};
  EXPECT_EQ(Played(graph).PeakBytes({}), 0);
}

// ---- Against a count of what is there at every start and between all ends.

TrainingGraph AnyGraph(std::mt19937_64& engine) {
  const auto any = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  TrainingGraph graph;
  graph.max_parts = 4;
  const int forward = any(2, 8), backward = any(0, 8);
  for (int i = 0; i < forward + backward; ++i) {
    std::vector<std::string> inputs = {i > 0 ? "i" + std::to_string(i - 1) + ".y" : "x"};
    if (i > 0 && any(0, 1)) inputs.push_back("i" + std::to_string(any(0, i - 1)) + ".y");
    Instruction one = Make("i" + std::to_string(i), any(0, 1) ? InstructionOp::kAllToAll : InstructionOp::kExpert,
                           any(1, 8), std::move(inputs), any(0, 3) * any(1, 9));
    one.part_times_s = {*one.time_s, *one.time_s / 2, *one.time_s / 3, *one.time_s / 4};
    if (i >= forward) one = Back(one, any(0, 1) ? "i" + std::to_string(any(0, forward - 1)) : "");
    graph.instructions.push_back(std::move(one));
  }
  return graph;
}

// By the tasks' names and dependencies' alone, of a step in which nothing is put together.
double PlainPeakBytes(const TrainingGraph& graph, const JudgedChoice& judged) {
  const auto& tasks = judged.tasks.graph.tasks;
  const auto range_of = [&](int i) {
    const Instruction& one = graph.instructions[i];
    const std::string& id = one.phase == Pass::kForward ? one.id : one.forward;
    for (const StepRange& range : judged.ranges) {
      for (int j = range.first; j <= range.last; ++j) {
        if (graph.instructions[j].id == id) return range.first;
      }
    }
    return -1;
  };
  double most = 0;
  for (const double now_s : judged.played.start_s) {
    double bytes = 0;
    for (size_t task = 0; task < tasks.size(); ++task) {
      const StepTask& made = judged.tasks.tasks[task];
      double until_s = judged.played.end_s[task];
      for (size_t other = 0; other < tasks.size(); ++other) {
        const StepTask& reader = judged.tasks.tasks[other];
        const auto& inputs = graph.instructions[reader.instruction].inputs;
        if (!std::ranges::count(inputs, graph.instructions[made.instruction].outputs[0])) continue;
        const bool together =
            made.parts > 1 && reader.parts == made.parts && range_of(made.instruction) == range_of(reader.instruction);
        if (together && tasks[task].chunk != tasks[other].chunk) continue;
        until_s = std::max(until_s, judged.played.end_s[other]);
      }
      if (judged.played.start_s[task] > now_s || until_s <= now_s) continue;
      bytes += graph.instructions[made.instruction].output_bytes[0] / made.parts;
    }
    most = std::max(most, bytes);
  }
  return most;
}

TEST(StepMemoryTest, AnyStepIsCountedAsPlainly) {
  std::mt19937_64 engine(TestSeed());
  int cut = 0;
  for (int round = 0; round < 2000; ++round) {
    TrainingGraph graph = AnyGraph(engine);
    ASSERT_TRUE(ValidateTrainingGraph(graph).ok());
    Played played(graph);
    StepChoice choice;
    const std::vector<CutRange> ranges = AllRanges(played.timed, 1000);
    if (!ranges.empty()) choice.ranges = {ranges[engine() % ranges.size()]};
    Judge judge(graph, played.timed, nullptr);
    const std::optional<JudgedChoice> judged = judge.Play(choice);
    ASSERT_TRUE(judged.has_value());
    const bool joins =
        std::ranges::any_of(judged->tasks.tasks, [](const StepTask& one) { return one.role == StepRole::kJoin; });
    if (joins) continue;
    cut += !choice.ranges.empty();
    ASSERT_NEAR(*judge.PeakBytes(*judged), PlainPeakBytes(graph, *judged), 1e-6);
  }
  EXPECT_GT(cut, 300);
}

}  // namespace
}  // namespace moeplan::planner
