#include "executor/backends.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "executor/host/host_rank.h"
#include "models/text.h"

namespace moeplan {
namespace {

constexpr char kCudaLibrary[] = "libmoeplan_cuda.so";
constexpr char kCudaFunction[] = "moeplan_cuda_backend";

std::filesystem::path LibraryDirectory() {
  if (const char* const given = std::getenv("MOEPLAN_LIBRARY_DIR"); given != nullptr) return given;
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().parent_path() / "lib" / "moeplan";
}

StatusOr<const RankBackend*> LoadCudaBackend() {
  const std::string path = LibraryDirectory() / kCudaLibrary;
  constexpr char kExpected[] = "build moeplan where nvcc is (docs/gpu/README.md), or use the host backend";
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return Unavailable(StrCat("the cuda backend: found no ", path, "; ", kExpected));
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(StrCat("the cuda backend: ", dlerror(), "; ", kExpected));
  const auto backend = reinterpret_cast<const RankBackend* (*)()>(dlsym(library, kCudaFunction));
  if (backend == nullptr) return Unavailable(StrCat("the cuda backend: ", path, " is another library; ", kExpected));
  return backend();
}

}  // namespace

StatusOr<const RankBackend*> FindBackend(const std::string& name) {
  if (name == HostBackend().name()) return &HostBackend();
  if (name != "cuda") return InvalidInput(StrCat("backend: found ", name, ", expected host or cuda"));
  static const StatusOr<const RankBackend*> cuda = LoadCudaBackend();
  return cuda;
}

}  // namespace moeplan
