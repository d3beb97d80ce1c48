#include "executor/host/gloo_mesh.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace moeplan::executor {
namespace {

using std::chrono::seconds;

Deadline In(seconds time) { return std::chrono::steady_clock::now() + time; }

// Two ranks of this process, connected.
std::array<std::unique_ptr<Mesh>, 2> TwoMeshes() {
  std::vector<std::unique_ptr<GlooJoin>> joins;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    auto join = StartGlooJoin(rank, 2, "127.0.0.1");
    EXPECT_TRUE(join.ok()) << join.status().message();
    addresses.push_back((*join)->address());
    joins.push_back(*std::move(join));
  }
  auto second = std::async(std::launch::async, [&] { return *std::move(*joins[1]).Connect(addresses); });
  auto first = *std::move(*joins[0]).Connect(addresses);
  return {std::move(first), second.get()};
}

Status WaitFor(StatusOr<std::unique_ptr<PendingTransfer>> transfer, Deadline deadline) {
  if (!transfer.ok()) return transfer.status();
  return (*transfer)->Wait(deadline);
}

TEST(GlooMeshTest, WhatCannotStartBecauseThePeerHasGoneFails) {
  auto [here, there] = TwoMeshes();
  there.reset();
  std::array<std::byte, 8> bytes{};
  // The first learns of it; the others find the connection closed.
  for (uint64_t tag = 0; tag < 3; ++tag) {
    EXPECT_EQ(WaitFor(here->Receive(1, tag, bytes), In(seconds(20))).code(), StatusCode::kPeerLost) << "tag " << tag;
    EXPECT_EQ(WaitFor(here->Send(1, tag, bytes), In(seconds(20))).code(), StatusCode::kPeerLost) << "tag " << tag;
    EXPECT_EQ(WaitFor(here->ReceiveSignal(1, bytes), In(seconds(20))).code(), StatusCode::kPeerLost) << "tag " << tag;
  }
}

TEST(GlooMeshTest, ADeadlineThatHasPassedEndsTheWait) {
  for (int i = 0; i < 20; ++i) {
    auto [here, there] = TwoMeshes();
    std::array<std::byte, 8> bytes{}, more{};
    auto first = here->Receive(1, 1, bytes), second = here->Receive(1, 2, more);
    EXPECT_EQ(WaitFor(std::move(first), In(seconds(-1))).code(), StatusCode::kDeadlineExceeded);
    EXPECT_FALSE(WaitFor(std::move(second), In(seconds(-1))).ok());
  }
}

}  // namespace
}  // namespace moeplan::executor
