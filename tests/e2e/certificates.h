// Keys and certificates by `openssl`, as an administrator makes them: NAME.key and NAME.crt in a folder.
#pragma once

#include <string>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {

void MakeAuthority(const TemporaryFolder& folder, const std::string& name);
// For 127.0.0.1 and localhost.
void MakeCertificate(const TemporaryFolder& folder, const std::string& name, const std::string& authority);

}  // namespace moeplan::testing
