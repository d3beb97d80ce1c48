#include "planner/service/peer.h"

#include <gtest/gtest.h>

#include <string>

namespace moeplan::service {
namespace {

TEST(PeerTest, AFrontOnThisMachineSaysWhoseCallItPassesOn) {
  EXPECT_EQ(PeerName("ipv4:127.0.0.1:4711", "10.1.2.3"), "10.1.2.3 through ipv4:127.0.0.1:4711");
  EXPECT_EQ(PeerName("ipv6:%5B::1%5D:4711", "2001:db8::1"), "2001:db8::1 through ipv6:%5B::1%5D:4711");
  EXPECT_EQ(PeerName("127.0.0.1:4711", "10.1.2.3"), "10.1.2.3 through 127.0.0.1:4711");
  EXPECT_EQ(PeerName("::1:4711", "::ffff:10.1.2.3"), "::ffff:10.1.2.3 through ::1:4711");
}

TEST(PeerTest, WhatOthersSayOfThemselvesIsIgnored) {
  EXPECT_EQ(PeerName("ipv4:10.0.0.9:4711", "10.1.2.3"), "ipv4:10.0.0.9:4711");
  EXPECT_EQ(PeerName("ipv4:12.7.0.1:4711", "10.1.2.3"), "ipv4:12.7.0.1:4711");
  EXPECT_EQ(PeerName("127.0.0.1:4711", ""), "127.0.0.1:4711");
  // No address: it would be somebody's line in the log.
  EXPECT_EQ(PeerName("127.0.0.1:4711", "10.1.2.3, 10.1.2.4"), "127.0.0.1:4711");
  EXPECT_EQ(PeerName("127.0.0.1:4711", "a\nb"), "127.0.0.1:4711");
  EXPECT_EQ(PeerName("127.0.0.1:4711", std::string(46, '1')), "127.0.0.1:4711");
}

}  // namespace
}  // namespace moeplan::service
