#include "planner/service/access/caller.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "models/text.h"

namespace moeplan::service {
namespace {

constexpr std::string_view kToken = "token ";
constexpr std::string_view kCertificate = "certificate ";
constexpr std::string_view kBetween = ", certificate ";

std::string Written(BIO* memory) {
  const char* text = nullptr;
  const long bytes = BIO_get_mem_data(memory, &text);
  return bytes > 0 ? std::string(text, static_cast<size_t>(bytes)) : std::string();
}

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

// Escapes what could be taken for the border between two parts (RFC 2253).
std::string NameText(const X509* certificate) {
  const Bio memory(BIO_new(BIO_s_mem()), BIO_free);
  if (!memory || X509_NAME_print_ex(memory.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) < 0)
    return "";
  return Written(memory.get());
}

// The names that the certificate is for, each with its length, so that no name can be taken for two.
std::string NamesText(const X509* certificate) {
  std::string names;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; all && i < sk_GENERAL_NAME_num(all.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_URI && name->type != GEN_EMAIL) continue;
    const ASN1_STRING* const text = name->d.ia5;
    const std::string_view letters(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                                   static_cast<size_t>(ASN1_STRING_length(text)));
    names += StrCat(" ", letters.size(), ":", letters);
  }
  return names;
}

}  // namespace

std::string CallerText(std::string_view token_name, std::string_view certificate_subject) {
  if (certificate_subject.empty()) return token_name.empty() ? "" : StrCat(kToken, token_name);
  if (token_name.empty()) return StrCat(kCertificate, certificate_subject);
  return StrCat(kToken, token_name, kBetween, certificate_subject);
}

std::optional<std::string> TokenNameOf(std::string_view caller) {
  if (!caller.starts_with(kToken)) return std::nullopt;
  caller.remove_prefix(kToken.size());
  return std::string(caller.substr(0, caller.find(kBetween)));
}

std::string SubjectOf(const X509* certificate) {
  return certificate == nullptr ? "" : NameText(certificate) + NamesText(certificate);
}

std::string SubjectOfPem(std::string_view pem) {
  const Bio memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  if (!memory) return "";
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr), X509_free);
  return SubjectOf(certificate.get());
}

}  // namespace moeplan::service
