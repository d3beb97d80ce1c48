// Runs a function in a forked child and hands back the numbers that it gives: a process has one SimGrid engine.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <vector>

namespace moeplan::testing {

// Failed checks of gtest in the child fail the test here, too.
inline std::vector<double> InChild(const std::function<std::vector<double>()>& body) {
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) return {};
  const bool failed_before = ::testing::Test::HasFailure();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<double> numbers = body();
    const auto bytes = static_cast<ssize_t>(numbers.size() * sizeof(double));
    const bool written = write(pipe_fds[1], numbers.data(), bytes) == bytes;
    _exit(written && (failed_before || !::testing::Test::HasFailure()) ? 0 : 1);
  }
  close(pipe_fds[1]);
  std::vector<double> numbers;
  for (double number = 0; read(pipe_fds[0], &number, sizeof number) == sizeof number;) numbers.push_back(number);
  close(pipe_fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child ended with status " << status;
  return numbers;
}

}  // namespace moeplan::testing
