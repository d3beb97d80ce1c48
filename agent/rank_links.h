// This is how a Fleet reaches ranks that this process launched.
#pragma once

#include <memory>

#include "executor/launch/launch.h"
#include "proto/rank_links.h"

namespace moeplan::agent {

// Sends and receives frames over the byte streams of a launch. One thread.
std::unique_ptr<RankLinks> LinksOf(std::unique_ptr<executor::Launch> launch);

}  // namespace moeplan::agent
