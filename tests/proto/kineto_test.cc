// Graphs of traces: what is one instruction, what it does and what it reads.
#include "proto/kineto/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/text.h"
#include "proto/convert/training_graph.h"
#include "proto/kineto/rules.h"
#include "tests/proto/kineto_trace.h"

namespace moeplan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kMain = KinetoTrace::kMainThread, kAutograd = KinetoTrace::kAutogradThread;

StatusOr<KinetoImport> Read(const std::string& text, const KinetoOptions& options = {}) {
  return ImportKineto(kineto::TraceInMemory(text), options);
}

// "3.all_to_all ALL_TO_ALL FORWARD 100 us <- t2, 16384 bytes of 4 (2 a node) on INTER_NODE".
std::string Line(const Instruction& one) {
  std::string reads;
  for (const std::string& input : one.inputs) reads += StrCat(reads.empty() ? "" : " ", input);
  std::string line = StrCat(one.id, " ", Name(one.op), one.phase == Pass::kForward ? " FORWARD " : " BACKWARD ",
                            std::round(*one.time_s * 1e9) / 1e3, " us <- ", reads);
  if (one.bytes) line += StrCat(", ", *one.bytes, " bytes");
  if (one.group_size) line += StrCat(" of ", *one.group_size);
  if (one.ranks_per_node) line += StrCat(" (", *one.ranks_per_node, " a node)");
  if (one.stream) line += StrCat(" on ", Name(*one.stream));
  return line + (one.weight_gradient ? ", waits" : "");
}

std::vector<std::string> LinesOf(const StatusOr<KinetoImport>& import) {
  std::vector<std::string> lines;
  EXPECT_TRUE(import.ok()) << import.status().message();
  if (!import.ok()) return lines;
  for (const Instruction& one : import->graph.instructions) lines.push_back(Line(one));
  // The graph survives a file.
  const auto again = TrainingGraphFromProto(ToProto(import->graph));
  EXPECT_TRUE(again.ok() && *again == import->graph);
  return lines;
}

TEST(KinetoTest, AStepOnAnH100IsThisGraph) {
  // Two steps, the second without an optimizer's, of a gate, grouped experts behind TransformerEngine's permutation,
  // and a head; 16 ranks in nodes of 8, EP over 0, 2, 8 and 10. 64 rows of 128 BF16 are 16384 bytes; 33024 gradients in
  // FP32 are 132096.
  const KinetoOptions options = {.ranks_per_node = 8};
  const auto import = ImportKineto(kineto::TraceInFile(MOEPLAN_SOURCE_DIR "/tests/data/kineto/h100.json"), options);
  EXPECT_THAT(
      LinesOf(import),
      ElementsAre("0.layer_norm LAYER_NORM FORWARD 10 us <- ",
                  // 40 and the sum over its parts, 5.
                  "1.linear MATMUL FORWARD 45 us <- t0",
                  // Softmax and top-k under record_function("router").
                  "2.router GATE FORWARD 15 us <- t1", "3._moe_permute_index_map DISPATCH FORWARD 12 us <- t2",
                  "4.all_to_all ALL_TO_ALL FORWARD 100 us <- t3, 16384 bytes of 4 (2 a node) on INTER_NODE",
                  // It starts while the all-to-all is under way, so that it does not need it.
                  "5.silu ELEMENTWISE FORWARD 20 us <- t3", "6._GroupedLinear EXPERT FORWARD 80 us <- t4 t5",
                  "7.all_to_all ALL_TO_ALL FORWARD 90 us <- t6, 16384 bytes of 4 (2 a node) on INTER_NODE",
                  "8._moe_unpermute_index_map COMBINE FORWARD 11 us <- t6 t7", "9.linear MATMUL FORWARD 50 us <- t8",
                  "10.mylib::mystery OTHER FORWARD 7 us <- t9", "11.cross_entropy_loss OTHER FORWARD 4 us <- t10",
                  "12.NllLossBackward0 OTHER BACKWARD 5 us <- t11", "13.MmBackward0 MATMUL BACKWARD 48 us <- t12",
                  "14.MmBackward0.dw.512x128 MATMUL BACKWARD 52 us <- t13, waits",
                  "15._moe_unpermute_index_mapBackward COMBINE BACKWARD 10 us <- t13",
                  "16.all_to_all ALL_TO_ALL BACKWARD 95 us <- t15, 16384 bytes of 4 (2 a node) on INTER_NODE",
                  // 78 and 82: which of them is the weights' nothing tells.
                  "17._GroupedLinearBackward EXPERT BACKWARD 160 us <- t15 t16",
                  "18.all_to_all ALL_TO_ALL BACKWARD 105 us <- t17, 16384 bytes of 4 (2 a node) on INTER_NODE",
                  "19._moe_permute_index_mapBackward DISPATCH BACKWARD 12 us <- t17 t18",
                  "20.AddmmBackward0 MATMUL BACKWARD 38 us <- t19",
                  "21.AddmmBackward0.dw.256x128 MATMUL BACKWARD 36 us <- t20, waits",
                  // The bias's gradient.
                  "22.AddmmBackward0 MATMUL BACKWARD 4 us <- t20",
                  // Both gradients added up, 2 and 3; the pass goes on from t22.
                  "23.AccumulateGrad OTHER BACKWARD 5 us <- t14 t21 t22",
                  "24.all_reduce ALL_REDUCE BACKWARD 60 us <- t22 t23, 132096 bytes of 16 (8 a node) on INTRA_NODE",
                  "25.NativeLayerNormBackward0 LAYER_NORM BACKWARD 14 us <- t22",
                  "26.optimizer OTHER BACKWARD 30 us <- t24 t25"));
  ASSERT_TRUE(import.ok());
  EXPECT_EQ(import->graph.max_parts, 1);
  // 1104 of 1111 us are known; the GPU's first kernel begins 1084 us before its last ends.
  EXPECT_THAT(import->notes,
              ElementsAre("ProfilerStep#3 (of 2 steps): 31 kernels in 27 instructions, 4 all-to-alls and 2 weight "
                          "gradients among them",
                          HasSubstr("known operations take 1.111 ms, 99.4 % of all"),
                          HasSubstr("1 backward node of a library may have weight gradients"),
                          "line 356: mylib::mystery is OTHER (1 instruction, 0.007 ms)"));
}

