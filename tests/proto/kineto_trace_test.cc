// Traces that are packed, broken, too long, or of other steps than the one that is wanted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "proto/kineto/import.h"
#include "proto/kineto/read_events.h"
#include "tests/proto/kineto_trace.h"

namespace moeplan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int kMain = KinetoTrace::kMainThread, kAutograd = KinetoTrace::kAutogradThread;

std::string ErrorOf(const std::string& text, const KinetoOptions& options = {}) {
  const auto import = ImportKineto(kineto::TraceInMemory(text), options);
  if (import.ok()) return "";
  EXPECT_EQ(import.status().code(), StatusCode::kInvalidInput);
  return import.status().message();
}

// A step of one forward and one backward operator, with an optimizer's where that is wanted.
void AddStep(KinetoTrace& trace, int number, double at_us, bool goes_back = true, bool optimizes = true) {
  trace.Step(number, at_us, 90).Operator("aten::relu", at_us + 10, 10 + number);
  if (goes_back) trace.Node("ReluBackward0", at_us + 40, 10).Backward("aten::threshold_backward", at_us + 42, 5);
  if (optimizes) trace.Add("user_annotation", "Optimizer.step#SGD.step", kMain, at_us + 60, 10);
}

std::string StepOf(const KinetoTrace& trace, std::optional<int> step = std::nullopt) {
  const auto read = kineto::ReadStep(kineto::TraceInMemory(trace.Text()), step);
  return read.ok() ? read->step : read.status().message();
}

TEST(KinetoTraceTest, TheLastWholeStepIsTaken) {
  KinetoTrace trace;
  AddStep(trace, 4, 0);
  AddStep(trace, 5, 100);
  EXPECT_EQ(StepOf(trace), "ProfilerStep#5");
  // One that broke off before its optimizer's step, and one of evaluation.
  AddStep(trace, 6, 200, true, false);
  AddStep(trace, 7, 300, false, false);
  EXPECT_EQ(StepOf(trace), "ProfilerStep#5");
  EXPECT_EQ(StepOf(trace, 6), "ProfilerStep#6");
  EXPECT_EQ(StepOf(trace, 9), "--step: found 9, expected one of the 4 steps from ProfilerStep#4 to ProfilerStep#7");
  KinetoTrace forward;
  AddStep(forward, 1, 0, false, false);
  EXPECT_EQ(StepOf(forward), "found 1 steps and no backward pass in any, expected a training step");
}

TEST(KinetoTraceTest, ATraceWithoutStepsIsOneWhereItMayBe) {
  KinetoTrace one;
  one.Operator("aten::relu", 0, 10)
      .Node("ReluBackward0", 20, 10)
      .Add("user_annotation", "Optimizer.step#SGD.step", kMain, 40, 5);
  const auto read = kineto::ReadStep(kineto::TraceInMemory(one.Text()), std::nullopt);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->start_us, 0);
  EXPECT_EQ(read->end_us, 45);
  EXPECT_THAT(read->events, SizeIs(4));
  EXPECT_THAT(StepOf(one, 1), HasSubstr("--step: found 1 but no ProfilerStep"));
  one.Add("user_annotation", "Optimizer.step#SGD.step", kMain, 60, 5);
  EXPECT_THAT(StepOf(one), HasSubstr("found no ProfilerStep and 2 optimizer steps, expected one training step; call "
                                     "profiler.step()"));
}

TEST(KinetoTraceTest, EventsOfOtherStepsAndProcessesAreLeftOut) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  AddStep(trace, 2, 100);
  trace.Add("cpu_op", "aten::relu", kMain, 120, 5, "", /*process=*/43);
  trace.Add("python_function", "train.py(3): step", kMain, 120, 5);
  const auto read = kineto::ReadStep(kineto::TraceInMemory(trace.Text()), 2);
  ASSERT_TRUE(read.ok());
  // The step, relu, evaluation, node, threshold and the optimizer.
  EXPECT_THAT(read->events, SizeIs(6));
  EXPECT_EQ(read->other_events, 1U);
  // The second step of AddStep begins at its sixth event behind two lines.
  EXPECT_EQ(read->events.front().line, 9U);
}

