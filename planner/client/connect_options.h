// How a planner is reached and who asks.
#pragma once

#include <string>

namespace moeplan::client {

struct ConnectOptions {
  std::string address;    // "HOST:PORT".
  double deadline_s = 5;  // Of connecting, and then of each call. Finite, above 0.

  // PEM files. The authorities that may vouch for the planner; empty: no encryption. The other two go together: who
  // asks, where the planner wants certificates.
  std::string tls_authority, tls_certificate, tls_key;
  std::string token;      // Empty: none. Travels without encryption to this machine alone.
  bool insecure = false;  // Or to others, too.
};

}  // namespace moeplan::client