// One forward kernel, then a node of two products of 4 rows: dX [4, 8] and dW [8, 16] of a weight [16, 8].
KinetoTrace ALinearLayer(std::string_view dx = "[[4, 16], [16, 8]]", std::string_view dw = "[[8, 4], [4, 16]]") {
  KinetoTrace trace;
  trace.Step(1, 0, 1000)
      .Operator("aten::linear", 10, 10,
                R"("Sequence number": 3, "Fwd thread id": 0, "Input Dims": [[4, 8], [16, 8], []])")
      .Kernel("gemm", kMain, 12, 20, 5)
      .Node("MmBackward0", 100, 50, R"("Sequence number": 4, "Fwd thread id": 1, "Input Dims": [[4, 16]])")
      .Backward("aten::mm", 110, 5, StrCat(R"("Input Dims": )", dx))
      .Kernel("gemm", kAutograd, 112, 120, 6)
      .Backward("aten::mm", 120, 5, StrCat(R"("Input Dims": )", dw))
      .Kernel("gemm", kAutograd, 122, 130, 7);
  return trace;
}
KinetoTrace& Leaf(KinetoTrace& trace, double start_us, std::string_view shape = "[16, 8]") {
  return trace.Node("torch::autograd::AccumulateGrad", start_us, 10, StrCat(R"("Input Dims": [)", shape, "]"));
}
KinetoTrace& Ending(KinetoTrace& trace) {
  return trace.Node("GeluBackward0", 400, 10, R"("Sequence number": 2, "Fwd thread id": 1, "Input Dims": [[4, 8]])")
      .Kernel("gelu", kAutograd, 405, 420, 2);
}
std::vector<std::string> WaitingIn(const KinetoTrace& trace) {
  std::vector<std::string> waiting;
  for (const std::string& line : LinesOf(Read(trace.Text()))) {
    if (line.ends_with(", waits")) waiting.push_back(line);
  }
  return waiting;
}

TEST(KinetoTest, AWeightGradientIsWhatALeafTakes) {
  KinetoTrace trace = ALinearLayer();
  trace.Node("TBackward0", 200, 10, R"("Sequence number": 3, "Fwd thread id": 1, "Input Dims": [[8, 16]])");
  Ending(Leaf(trace, 220));
  EXPECT_THAT(LinesOf(Read(trace.Text())),
              ElementsAre("0.linear MATMUL FORWARD 5 us <- ", "1.MmBackward0 MATMUL BACKWARD 6 us <- t0",
                          "2.MmBackward0.dw.16x8 MATMUL BACKWARD 7 us <- t1, waits",
                          "3.GeluBackward0 ELEMENTWISE BACKWARD 2 us <- t1"));
}

