#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace moeplan::cli {

void ReserveStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // open takes the lowest number that is free, which is this one. The wrong direction keeps it unusable.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) std::abort();
  }
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status FlushOutput() {
  // A write that fails may leave nothing to flush: only the stream's error flag tells of it then.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return OkStatus();
  return Unavailable(
      "standard output cannot be written; check that its disk has room and that the reader of its pipe still runs");
}

}  // namespace moeplan::cli