TEST(KinetoTraceTest, WhatIsNoTraceIsRefusedWithItsLine) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  const std::string text = trace.Text();
  EXPECT_EQ(ErrorOf(text), "");
  EXPECT_THAT(ErrorOf(text.substr(0, text.find("aten::threshold"))),
              StartsWith("line 7: found the end, expected the rest of a trace"));
  std::string broken = text;
  broken.replace(broken.find("\"ts\": 10"), 8, "\"ts\": x0");
  EXPECT_THAT(ErrorOf(broken), StartsWith("line 4: found no JSON at "));
  EXPECT_THAT(ErrorOf(""), HasSubstr("found the end"));
  EXPECT_THAT(ErrorOf("[{\"name\": \"aten::mm\"}]"), StartsWith("found a list, expected an object with traceEvents"));
  EXPECT_THAT(ErrorOf("{\"instructions\": []}"), StartsWith("found no traceEvents"));
  EXPECT_THAT(ErrorOf("{\"traceEvents\": []}"), StartsWith("found no operators, expected a profile with"));
  EXPECT_THAT(ErrorOf("{\"a\":\n" + std::string(100, '[')), StartsWith("line 2: found more than 64 nested values"));
  EXPECT_THAT(ErrorOf("{\"a\": \"" + std::string(17 << 20, 'a') + "\"}"),
              StartsWith("line 1: found a value of more than 16777216 bytes"));
}

TEST(KinetoTraceTest, StrangeMembersOfEventsAreNoEvents) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  std::string text = trace.Text();
  text.insert(text.rfind("\n]}"), R"(,
{"ph": "X", "cat": "Trace", "ts": 1, "dur": 2, "pid": "Spans", "tid": "PyTorch Profiler", "name": "x"},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 100, "ts": 20, "dur": -5},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 1.5, "ts": 20, "dur": 5},
{"ph": "M", "name": "thread_name", "ts": 4.5e-324, "pid": 42, "tid": 1e300, "args": {"name": null}},
"text", 7, null, [[1], {"args": {"Input Dims": [[[1, 2], "x"], [3, -1], [1, 2, 3, 4, 5, 6, 7, 8, 9], 5, true]}}])");
  const auto read = kineto::ReadStep(kineto::TraceInMemory(text), std::nullopt);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->events, SizeIs(6));
}

TEST(KinetoTraceTest, ShapesStandInTheirPlaces) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  trace.Operator(
      "aten::mm", 30, 5,
      R"("Input Dims": [[[1, 2], [3, 4]], [3, 4], [], [5, -1]], "Input type": ["TensorList", "float", "", "float"])");
  const auto read = kineto::ReadStep(kineto::TraceInMemory(trace.Text()), std::nullopt);
  ASSERT_TRUE(read.ok());
  const kineto::Event& event = read->events.back();
  ASSERT_THAT(event.shapes, SizeIs(4));
  EXPECT_THAT(event.shapes[0], SizeIs(0));  // A list of tensors.
  EXPECT_THAT(event.shapes[1], ::testing::ElementsAre(3, 4));
  EXPECT_THAT(event.shapes[3], SizeIs(0));
  EXPECT_EQ(event.elements.at(1), "float");
}

TEST(KinetoTraceTest, OptionsAreHeldAgainstTheTrace) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  std::string text = trace.Text();
  text.insert(1, R"("distributedInfo": {"backend": "gloo", "rank": 3, "world_size": 4}, )");
  EXPECT_EQ(ErrorOf(text, {.rank = 3}), "");
  EXPECT_EQ(ErrorOf(text, {.rank = 2}), "--rank: found 2, expected 3, which the trace's distributedInfo says");
  EXPECT_EQ(ErrorOf(text, {.max_parts = 65}), "--max-parts: found 65, expected a whole number of 1 to 64");
  EXPECT_THAT(ErrorOf(text, {.ranks_per_node = 0}), HasSubstr("--ranks-per-node: found 0"));
  EXPECT_THAT(ErrorOf(text, {.step = -1}), HasSubstr("--step: found -1"));
}

TEST(KinetoTraceTest, KernelsThatNothingLaunchedAreNoWork) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  trace.Add("kernel", "gemm", 7, 20, 5, R"("correlation": 77, "stream": 7)", 0);
  EXPECT_THAT(ErrorOf(trace.Text()), StartsWith("found 1 kernels and none that an operator of the step has launched"));
  // Beside one that was, it is told.
  trace.Kernel("relu", kMain, 15, 16, 3).Kernel("threshold", kAutograd, 43, 44, 3);
  const std::string text = trace.Text();
  const auto import = ImportKineto(kineto::TraceInMemory(text), {});
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_THAT(import->notes, Contains("1 kernel is left out that nothing in the step has launched"));
}