TEST(KinetoTest, ACastOnTheWayToALeafReadsTheGradientAndNothingReadsIt) {
  KinetoTrace trace = ALinearLayer();
  trace.Node("ToCopyBackward0", 200, 10, R"("Sequence number": 2, "Fwd thread id": 1, "Input Dims": [[16, 8]])")
      .Backward("aten::_to_copy", 202, 5, R"("Input Dims": [[16, 8]])")
      .Kernel("copy", kAutograd, 203, 210, 3);
  Ending(Leaf(trace, 220));
  EXPECT_THAT(
      LinesOf(Read(trace.Text())),
      ElementsAre("0.linear MATMUL FORWARD 5 us <- ", "1.MmBackward0 MATMUL BACKWARD 6 us <- t0",
                  "2.MmBackward0.dw.16x8 MATMUL BACKWARD 7 us <- t1, waits",
                  "3.AccumulateGrad OTHER BACKWARD 3 us <- t1 t2", "4.GeluBackward0 ELEMENTWISE BACKWARD 2 us <- t1"));
}

TEST(KinetoTest, WhatANodeDoesToItsWeightGradientReadsIt) {
  const auto last_of_node = [](std::string_view name, std::string_view arguments) {
    KinetoTrace trace = ALinearLayer();
    trace.Backward(name, 130, 5, arguments).Kernel("elementwise_kernel", kAutograd, 132, 140, 4);
    Ending(Leaf(trace, 220));
    return LinesOf(Read(trace.Text())).at(3);
  };
  EXPECT_THAT(last_of_node("aten::mul", R"("Input Dims": [[8, 16], []])"), HasSubstr("BACKWARD 4 us <- t1 t2"));
  EXPECT_THAT(last_of_node("aten::mul", R"("Input Dims": [[128], []])"), HasSubstr("BACKWARD 4 us <- t1 t2"));
  EXPECT_THAT(last_of_node("aten::mul", ""), HasSubstr("BACKWARD 4 us <- t1 t2"));
  // A bias's gradient is of what came in, and another product of that and the weight.
  EXPECT_THAT(last_of_node("aten::sum", R"("Input Dims": [[4, 16], [], [], []])"), EndsWith("BACKWARD 4 us <- t1"));
  EXPECT_THAT(last_of_node("aten::mm", R"("Input Dims": [[4, 16], [16, 3]])"), EndsWith("BACKWARD 4 us <- t1"));
}

TEST(KinetoTest, WhatIsDeepDownIsOneOfTheDeepestLevel) {
  KinetoTrace trace = ALinearLayer();
  for (int i = 0; i < 20000; ++i) trace.Operator("aten::deep", 500 + i * 1e-3, 400 - 2e-3 * i);
  EXPECT_EQ(LinesOf(Read(Ending(Leaf(trace, 220)).Text())).size(), 4u);
}

TEST(KinetoTest, WhatTheTraceDoesNotShowToBeAWeightGradientStays) {
  // No leaf behind the node: the second operand may be an activation.
  KinetoTrace no_leaf = ALinearLayer();
  EXPECT_THAT(WaitingIn(Ending(no_leaf)), IsEmpty());
  // Another node between.
  KinetoTrace later = ALinearLayer();
  later.Node("GeluBackward0", 200, 10, R"("Sequence number": 2, "Fwd thread id": 1)");
  EXPECT_THAT(WaitingIn(Ending(Leaf(later, 220))), IsEmpty());
  // A leaf of another shape.
  KinetoTrace bias = ALinearLayer();
  EXPECT_THAT(WaitingIn(Ending(Leaf(bias, 220, "[16]"))), IsEmpty());
  // 16 rows, so that the gradient of what comes in has the weight's shape, too.
  KinetoTrace square = ALinearLayer("[[16, 16], [16, 8]]", "[[8, 16], [16, 16]]");
  EXPECT_THAT(WaitingIn(Ending(Leaf(square, 220))), IsEmpty());
  EXPECT_THAT(Read(square.Text())->notes, Contains(HasSubstr("1 backward node has a weight gradient that its shape")));
  // Autograd adds the gradient to that of another use of the weight.
  KinetoTrace twice = ALinearLayer();
  twice.Backward("aten::add", 149.6, 0.2, R"("Input Dims": [[8, 16], [8, 16], []])");
  EXPECT_THAT(WaitingIn(Ending(Leaf(twice, 220))), IsEmpty());
  // No shapes at all.
  KinetoTrace bare = ALinearLayer("[]", "[]");
  EXPECT_THAT(WaitingIn(Ending(Leaf(bare, 220))), IsEmpty());
}

