#include "executor/build_facts.h"

#ifdef MOEPLAN_HAVE_GLOO
#include <gloo/config.h>
#endif
#ifdef MOEPLAN_HAVE_OPENBLAS
#include <cblas.h>
#else
#include <Eigen/Core>
#endif

#include "models/text.h"

namespace moeplan {

std::map<std::string, std::string> BuildFacts() {
  std::map<std::string, std::string> facts = {{"moeplan", MOEPLAN_VERSION}};
#ifdef __clang__
  facts["compiler"] = "Clang " __clang_version__;
#else
  facts["compiler"] = "GCC " __VERSION__;
#endif
#ifdef MOEPLAN_HAVE_GLOO
  facts["gloo"] = StrCat(GLOO_VERSION_MAJOR, ".", GLOO_VERSION_MINOR, ".", GLOO_VERSION_PATCH);
#endif
#ifdef MOEPLAN_HAVE_OPENBLAS
  facts["gemm"] = openblas_get_config();
#else
  facts["gemm"] = StrCat("Eigen ", EIGEN_WORLD_VERSION, ".", EIGEN_MAJOR_VERSION, ".", EIGEN_MINOR_VERSION);
#endif
  return facts;
}

}  // namespace moeplan
