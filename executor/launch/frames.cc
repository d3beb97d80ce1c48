#include "executor/launch/frames.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "models/text.h"

namespace moeplan::executor {
namespace {

using Clock = std::chrono::steady_clock;

Status AwaitReadable(int fd, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) return DeadlineExceeded("no message in time");
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(std::min<int64_t>(left + 1, 1 << 30)));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return InternalError(StrCat("poll: ", std::strerror(errno)));
  }
}

Status ReadExactly(int fd, char* data, size_t bytes, Clock::time_point deadline) {
  while (bytes > 0) {
    RETURN_IF_ERROR(AwaitReadable(fd, deadline));
    const ssize_t count = read(fd, data, bytes);
    if (count == 0) return PeerLost("the other end closed its stream");
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return PeerLost(StrCat("read: ", std::strerror(errno)));
    data += count;
    bytes -= static_cast<size_t>(count);
  }
  return OkStatus();
}

}  // namespace

Status WriteFrame(int fd, const std::string& frame) {
  const auto length = static_cast<uint32_t>(frame.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += frame;
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t count = write(fd, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return PeerLost(StrCat("write: ", std::strerror(errno)));
    written += static_cast<size_t>(count);
  }
  return OkStatus();
}

StatusOr<std::string> ReadFrame(int fd, Clock::time_point deadline) {
  uint32_t length = 0;
  RETURN_IF_ERROR(ReadExactly(fd, reinterpret_cast<char*>(&length), sizeof length, deadline));
  if (length > kMaxFrameBytes)
    return InternalError(StrCat("a message of ", length, " bytes, expected at most ", kMaxFrameBytes));
  std::string frame(length, '\0');
  RETURN_IF_ERROR(ReadExactly(fd, frame.data(), length, deadline));
  return frame;
}

}  // namespace moeplan::executor