TEST(KinetoTest, WholeMicrosecondsMayBeginAndEndBehindWhatContainsThem) {
  // A leaf's evaluation and its function.
  const auto trace_of = [](double start_us, double duration_us, double function_us, double function_takes_us) {
    KinetoTrace trace = ALinearLayer();
    const std::string name = "torch::autograd::AccumulateGrad";
    trace.Node("TBackward0", 200, 10)
        .Backward("autograd::engine::evaluate_function: " + name, start_us, duration_us)
        .Backward(name, function_us, function_takes_us, R"("Input Dims": [[16, 8]])");
    std::string text = trace.Text();
    for (size_t at = text.find(".5, "); at != std::string::npos; at = text.find(".5, ")) text.erase(at, 2);
    return text;
  };
  const std::string waits = "2.MmBackward0.dw.16x8 MATMUL BACKWARD 7 us <- t1, waits";
  // From 220.9 to 229.1 and from 221.9 to 229.0, rounded down: 8 from 220, and 7 from 222.
  EXPECT_THAT(LinesOf(Read(trace_of(220, 8, 222, 7))), Contains(waits));
  EXPECT_THAT(LinesOf(Read(trace_of(220, 8, 222, 9))), Not(Contains(HasSubstr("waits"))));
  // From 220.9 to 222.8 and from 221.1 to 222.7, or from 222.1: it seems to begin when its evaluation ends, or later.
  EXPECT_THAT(LinesOf(Read(trace_of(220, 1, 221, 1))), Contains(waits));
  EXPECT_THAT(LinesOf(Read(trace_of(220, 1, 222, 0))), Contains(waits));
  EXPECT_THAT(LinesOf(Read(trace_of(220, 1, 223, 0))), Not(Contains(HasSubstr("waits"))));
}

// Two leaves, a bias and then the weight, one behind the other: each evaluation has its own function.
TEST(KinetoTest, LeavesOfOneMicrosecondKeepTheirFunctions) {
  struct Leaf {
    double start_us, duration_us, function_us, function_takes_us;
  };
  const auto waiting_of = [](const Leaf& bias, const Leaf& weight) {
    KinetoTrace trace = ALinearLayer();
    const std::string name = "torch::autograd::AccumulateGrad";
    for (const auto& [leaf, shape] : {std::pair(bias, "[[16]]"), std::pair(weight, "[[16, 8]]")}) {
      trace.Backward("autograd::engine::evaluate_function: " + name, leaf.start_us, leaf.duration_us)
          .Backward(name, leaf.function_us, leaf.function_takes_us, StrCat(R"("Input Dims": )", shape));
    }
    std::string text = trace.Text();
    for (size_t at = text.find(".5, "); at != std::string::npos; at = text.find(".5, ")) text.erase(at, 2);
    std::vector<std::string> waiting;
    for (const std::string& line : LinesOf(Read(text))) {
      if (line.ends_with(", waits")) waiting.push_back(line);
    }
    return waiting;
  };
  const auto one_waits = ElementsAre(HasSubstr("MmBackward0.dw.16x8"));
  // From 220.9 to 222.8 and 222.1 to 222.7; from 222.9 to 225.0 and 223.1 to 224.9.
  EXPECT_THAT(waiting_of({220, 1, 222, 0}, {222, 2, 223, 1}), one_waits);
  // All four within one.
  EXPECT_THAT(waiting_of({220, 0, 220, 0}, {220, 0, 220, 0}), one_waits);
}

TEST(KinetoTest, AGradientThatIsAddedToThatOfTheInputDoesNotKeepTheWeights) {
  KinetoTrace trace = ALinearLayer();
  trace.Backward("aten::add", 149.6, 0.2, R"("Input Dims": [[4, 8], [4, 8], []])");
  EXPECT_THAT(WaitingIn(Ending(Leaf(trace, 220))), ElementsAre(HasSubstr("MmBackward0.dw.16x8")));
}

TEST(KinetoTest, WorkOutsideOfNodesReadsAllGradients) {
  // A callback of autograd's engine behind the last node, as FSDP has one for what its hooks have left.
  KinetoTrace trace = ALinearLayer();
  trace.Node("TBackward0", 200, 10, R"("Sequence number": 3, "Fwd thread id": 1, "Input Dims": [[8, 16]])");
  Leaf(trace, 220)
      .Kernel("ncclDevKernel_ReduceScatter", kAutograd, 500, 510, 20, 30,
              R"("Collective name": "_reduce_scatter_base", "In msg nelems": 128, "Out msg nelems": 64,
                          "Group size": 2, "dtype": "Float")");
  EXPECT_EQ(LinesOf(Read(trace.Text())).back(),
            "3.reduce_scatter REDUCE_SCATTER BACKWARD 20 us <- t1 t2, 512 bytes of 2 on INTRA_NODE");
  // And a message that a leaf sends: DeepSpeed reduces to the rank that owns the parameter.
  KinetoTrace sends = ALinearLayer();
  Leaf(sends, 220)
      .Kernel("ncclDevKernel_Reduce", kAutograd, 225, 240, 20, 30,
              R"("Collective name": "reduce", "In msg nelems": 128, "Out msg nelems": 128, "Group size": 2,
                          "dtype": "Float")");
  const auto lines = LinesOf(Read(sends.Text()));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[3], HasSubstr("OTHER BACKWARD 20 us <- t1 t2"));
}

