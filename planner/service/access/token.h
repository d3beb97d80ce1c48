// Tokens: long random texts that say who calls. Whoever has one is its owner; the service keeps a digest alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan::service {

// A new token of 256 random bits, such as "mpt_" and 43 letters, digits, '-' and '_'.
StatusOr<std::string> NewToken();

using TokenDigest = std::array<uint8_t, 32>;
// SHA-256. A token has too many bits to be guessed, so no slow hash is needed.
TokenDigest DigestOf(std::string_view token);
// In hexadecimal, as the store keeps it.
std::string HexDigestOf(std::string_view token);

}  // namespace moeplan::service
