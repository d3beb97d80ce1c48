#include "cli/known_names.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/shipped_files.h"
#include "models/model/hf_config.h"
#include "models/text.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

std::string Listed(std::string_view folder) {
  std::string names;
  for (const std::string& name : ShippedNames(folder)) names += StrCat(names.empty() ? "" : ", ", name);
  return names;
}

struct Domains {
  int domains = 1, gpus = 1;
};

std::optional<Domains> ReadDomains(std::string_view text) {
  Domains domains;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, domains.domains);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != 'x') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, domains.gpus);
  if (second.ec != std::errc() || second.ptr != end || domains.domains < 1 || domains.gpus < 1) return std::nullopt;
  return domains;
}

Domains LargestDomains(int gpus, int most) {
  int of_domain = 1;
  for (int size = 1; size <= most; ++size) {
    if (gpus % size == 0) of_domain = size;
  }
  return {gpus / of_domain, of_domain};
}

}  // namespace

StatusOr<ModelConfig> ModelOf(const std::string& name_or_file) {
  const auto shipped = ShippedText(StrCat("models/", name_or_file, ".json"));
  if (shipped.ok()) return ModelFromHfConfig(*shipped, name_or_file);
  std::error_code ignored;
  if (!std::filesystem::exists(name_or_file, ignored)) {
    return InvalidInput(StrCat("--model: found '", name_or_file,
                               "', which is no file, expected a config.json or one of ", Listed("models")));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(name_or_file));
  return ModelFromHfConfig(text, name_or_file);
}

StatusOr<Hardware> HardwareOf(const std::string& name) {
  const auto text = ShippedText(StrCat("hardware/", name, ".json"));
  if (!text.ok()) {
    return InvalidInput(StrCat("--hardware: found '", name, "', expected one of ", Listed("hardware"),
                               ", with :DOMAINSxGPUS or without"));
  }
  return HardwareFromJson(*text, StrCat("hardware/", name, ".json"));
}

StatusOr<Profile> HardwareProfile(const std::string& option, int gpus, const ModelConfig& model) {
  if (gpus < 1) return InvalidInput(StrCat("--gpus: found ", gpus, ", expected at least 1"));
  const size_t colon = option.find(':');
  ASSIGN_OR_RETURN(const Hardware hardware, HardwareOf(option.substr(0, colon)));
  Domains domains = LargestDomains(gpus, hardware.gpus_per_domain);
  if (colon != std::string::npos) {
    const auto given = ReadDomains(std::string_view(option).substr(colon + 1));
    const std::string found = StrCat("--hardware: found '", option, "', expected ");
    if (!given) return InvalidInput(StrCat(found, "DOMAINSxGPUS such as 8x8 behind the colon"));
    if (given->gpus > hardware.gpus_per_domain) {
      return InvalidInput(StrCat(found, "at most ", hardware.gpus_per_domain, " GPUs in a domain"));
    }
    if (given->domains != gpus / given->gpus || gpus % given->gpus != 0) {
      return InvalidInput(StrCat(found, "as many GPUs as --gpus, which is ", gpus));
    }
    domains = *given;
  }
  return ProfileOf(hardware, domains.domains, domains.gpus, model);
}

}  // namespace moeplan::cli