TEST(KinetoTest, MegatronsLinearLayerWritesItsOwnWeightGradient) {
  const std::string name = "LinearWithGradAccumulationAndAsyncCommunication";
  KinetoTrace trace;
  trace.Step(1, 0, 1000)
      .Operator(name, 10, 10, R"("Sequence number": 3, "Fwd thread id": 0, "Input Dims": [[4, 1, 8], [16, 8], []])")
      .Operator("aten::matmul", 12, 5, R"("Input Dims": [[4, 1, 8], [8, 16]])")
      .Kernel("nvjet_a", kMain, 13, 20, 5)
      .Node(name + "Backward", 100, 50, R"("Sequence number": 3, "Fwd thread id": 1, "Input Dims": [[4, 1, 16]])")
      .Backward("aten::matmul", 110, 5, R"("Input Dims": [[4, 1, 16], [16, 8]])")
      .Kernel("nvjet_b", kAutograd, 112, 120, 6)
      // fused_weight_gradient_mlp_cuda is no operator of PyTorch.
      .Kernel("nvjet_c", kAutograd, 122, 130, 7);
  EXPECT_THAT(WaitingIn(Ending(trace)),
              ElementsAre("2." + name + "Backward.dw.16x8 MATMUL BACKWARD 7 us <- t1, waits"));
}

KinetoTrace AnExchange(double next_start_us, std::string_view name = "ncclDevKernel_SendRecv(x)",
                       std::string_view call = R"("Collective name": "all_to_all", "In msg nelems": 100,
                       "Out msg nelems": 100, "Group size": 4, "dtype": "Float")") {
  KinetoTrace trace;
  trace.Step(1, 0, 1000)
      .Operator("aten::relu", 10, 10)
      .Kernel("relu", kMain, 12, 20, 10)
      .Operator("c10d::exchange_", 30, 10)
      .Kernel(name, kMain, 32, 40, 60, 20, call)
      .Operator("aten::tanh", 50, 10)
      .Kernel("tanh", kMain, 52, next_start_us, 10)
      .Node("TanhBackward0", 300, 10)
      .Kernel("tanh", kAutograd, 305, 320, 10);
  return trace;
}

TEST(KinetoTest, OnlyWhatStartsBeforeAnExchangeEndsIsIndependentOfIt) {
  // The exchange runs from 40 to 100.
  EXPECT_THAT(
      LinesOf(Read(AnExchange(99).Text())),
      ElementsAre("0.relu ELEMENTWISE FORWARD 10 us <- ",
                  "1.all_to_all ALL_TO_ALL FORWARD 60 us <- t0, 400 bytes of 4 on INTER_NODE",
                  "2.tanh ELEMENTWISE FORWARD 10 us <- t0", "3.TanhBackward0 ELEMENTWISE BACKWARD 10 us <- t1 t2"));
  EXPECT_THAT(
      LinesOf(Read(AnExchange(100).Text())),
      ElementsAre("0.relu ELEMENTWISE FORWARD 10 us <- ",
                  "1.all_to_all ALL_TO_ALL FORWARD 60 us <- t0, 400 bytes of 4 on INTER_NODE",
                  "2.tanh ELEMENTWISE FORWARD 10 us <- t0 t1", "3.TanhBackward0 ELEMENTWISE BACKWARD 10 us <- t2"));
}

