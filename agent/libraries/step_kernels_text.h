// step_kernels.py, as the build found it.
#pragma once

#include <string_view>

namespace moeplan::agent {

extern const std::string_view kStepKernelsText;

}  // namespace moeplan::agent
