// The id by which a call is found in logs, the caller's own or a new one.
#pragma once

#include <string>
#include <string_view>

namespace moeplan::service {

inline constexpr char kRequestIdHeader[] = "x-request-id";

// `offered` if it is 1 to 128 printable ASCII characters, else a new one.
std::string RequestId(std::string_view offered);

}  // namespace moeplan::service