TEST(KinetoTest, CollectivesAreKnownByWhatPyTorchSaysOfThem) {
  const auto line = [](std::string_view kernel, std::string_view call) {
    return LinesOf(Read(AnExchange(100, kernel, call).Text(), {.rank = 9, .ranks_per_node = 8})).at(1);
  };
  // A gather's size is that of what comes out, a scatter's of what goes in.
  EXPECT_EQ(line("ncclDevKernel_AllGather_RING_LL", R"("Collective name": "_allgather_base", "In msg nelems": 100,
                 "Out msg nelems": 1600, "Group size": 16, "dtype": "BFloat16")"),
            "1.all_gather ALL_GATHER FORWARD 60 us <- t0, 3200 bytes of 16 (8 a node) on INTRA_NODE");
  EXPECT_EQ(line("ncclDevKernel_ReduceScatter", R"("Collective name": "_reduce_scatter_base", "In msg nelems": 1600,
                 "Out msg nelems": 100, "Group size": 16, "dtype": "Float")"),
            "1.reduce_scatter REDUCE_SCATTER FORWARD 60 us <- t0, 6400 bytes of 16 (8 a node) on INTRA_NODE");
  // Rank 9 is on the second node of 8, with 8 and 10 of its group.
  EXPECT_EQ(
      line("ncclDevKernel_AllReduce", R"("Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10,
                 "Group size": 4, "dtype": "Half", "Process Group Ranks": [1, 8, 9, 10])"),
      "1.all_reduce ALL_REDUCE FORWARD 60 us <- t0, 20 bytes of 4 (3 a node) on INTRA_NODE");
  // An older release: the kernel's name alone.
  EXPECT_EQ(line("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)", ""),
            "1.all_reduce ALL_REDUCE FORWARD 60 us <- t0 on INTRA_NODE");
  EXPECT_EQ(line("void deep_ep::internode::dispatch<false>(int)", ""),
            "1.all_to_all ALL_TO_ALL FORWARD 60 us <- t0 on INTER_NODE");
  // A group of one rank exchanges nothing, and messages between two ranks are in no graph.
  EXPECT_THAT(line("ncclDevKernel_AllReduce", R"("Collective name": "allreduce", "Group size": 1)"),
              HasSubstr(" OTHER "));
  EXPECT_THAT(line("ncclDevKernel_SendRecv", R"("Collective name": "send", "Group size": 4)"), HasSubstr(" OTHER "));
  EXPECT_THAT(
      Read(AnExchange(100, "ncclDevKernel_SendRecv", R"("Collective name": "send", "Group size": 4)").Text())->notes,
      Contains("line 9: send is OTHER (1 instruction, 0.06 ms)"));
}

TEST(KinetoTest, CollectivesOfOneStreamStayOnOne) {
  KinetoTrace trace = AnExchange(100);
  const auto sum = [](std::string_view stream) {
    return StrCat(R"("Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2,
                  "dtype": "Float", "tag": )",
                  stream);
  };
  // One behind the all-to-all on its stream, and others on streams of their own.
  int launch_us = 400;
  for (const int stream : {20, 24, 28, 32}) {
    trace.Kernel("ncclDevKernel_AllReduce", kAutograd, launch_us, launch_us, 5, stream, sum("0"));
    launch_us += 10;
  }
  const auto lines = LinesOf(Read(trace.Text()));
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_THAT(lines[4], HasSubstr("on INTER_NODE"));
  EXPECT_THAT(lines[5], HasSubstr("on INTRA_NODE"));
  EXPECT_THAT(lines[6], HasSubstr("on COPY"));
  EXPECT_THAT(lines[7], HasSubstr("on COPY"));
}

TEST(KinetoTest, ThreadsOfACpuWaitForCollectivesAndTheirOwnTimeIsTheNextOperators) {
  KinetoTrace trace;
  trace.Step(1, 0, 1000)
      .Operator("aten::mm", 10, 90, R"("Input Dims": [[4, 8], [8, 16]])")
      .Operator("aten::resolve_conj", 20, 5)
      .Operator("aten::view", 110, 5)
      .Add("user_annotation", "gloo:all_to_all", 300, 120, 180, R"("Input Dims": [[4, 16]], "Input type": ["float"])")
      .Operator("aten::relu", 310, 40)
      .Add("cpu_op", "autograd::engine::evaluate_function: ReluBackward0", kMain, 400, 100)
      .Add("cpu_op", "ReluBackward0", kMain, 401, 98, R"("Sequence number": 1, "Fwd thread id": 1)")
      .Add("cpu_op", "aten::threshold_backward", kMain, 410, 80);
  const auto import = Read(trace.Text());
  // mm: 10 before it and 90. The thread is on its own from 100 to 120 and from 300 to 310, then 40. Back: 350 to 490.
  EXPECT_THAT(LinesOf(import), ElementsAre("0.mm MATMUL FORWARD 100 us <- ",
                                           "1.all_to_all ALL_TO_ALL FORWARD 180 us <- t0, 256 bytes on INTER_NODE",
                                           "2.relu ELEMENTWISE FORWARD 70 us <- t0 t1",
                                           "3.ReluBackward0 ELEMENTWISE BACKWARD 140 us <- t2"));
  EXPECT_THAT(import->notes,
              Contains("1 collective has no group size in the trace: only newer releases of PyTorch write it"));
}

