// Messages over a pair of byte streams: four bytes of length, then the bytes.
#pragma once

#include <chrono>
#include <string>

#include "models/status.h"

namespace moeplan::executor {

inline constexpr size_t kMaxFrameBytes = size_t{256} << 20;
// Within this time the rest of a frame follows its first byte.
inline constexpr std::chrono::seconds kWholeFrame{5};

// Writes all of `frame`. kPeerLost when the other end is closed.
Status WriteFrame(int fd, const std::string& frame);

// The next message; kPeerLost at the end of the stream, kDeadlineExceeded when it is not whole in time.
StatusOr<std::string> ReadFrame(int fd, std::chrono::steady_clock::time_point deadline);

}  // namespace moeplan::executor
