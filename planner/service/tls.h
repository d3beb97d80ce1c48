// The server's certificate and key, and the authority that its clients' certificates must come from.
#pragma once

#include <filesystem>
#include <string>

#include "models/status.h"

namespace moeplan::service {

// PEM files. Neither: no encryption.
struct TlsFiles {
  std::filesystem::path certificate;       // The server's, with what leads to its root.
  std::filesystem::path key;               // Its private key, without a password.
  std::filesystem::path client_authority;  // Certificates of authorities; empty: clients need no certificate.

  bool any() const { return !certificate.empty() || !key.empty() || !client_authority.empty(); }
};

// The same as texts.
struct Tls {
  std::string certificate, key, client_authority;
};

// kInvalidInput: a file is missing from the set, cannot be read, is no PEM, or key and certificate do not belong
// together; the message names the option.
StatusOr<Tls> ReadTls(const TlsFiles& files);

}  // namespace moeplan::service
