// Commands on other hosts, for executor/launch alone. Pure.
#pragma once

#include <string>
#include <vector>

#include "executor/launch/launch.h"

namespace moeplan::executor {

// One word of a POSIX shell.
std::string ShellQuoted(const std::string& word);

// Runs `remote`, a line of the remote shell, with our standard streams. Asks nobody for a password.
std::vector<std::string> SshCommand(const Host& host, const std::string& remote);

// Without the user: what other hosts call it.
std::string BareName(const Host& host);

}  // namespace moeplan::executor
