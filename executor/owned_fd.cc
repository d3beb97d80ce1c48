#include "executor/owned_fd.h"

#include <unistd.h>

#include <utility>

namespace moeplan::executor {

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}
OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}
int OwnedFd::release() { return std::exchange(fd_, -1); }

}  // namespace moeplan::executor
