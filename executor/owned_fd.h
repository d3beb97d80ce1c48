// A descriptor closed with its owner.
#pragma once

namespace moeplan::executor {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();

  int get() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

}  // namespace moeplan::executor
