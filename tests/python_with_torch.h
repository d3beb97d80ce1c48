// The Python of this machine that has PyTorch, for tests that want a job's own libraries.
#pragma once

#include <cstdlib>
#include <string>

namespace moeplan {

// Empty: none has (Debian: python3-torch).
inline std::string PythonWithTorch() {
  for (const std::string program : {"python3", "/usr/bin/python3"}) {
    if (std::system((program + " -c 'import torch' > /dev/null 2>&1").c_str()) == 0) return program;
  }
  return "";
}

}  // namespace moeplan
