#include "executor/build_facts.h"

#ifdef MOEPLAN_HAVE_GLOO
#include <gloo/config.h>
#endif

#include "executor/host/gemm.h"
#include "models/text.h"

namespace moeplan::executor {

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
  if (LoadGemm().ok()) facts["gemm"] = GemmName();
  return facts;
}

}  // namespace moeplan::executor
