#include "cli/extensions.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "models/extension/extension.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

std::vector<std::string>& Loaded() {
  static std::vector<std::string> loaded;
  return loaded;
}

Status Extend(const ExtensionLibrary& library) {
  try {
    return library.extend();
  } catch (const std::exception& error) {
    return InvalidInput(StrCat("found the exception \"", error.what(), "\", expected a Status"));
  }
}

}  // namespace

const std::vector<std::string>& LoadedExtensions() { return Loaded(); }

Status LoadExtension(const std::string& path) {
  constexpr char kExpected[] = "expected a shared library compiled against moeplan's headers (docs/extending.md)";
  std::error_code error;
  const std::string absolute = std::filesystem::canonical(path, error).string();
  if (error) return InvalidInput(StrCat("extension ", path, ": found no file (", error.message(), "), ", kExpected));
  if (std::ranges::find(Loaded(), absolute) != Loaded().end()) return OkStatus();
  void* library = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return InvalidInput(StrCat("extension ", path, ": found ", dlerror(), ", ", kExpected));
  const auto* extension = static_cast<const ExtensionLibrary*>(dlsym(library, "moeplan_extension"));
  if (extension == nullptr) {
    return InvalidInput(StrCat("extension ", path, ": found no MOEPLAN_EXTENSION in it, ", kExpected));
  }
  if (std::string_view(extension->version) != MOEPLAN_VERSION) {
    return InvalidInput(StrCat("extension ", path, ": found one for moeplan ", extension->version, ", expected ",
                               MOEPLAN_VERSION, ": compile it again"));
  }
  RETURN_IF_ERROR(Extend(*extension).Within(StrCat("extension ", path)));
  Loaded().push_back(absolute);
  return OkStatus();
}

}  // namespace moeplan::cli