TEST(KinetoTest, AThreadOfGlooMayBeginWhenTheNodeThatCalledItHasEnded) {
  KinetoTrace trace;
  trace.Step(1, 0, 1000)
      .Operator("aten::relu", 10, 10)
      .Add("cpu_op", "autograd::engine::evaluate_function: _FinishBackward", kMain, 100, 20)
      .Add("cpu_op", "_FinishBackward", kMain, 101, 18)
      .Add("cpu_op", "aten::clone", kMain, 105, 10)
      .Add("user_annotation", "gloo:all_to_all", 300, 122, 50)
      .Add("cpu_op", "autograd::engine::evaluate_function: ReluBackward0", kMain, 180, 20)
      .Add("cpu_op", "ReluBackward0", kMain, 181, 18)
      .Add("cpu_op", "aten::threshold_backward", kMain, 185, 10);
  EXPECT_EQ(LinesOf(Read(trace.Text())).at(2), "2.all_to_all ALL_TO_ALL BACKWARD 50 us <- t1 on INTER_NODE");
}

TEST(KinetoTest, ArrowsTellTheBackwardPassWhereNumbersDoNot) {
  KinetoTrace trace;
  trace.Operator("aten::mm", 10, 10)
      .Kernel("gemm", kMain, 12, 20, 5)
      .Operator("mm_way_back", 50, 10)
      .Kernel("gemm", kMain, 52, 60, 5);
  trace.Node("NoneBackward0", 90, 5).Kernel("x", kAutograd, 92, 95, 1);
  std::string text = trace.Text();
  text.insert(text.rfind("\n]}"), R"(,
{"ph": "s", "id": 5, "pid": 42, "tid": 100, "ts": 10, "cat": "fwdbwd", "name": "fwdbwd"},
{"ph": "f", "id": 5, "pid": 42, "tid": 100, "ts": 50, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"})");
  EXPECT_THAT(LinesOf(Read(text)).at(1), HasSubstr("1.mm_way_back MATMUL BACKWARD"));
}

TEST(KinetoTest, RecomputedOperatorsStandForThemselves) {
  KinetoTrace trace;
  trace.Operator("aten::relu", 10, 10).Kernel("relu", kMain, 12, 20, 5);
  trace.Node("CheckpointFunctionBackward", 100, 200)
      .Backward("aten::mm", 110, 10, R"("Input Dims": [[4, 8], [8, 16]])")
      .Kernel("gemm", kAutograd, 112, 120, 5)
      .Backward("aten::relu", 130, 10)
      .Kernel("relu", kAutograd, 132, 140, 6)
      .Node("ReluBackward0", 150, 50, R"("Sequence number": 1, "Fwd thread id": 2)")
      .Backward("aten::threshold_backward", 160, 10)
      .Kernel("threshold", kAutograd, 162, 170, 7);
  EXPECT_THAT(LinesOf(Read(trace.Text())),
              ElementsAre("0.relu ELEMENTWISE FORWARD 5 us <- ", "1.mm MATMUL BACKWARD 5 us <- t0",
                          "2.relu ELEMENTWISE BACKWARD 6 us <- t1", "3.ReluBackward0 ELEMENTWISE BACKWARD 7 us <- t2"));
}

TEST(KinetoTest, TheLongestUnknownNamesAreToldAndTheRestCounted) {
  KinetoTrace trace;
  trace.Node("ReluBackward0", 1, 5).Kernel("relu", kAutograd, 3, 5, 1);
  for (int i = 0; i < 12; ++i) {
    trace.Operator(StrCat("lib::op", i), 10 + 10 * i, 5).Kernel("k", kMain, 12 + 10 * i, 13 + 10 * i, 1 + 0.5 * i);
  }
  const auto import = Read(trace.Text());
  ASSERT_TRUE(import.ok());
  const auto& notes = import->notes;
  ASSERT_GE(notes.size(), 11U);
  EXPECT_EQ(notes.back(), "and 2 more names that are OTHER");
  // Three lines an operator behind the first four, and two before all.
  EXPECT_EQ(notes[notes.size() - 11], "line 40: lib::op11 is OTHER (1 instruction, 0.0065 ms)");
  EXPECT_THAT(notes, Contains(HasSubstr("no all-to-all in the step")));
  EXPECT_THAT(notes, Contains(HasSubstr("no shapes in the trace")));
  EXPECT_THAT(notes, Contains(HasSubstr("no ProfilerStep in the trace")));
}

TEST(KinetoTest, NeighboursArePutTogetherWhereTheyAreTooMany) {
  KinetoTrace trace;
  trace.Node("ReluBackward0", 1, 5).Kernel("relu", kAutograd, 3, 5, 1);
  for (int i = 0; i < kMostInstructions; ++i) {
    trace.Operator(i % 2 == 0 ? "aten::relu" : "aten::tanh", 10 + 10 * i, 5)
        .Kernel("k", kMain, 12 + 10 * i, 13 + 10 * i, 1);
  }
  const auto import = Read(trace.Text());
  EXPECT_THAT(LinesOf(import), ElementsAre("0.ReluBackward0 ELEMENTWISE BACKWARD 1 us <- ",
                                           "1.relu ELEMENTWISE BACKWARD 10000 us <- t0"));
  EXPECT_THAT(import->notes, Contains(HasSubstr("neighbours are put together")));
}

TEST(KinetoTest, AStepOfTooManyInstructionsIsRefused) {
  // Each all-to-all stands between two operators, so that none can be put together.
  KinetoTrace trace;
  trace.Node("ReluBackward0", 1, 5).Kernel("relu", kAutograd, 3, 5, 1);
  for (int i = 0; i < kMostInstructions; i += 2) {
    trace.Operator("aten::relu", 10 + 10 * i, 5).Kernel("k", kMain, 12 + 10 * i, 13 + 10 * i, 1);
    trace.Operator("c10d::x", 20 + 10 * i, 5).Kernel("ncclDevKernel_AllReduce", kMain, 22 + 10 * i, 23 + 10 * i, 1, 20);
  }
  const auto import = Read(trace.Text());
  ASSERT_FALSE(import.ok());
  EXPECT_THAT(import.status().message(), ::testing::StartsWith("found a step of more than 10000 instructions"));
}

TEST(KinetoTest, ManyCollectivesThatNothingWaitsForDoNotFillTheMemory) {
  KinetoTrace trace;
  trace.Node("ReluBackward0", 1, 5).Kernel("relu", kAutograd, 3, 5, 1);
  for (int i = 0; i < 5000; ++i) {
    trace.Kernel("ncclDevKernel_AllReduce", kMain, 22 + 10 * i, 23 + 10 * i, 1, 20);
  }
  trace.Operator("aten::relu", 60000, 5);
  // Each may read all before it, 12.5 million in all.
  const auto import = Read(trace.Text());
  ASSERT_FALSE(import.ok());
  EXPECT_THAT(import.status().message(), HasSubstr("or 200000 tensors"));
}

TEST(KinetoRulesTest, NamesOfOperatorsNodesAndKernels) {
  using kineto::OpOfKernel;
  using kineto::OpOfOperator;
  using enum InstructionOp;
  EXPECT_EQ(OpOfOperator("aten::addmm"), kMatmul);
  EXPECT_EQ(OpOfOperator("AddmmBackward0"), kMatmul);
  EXPECT_EQ(OpOfOperator("aten::_scaled_dot_product_flash_attention_backward"), kAttention);
  EXPECT_EQ(OpOfOperator("FusedAttnFuncBackward"), kAttention);
  EXPECT_EQ(OpOfOperator("_LayerNormLinear"), kMatmul);
  EXPECT_EQ(OpOfOperator("_GroupedLinearBackward"), kExpert);
  EXPECT_EQ(OpOfOperator("aten::_grouped_mm"), kExpert);
  EXPECT_EQ(OpOfOperator("NativeLayerNormBackward0"), kLayerNorm);
  EXPECT_EQ(OpOfOperator("aten::_log_softmax"), kSoftmax);
  EXPECT_EQ(OpOfOperator("_moe_permute_mask_map"), kDispatch);
  EXPECT_EQ(OpOfOperator("_moe_unpermute_mask_mapBackward"), kCombine);
  EXPECT_EQ(OpOfOperator("aten::topk"), kGate);
  // A view, for all its name.
  EXPECT_EQ(OpOfOperator("aten::permute"), std::nullopt);
  EXPECT_EQ(OpOfOperator("mylib::thing"), std::nullopt);
  EXPECT_EQ(OpOfKernel("void flash::flash_fwd_kernel<x>(y)"), kAttention);
  EXPECT_EQ(OpOfKernel("ampere_bf16_s16816gemm_bf16_128x128"), kMatmul);
  EXPECT_EQ(OpOfKernel("triton_poi_fused_add_0"), kElementwise);
  EXPECT_EQ(OpOfKernel("triton_red_fused_sum_0"), kOther);
  EXPECT_EQ(OpOfKernel("mystery"), std::nullopt);
  EXPECT_EQ(kineto::OpOfAnnotation("model.layers.3.router"), kGate);
  EXPECT_EQ(kineto::OpOfAnnotation("routers of all layers"), std::nullopt);
}

TEST(KinetoRulesTest, BytesOfElements) {
  EXPECT_EQ(kineto::ElementBytes("c10::BFloat16"), 2);
  EXPECT_EQ(kineto::ElementBytes("Float8_e4m3fn"), 1);
  EXPECT_EQ(kineto::ElementBytes("float"), 4);
  EXPECT_EQ(kineto::ElementBytes("long int"), 8);
  EXPECT_EQ(kineto::ElementBytes("Complex"), 0);
}

}  // namespace
}  // namespace moeplan
