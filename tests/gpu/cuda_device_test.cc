// What a CUDA device promises beyond what every device does.
#include "executor/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "executor/host/host_stream.h"
#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

using ::testing::HasSubstr;

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Stream> MakeStream() { return device_->MakeStream("tested", StreamPriority::kNormal); }
  void Work(Stream& stream, std::function<void()> work) {
    HostStream::Of(stream).Enqueue([work = std::move(work)] {
      work();
      return OkStatus();
    });
  }
  void ExpectOk() {
    const Status status = device_->Synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
  }

  const std::unique_ptr<CudaDevice> device_ = *MakeCudaDevice({});
};

std::vector<std::byte> Pattern(size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  return pattern;
}

TEST_F(CudaDeviceTest, MemoryIsAlignedAndZero) {
  const auto stream = MakeStream();
  for (const size_t bytes : {0, 1, 100, 70000}) {
    const DeviceMemory memory = *device_->Allocate(bytes);
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u);
    std::vector<std::byte> read(bytes, std::byte{1});
    device_->Copy(read.data(), memory.data(), bytes, *stream);
    ExpectOk();
    EXPECT_EQ(read, std::vector<std::byte>(bytes));
  }
}

TEST_F(CudaDeviceTest, CopiesGoAnyWayAndInTheOrderOfTheirStream) {
  // More than one piece of pinned memory, and not a whole number of them.
  const size_t bytes = (size_t{9} << 20) + 12345;
  const auto stream = MakeStream();
  const DeviceMemory first = *device_->Allocate(bytes), second = *device_->Allocate(bytes);
  std::vector<std::byte> from(bytes), to(bytes), there(bytes);
  const std::vector<std::byte> pattern = Pattern(bytes);
  Work(*stream, [&] { from = pattern; });  // Only when the stream gets there.
  device_->Copy(first.data(), from.data(), bytes, *stream);
  device_->Copy(second.data(), first.data(), bytes, *stream);
  device_->Copy(to.data(), second.data(), bytes, *stream);
  device_->Copy(there.data(), to.data(), bytes, *stream);
  ExpectOk();
  EXPECT_TRUE(to == pattern);
  EXPECT_TRUE(there == pattern);
}

TEST_F(CudaDeviceTest, ARecordingCopiesWhatHostMemoryHoldsAtEachRun) {
  const auto stream = MakeStream(), other = MakeStream();
  const DeviceMemory memory = *device_->Allocate(sizeof(int));
  int from = 0, to = 0;
  const auto mark = device_->MakeEvent();
  const auto recording = device_->Capture([&] {
    device_->Copy(memory.data(), reinterpret_cast<std::byte*>(&from), sizeof from, *stream);
    device_->Record(*mark, *stream);
    device_->Wait(*other, *mark);
    device_->Copy(reinterpret_cast<std::byte*>(&to), memory.data(), sizeof to, *other);
  });
  for (from = 1; from < 5; ++from) {
    recording->Enqueue();
    ExpectOk();
    EXPECT_EQ(to, from);
  }
  EXPECT_EQ(device_->replays(), 4u);  // A graph, not queued anew.
}

TEST_F(CudaDeviceTest, TimesAreThoseOfTheHostsClockInRecordingsToo) {
  constexpr double kFloatS = 1e-6;
  const auto stream = MakeStream();
  const auto before = device_->MakeEvent(), after = device_->MakeEvent();
  const auto body = [&] {
    device_->Record(*before, *stream);
    Work(*stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
    device_->Record(*after, *stream);
  };
  EXPECT_EQ(device_->TimeS(*before), 0);
  const auto recording = device_->Capture(body);
  for (int i = 0; i < 4; ++i) {
    if (i == 2) std::this_thread::sleep_for(std::chrono::milliseconds(600));  // Another anchor is due.
    const double off_s = device_->clock_uncertainty_s() + kFloatS, begin_s = NowS();
    i % 2 == 0 ? recording->Enqueue() : body();
    ExpectOk();
    EXPECT_GT(device_->TimeS(*before), begin_s - off_s);
    EXPECT_GE(device_->TimeS(*after) - device_->TimeS(*before), 3e-3 - kFloatS);
    EXPECT_LT(device_->TimeS(*after), NowS() + off_s);
    EXPECT_LT(off_s, 0.1);
  }
}

TEST_F(CudaDeviceTest, WhatNeedsTheHostIsQueuedAnewAtEachRun) {
  const auto stream = MakeStream();
  int queued = 0, ran = 0;
  const auto recording = device_->Capture([&] {
    ++queued;
    if (device_->capturing()) return device_->RefuseCapture("sizes that the host has to know");
    Work(*stream, [&] { ++ran; });
    EXPECT_TRUE(device_->Await(*stream).ok());
  });
  EXPECT_EQ(queued, 1);
  for (int i = 0; i < 3; ++i) recording->Enqueue();
  ExpectOk();
  EXPECT_EQ(queued, 4);
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(device_->replays(), 0u);
}

TEST_F(CudaDeviceTest, WhatRunsOutsideARecordingStaysBeforeAndBehindIt) {
  const auto stream = MakeStream(), other = MakeStream();
  std::vector<int> order;
  const auto add = [&](int number) { Work(*stream, [&order, number] { order.push_back(number); }); };
  const auto recording = device_->Capture([&] {
    add(2);
    Work(*other, [] {});
  });
  for (int i = 0; i < 3; ++i) {
    add(1);
    recording->Enqueue();
    add(3);
  }
  ExpectOk();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
  EXPECT_EQ(device_->replays(), 3u);
}

TEST_F(CudaDeviceTest, AwaitWaitsForItsStreamAndLooksMeanwhile) {
  const auto stream = MakeStream();
  int looks = 0;
  auto watch = device_->Watch([&] { ++looks; });
  bool done = false;
  Work(*stream, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
  });
  EXPECT_TRUE(device_->Await(*stream).ok());
  EXPECT_TRUE(done);
  EXPECT_GE(looks, 2);
  watch = nullptr;
  looks = 0;
  ExpectOk();
  EXPECT_EQ(looks, 0);
}

TEST_F(CudaDeviceTest, TheFirstErrorStaysAndIsToldOnce) {
  const auto stream = MakeStream();
  std::vector<std::string> told;
  device_->OnFailure([&](const Status& why) { told.push_back(why.message()); });
  device_->Label(*stream, "dispatch");
  Report(*stream, InternalError("a kernel: bad launch"));
  device_->Fail(Cancelled("later"));
  bool ran = false;
  Work(*stream, [&] { ran = true; });
  EXPECT_EQ(device_->Synchronize(), InternalError("task dispatch: a kernel: bad launch"));
  EXPECT_FALSE(ran);
  EXPECT_EQ(told, std::vector<std::string>{"task dispatch: a kernel: bad launch"});
}

TEST_F(CudaDeviceTest, WhatIsUploadedIsThere) {
  const auto stream = MakeStream();
  const std::vector<std::byte> pattern = Pattern(1000);
  const DeviceMemory memory = *device_->Upload(pattern.data(), pattern.size());
  std::vector<std::byte> read(pattern.size());
  device_->Copy(read.data(), memory.data(), read.size(), *stream);
  ExpectOk();
  EXPECT_TRUE(read == pattern);
}

TEST(NoCardTest, ACardThatIsNotThereIsNamed) {
  const auto device = MakeCudaDevice({.card = 4711});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(device.status().message(), HasSubstr("expected card 4711"));
}

}  // namespace
}  // namespace moeplan::executor::cuda
