// Collectives made of point-to-point messages, for every host transport.
//
// Each operation posts all its receives, tells the senders so, and only then sends: a receiver's notice never queues
// behind its own outgoing data, so links stay full-duplex (design.md §7).
#pragma once

#include <memory>

#include "executor/communicator.h"
#include "executor/host/mesh.h"

namespace moeplan::executor {

// Operations on HostStreams; each must finish within `deadline_s` seconds.
std::unique_ptr<Communicator> MakeMeshCommunicator(std::unique_ptr<Mesh> mesh, double deadline_s);

}  // namespace moeplan::executor
