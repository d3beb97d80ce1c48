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

}  // namespace moeplan::client::error
