#include "planner/service/access/token.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

namespace moeplan::service {
namespace {

constexpr std::string_view kPrefix = "mpt_";
constexpr std::string_view kBase64Url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

StatusOr<std::string> NewToken() {
  std::array<uint8_t, 33> random =
      {};  // A multiple of three, so that nothing is left over; the last letter is dropped.
  if (RAND_bytes(random.data(), random.size()) != 1) return InternalError("the system gave no random numbers");
  std::string token(kPrefix);
  for (size_t i = 0; i < random.size(); i += 3) {
    const uint32_t bits = random[i] << 16 | random[i + 1] << 8 | random[i + 2];
    for (const int shift : {18, 12, 6, 0}) token.push_back(kBase64Url[bits >> shift & 63]);
  }
  token.pop_back();
  return token;
}

TokenDigest DigestOf(std::string_view token) {
  TokenDigest digest;
  SHA256(reinterpret_cast<const uint8_t*>(token.data()), token.size(), digest.data());
  return digest;
}

std::string HexDigestOf(std::string_view token) {
  std::string text;
  for (const uint8_t byte : DigestOf(token)) {
    for (const int shift : {4, 0}) text.push_back("0123456789abcdef"[byte >> shift & 15]);
  }
  return text;
}

}  // namespace moeplan::service
