// What strangers send to make a server of HTTP/2 take memory or time without end, each within bounds.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/e2e/raw_http2.h"

namespace moeplan::testing {

// A head that does not end: it begins, and then the same frame comes again and again.
struct Attack {
  std::string name, beginning, again;
  int times = 0;
};

// Each sends at most `bytes`, those whose cost grows with the square of them an eighth of it.
std::vector<Attack> AttacksOnHeaders(size_t bytes);

enum class AttackEnd {
  kCutOff,    // The other end closed the connection before all was sent, or as soon as it was.
  kTaken,     // All was sent, and the connection is as open as before.
  kNotLetIn,  // There was no connection.
};
AttackEnd Play(const Attack& attack, int port, const TlsClient* tls = nullptr);

}  // namespace moeplan::testing
