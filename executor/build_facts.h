// These facts say what this build measures with, for the provenance of samples.
#pragma once

#include <map>
#include <string>

namespace moeplan::executor {

// Lists "moeplan" and "compiler" with their versions; "gloo" with its version, absent where it was not found; and
// "gemm", GemmName of executor/host/gemm.h, absent where it cannot be loaded.
std::map<std::string, std::string> BuildFacts();

}  // namespace moeplan::executor
