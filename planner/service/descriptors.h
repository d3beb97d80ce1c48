// How many file descriptors this process may have, and what that allows.
#pragma once

#include <cstdint>

namespace moeplan::service {

// Raises the limit to the highest that this process may set by itself (`ulimit -Hn`); the limit from then on.
std::uint64_t RaiseDescriptorLimit();

// How many of the gRPC connections asked for fit into that many descriptors, beside those of HTTP (512), the store and
// the rest. At least 1.
int GrpcConnectionsWithin(std::uint64_t descriptors, int asked);

}  // namespace moeplan::service