TEST(KinetoTraceTest, KernelsAreTiedByTheirOperatorsNumberWhereTheLaunchIsNotThere) {
  KinetoTrace trace;
  trace.Operator("aten::mm", 10, 10, R"("External id": 7)").Node("MmBackward0", 40, 10, R"("External id": 9)");
  trace.Add("kernel", "a", 7, 20, 5, R"("External id": 7, "stream": 7)", 0);
  trace.Add("kernel", "b", 7, 50, 5, R"("External id": 9, "stream": 7)", 0);
  // A library has launched one on a thread of its own.
  trace.Kernel("c", /*thread=*/300, 45, 61, 5, 7, R"("External id": 9)");
  const std::string text = trace.Text();
  const auto import = ImportKineto(kineto::TraceInMemory(text), {});
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_EQ(import->graph.instructions.at(0).id, "0.mm");
  EXPECT_EQ(import->graph.instructions.at(1).id, "1.MmBackward0");
  EXPECT_THAT(import->graph.instructions, SizeIs(2));
}

class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/moeplan-kineto-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string ErrorOfFile(const std::string& path) {
  const auto import = ImportKineto(kineto::TraceInFile(path), {});
  return import.ok() ? "" : import.status().message();
}

TEST(KinetoTraceTest, PackedFilesAreUnpacked) {
  const Folder folder;
  KinetoTrace trace;
  for (int i = 0; i < 2000; ++i) AddStep(trace, i, 100.0 * i);
  const std::string text = trace.Text();
  const std::string packed = folder / "a.json.gz", half = folder / "half.json.gz", plain = folder / "a.json";
  const gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ofstream(plain) << text;
  const auto from_packed = ImportKineto(kineto::TraceInFile(packed), {}),
             from_plain = ImportKineto(kineto::TraceInFile(plain), {});
  ASSERT_TRUE(from_packed.ok()) << from_packed.status().message();
  ASSERT_TRUE(from_plain.ok()) << from_plain.status().message();
  EXPECT_EQ(from_packed->graph, from_plain->graph);
  EXPECT_EQ(from_packed->notes, from_plain->notes);

  std::filesystem::copy_file(packed, half);
  std::filesystem::resize_file(half, std::filesystem::file_size(half) / 2);
  EXPECT_EQ(ErrorOfFile(half), "found a gzip file that breaks off, expected a whole trace");
}

TEST(KinetoTraceTest, FilesThatAreTooLongOrNotThereAreRefusedBeforeTheyAreRead) {
  const Folder folder;
  EXPECT_THAT(ErrorOfFile(folder / "absent"), StartsWith("found no readable file (No such file"));
  EXPECT_EQ(ErrorOfFile(folder / ""), "found a directory, expected a file");
  const std::string large = folder / "large.json.gz";
  std::ofstream(large).put('x');
  std::filesystem::resize_file(large, kineto::kMostTraceBytes + 1);  // A file of holes.
  EXPECT_THAT(ErrorOfFile(large),
              StartsWith("found more than 4294967296 bytes, expected at most that many: trace fewer"));
}

// Gives one byte at a time.
class SlowBytes : public kineto::TraceBytes {
 public:
  explicit SlowBytes(std::string text) : text_(std::move(text)) {}
  StatusOr<size_t> Read(std::span<char> block) override {
    if (at_ == text_.size()) return size_t{0};
    block.front() = text_[at_++];
    return size_t{1};
  }

 private:
  std::string text_;
  size_t at_ = 0;
};

TEST(KinetoTraceTest, BlocksMayEndAnywhere) {
  KinetoTrace trace;
  AddStep(trace, 1, 0);
  AddStep(trace, 2, 100);
  const std::string text = trace.Text();
  const auto slow = [&]() -> StatusOr<std::unique_ptr<kineto::TraceBytes>> {
    return std::make_unique<SlowBytes>(text);
  };
  const auto one = kineto::ReadStep(slow, std::nullopt),
             other = kineto::ReadStep(kineto::TraceInMemory(text), std::nullopt);
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_EQ(one->events.size(), other->events.size());
  for (size_t i = 0; i < one->events.size(); ++i) {
    EXPECT_EQ(one->events[i].name, other->events[i].name);
    EXPECT_EQ(one->events[i].line, other->events[i].line);
    EXPECT_EQ(one->events[i].start_us, other->events[i].start_us);
  }
}

}  // namespace
}  // namespace moeplan
