#include "executor/backends.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "executor/host/host_rank.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

struct BackendLibrary {
  const char* what;
  const char* file;
  const char* function;  // Of C, without arguments; gives what is asked for.
  const char* otherwise;
};

std::filesystem::path LibraryDirectory() {
  if (const char* const given = std::getenv("MOEPLAN_LIBRARY_DIR"); given != nullptr) return given;
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().parent_path() / "lib" / "moeplan";
}

template <typename Asked>
StatusOr<Asked*> Load(const BackendLibrary& wanted) {
  const auto missing = [&](const std::string& found) {
    return Unavailable(StrCat(wanted.what, ": found ", found, "; ", wanted.otherwise));
  };
  const std::string path = LibraryDirectory() / wanted.file;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return missing(StrCat("no ", path));
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(StrCat(wanted.what, ": found that ", dlerror(),
                              "; install what it needs, or name its folder in ", "LD_LIBRARY_PATH"));
  }
  const auto* const version = static_cast<const char* const*>(dlsym(library, "moeplan_library_version"));
  if (version == nullptr || std::string_view(*version) != MOEPLAN_VERSION) {
    return Unavailable(StrCat(wanted.what, ": found in ", path, " a library of another moeplan, expected one of ",
                              MOEPLAN_VERSION, "; build it again"));
  }
  const auto function = reinterpret_cast<Asked* (*)()>(dlsym(library, wanted.function));
  if (function == nullptr) return missing(StrCat("another library in ", path));
  return function();
}

}  // namespace

StatusOr<const RankBackend*> FindBackend(const std::string& name) {
  if (name == HostBackend().name()) return &HostBackend();
  if (name != "cuda") return InvalidInput(StrCat("backend: found ", name, ", expected host or cuda"));
  static const StatusOr<const RankBackend*> cuda = Load<const RankBackend>(
      {.what = "the cuda backend",
       .file = "libmoeplan_cuda.so",
       .function = "moeplan_cuda_backend",
       .otherwise = "build the target moeplan_cuda where nvcc is (docs/gpu/README.md), or use the host backend"});
  return cuda;
}

StatusOr<Simulator*> FindSimulator() {
  static const StatusOr<Simulator*> simulator =
      Load<Simulator>({.what = "simulated clusters",
                       .file = "libmoeplan_sim.so",
                       .function = "moeplan_simulator",
                       .otherwise = "build moeplan_sim where SimGrid is (Debian: libsimgrid-dev)"});
  return simulator;
}

}  // namespace moeplan::executor
