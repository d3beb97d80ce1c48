#include "tests/e2e/certificates.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "models/text.h"

namespace moeplan::testing {
namespace {

constexpr const char* kNewKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

void Run(const TemporaryFolder& folder, const std::string& command) {
  const std::string log = folder / "openssl.log";
  ASSERT_EQ(std::system(StrCat(command, " 2> ", log).c_str()), 0) << command << '\n' << ReadFile(log);
}

}  // namespace

void MakeAuthority(const TemporaryFolder& folder, const std::string& name) {
  Run(folder, StrCat("openssl req -x509 ", kNewKey, " -days 2 -subj /CN=", name, " -keyout ", folder / (name + ".key"),
                     " -out ", folder / (name + ".crt")));
}

void MakeCertificate(const TemporaryFolder& folder, const std::string& name, const std::string& authority) {
  const std::string names = folder.Write("names", "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
  const std::string request = folder / (name + ".csr");
  Run(folder,
      StrCat("openssl req ", kNewKey, " -subj /CN=", name, " -keyout ", folder / (name + ".key"), " -out ", request));
  Run(folder,
      StrCat("openssl x509 -req -days 2 -in ", request, " -CA ", folder / (authority + ".crt"), " -CAkey ",
             folder / (authority + ".key"), " -CAcreateserial -extfile ", names, " -out ", folder / (name + ".crt")));
}

}  // namespace moeplan::testing
