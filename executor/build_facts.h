// What this build measures with, for the provenance of samples.
#pragma once

#include <map>
#include <string>

namespace moeplan {

// "moeplan" and "compiler": their versions. "gloo": its version, absent where it was not found. "gemm": the library
// that multiplies matrices, its version and, of OpenBLAS, its settings and the kernels it chose on this processor.
std::map<std::string, std::string> BuildFacts();

}  // namespace moeplan
