#include "planner/service/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>

namespace moeplan::service {
namespace {

TEST(DescriptorsTest, ConnectionsLeaveRoomForHttpAndTheStore) {
  EXPECT_EQ(GrpcConnectionsWithin(4096 + 640, 4096), 4096);
  EXPECT_EQ(GrpcConnectionsWithin(4096 + 639, 4096), 4095);
  EXPECT_EQ(GrpcConnectionsWithin(1024, 4096), 384);
  EXPECT_EQ(GrpcConnectionsWithin(1024, 2), 2);
  EXPECT_EQ(GrpcConnectionsWithin(640, 4096), 1);
  EXPECT_EQ(GrpcConnectionsWithin(0, 4096), 1);
  EXPECT_EQ(GrpcConnectionsWithin(std::numeric_limits<std::uint64_t>::max(), 1'000'000), 1'000'000);
}

TEST(DescriptorsTest, TheLimitIsRaisedToWhatThisProcessMaySet) {
  rlimit before = {}, after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit lower = {.rlim_cur = before.rlim_max / 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  const std::uint64_t raised = RaiseDescriptorLimit();
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(raised, before.rlim_max);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

}  // namespace
}  // namespace moeplan::service
