// Who calls, as far as a planner can tell: by the name of the token, the subject of the client's certificate, or both.
#pragma once

#include <openssl/x509.h>

#include <optional>
#include <string>
#include <string_view>

namespace moeplan::service {

// "token NAME", "certificate SUBJECT" or "token NAME, certificate SUBJECT"; empty: nobody is told from anybody. The
// same for a token that was replaced by one of its name, and for a certificate that was renewed for its subject.
std::string CallerText(std::string_view token_name, std::string_view certificate_subject);

// The name of the token in a CallerText; absent: it has none.
std::optional<std::string> TokenNameOf(std::string_view caller);

// The subject of a certificate and the names that it is for, as one line; empty for null, or for what is no PEM.
std::string SubjectOf(const X509* certificate);
std::string SubjectOfPem(std::string_view pem);

}  // namespace moeplan::service
