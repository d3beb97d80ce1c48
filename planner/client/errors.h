// Every error of the client, worded once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan::client::error {

Status NoPlanner(const std::string& address, std::string_view detail);
Status TooSlow(const std::string& address, double deadline_s);
Status BadDeadline(double found);
Status TooLarge(size_t found_bytes);
Status BadPem(std::string_view option, const std::string& path);
Status HalfAnIdentity();
Status NoAuthority();
Status BadToken();
Status BareToken(const std::string& address);
Status NoMethod(std::string_view found, std::string_view methods);

}  // namespace moeplan::client::error
