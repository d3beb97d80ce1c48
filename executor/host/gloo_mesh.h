// A mesh between processes: Gloo over TCP.
//
// Joining takes two steps, because everyone must know everyone's addresses: Start gives an address to hand to all ranks
// by whatever means, printable text without spaces; Connect takes those of all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/host/mesh.h"

namespace moeplan::executor {

class GlooJoin {
 public:
  virtual ~GlooJoin() = default;
  virtual const std::string& address() const = 0;
  // addresses[i] is what rank i's Start gave. Collective; waits 30 s for each peer at most.
  virtual StatusOr<std::unique_ptr<Mesh>> Connect(const std::vector<std::string>& addresses) && = 0;
};

// Listens on `host_address` (an address of this machine, such as "127.0.0.1"); without Gloo in the build,
// kUnimplemented.
StatusOr<std::unique_ptr<GlooJoin>> StartGlooJoin(int rank, int size, const std::string& host_address);

}  // namespace moeplan::executor
