// Serves the database it is given until it is killed, and says on standard output where.
#include <unistd.h>

#include <cstdio>

#include "planner/service/server.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto server =
      moeplan::service::Server::Start({.store = argv[1], .grpc_address = "127.0.0.1:0", .http_address = "127.0.0.1:0"});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().message().c_str());
    return 3;
  }
  std::printf("%s\n", (*server)->grpc_address().c_str());
  std::fflush(stdout);
  for (;;) pause();
}
