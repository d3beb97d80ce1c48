#include "planner/service/tls.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "models/text.h"

namespace moeplan::service {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr const char kCertificate[] = "--tls-cert", kKey[] = "--tls-key", kClientAuthority[] = "--tls-client-ca";

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

Status Wrong(const char* option, const std::filesystem::path& path, std::string_view found, std::string_view expected) {
  return InvalidInput(StrCat(option, ": ", path.string(), ": found ", found, ", expected ", expected));
}

StatusOr<std::string> ReadPem(const char* option, const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  // A folder opens as a file does, and is an error of the read.
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad() || text.empty()) {
    return Wrong(option, path, errno != 0 ? std::strerror(errno) : "an empty file", "a PEM file that can be read");
  }
  if (text.size() > kMaxBytes) return Wrong(option, path, "more than 1 MiB", "a PEM file of less");
  return text;
}

Bio Reader(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// A key with a password is none: asking for it would hold up the start.
int NoPassword(char*, int, int, void*) { return -1; }

StatusOr<Certificate> CertificateOf(const char* option, const std::filesystem::path& path, const std::string& text) {
  Certificate certificate(PEM_read_bio_X509(Reader(text).get(), nullptr, NoPassword, nullptr));
  if (!certificate) return Wrong(option, path, "no certificate", "a certificate in PEM");
  return certificate;
}

Status CheckPair(const TlsFiles& files, const Tls& tls) {
  ASSIGN_OR_RETURN(const Certificate certificate, CertificateOf(kCertificate, files.certificate, tls.certificate));
  const Key key(PEM_read_bio_PrivateKey(Reader(tls.key).get(), nullptr, NoPassword, nullptr));
  if (!key) return Wrong(kKey, files.key, "no key", "a private key in PEM without a password");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Wrong(kKey, files.key, "the key of another certificate", StrCat("the key of ", files.certificate.string()));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Tls> ReadTls(const TlsFiles& files) {
  Tls tls;
  if (!files.any()) return tls;
  if (files.certificate.empty()) return InvalidInput(StrCat(kCertificate, ": found none, expected one beside ", kKey));
  if (files.key.empty()) return InvalidInput(StrCat(kKey, ": found none, expected one beside ", kCertificate));
  ASSIGN_OR_RETURN(tls.certificate, ReadPem(kCertificate, files.certificate));
  ASSIGN_OR_RETURN(tls.key, ReadPem(kKey, files.key));
  RETURN_IF_ERROR(CheckPair(files, tls));
  if (files.client_authority.empty()) return tls;
  ASSIGN_OR_RETURN(tls.client_authority, ReadPem(kClientAuthority, files.client_authority));
  RETURN_IF_ERROR(CertificateOf(kClientAuthority, files.client_authority, tls.client_authority).status());
  return tls;
}

}  // namespace moeplan::service
