// Where the server may listen, asked before anything is started.
#pragma once

#include <string_view>

#include "models/status.h"
#include "proto/host_port.h"

namespace moeplan::service {

// The address, if nobody listens there now. `trusted`: other machines may reach it. `field` begins every error.
StatusOr<HostPort> AddressToListenOn(std::string_view text, std::string_view field, bool trusted);

}  // namespace moeplan::service
