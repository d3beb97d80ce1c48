// The network of named hardware from messages. Pure.
#pragma once

#include <string_view>

#include "models/hardware/network.h"
#include "models/status.h"
#include "moeplan/v1/cluster.pb.h"

namespace moeplan {

// Checked by ValidateNetwork; `path` names the message in errors, and may be empty.
StatusOr<Network> NetworkFromProto(const v1::Network& message, std::string_view path);

}  // namespace moeplan
