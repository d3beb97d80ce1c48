#include "planner/shipped/names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "models/model/hf_config.h"
#include "models/text.h"
#include "planner/shipped/files.h"

namespace moeplan::planner {
namespace {

std::string Listed(std::string_view folder) {
  std::string names;
  for (const std::string& name : ShippedNames(folder)) names += StrCat(names.empty() ? "" : ", ", name);
  return names;
}

std::string LettersAndDigits(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) plain += static_cast<char>(std::tolower(byte));
  }
  return plain;
}

// "DGX-H100 80GB" → "dgx", "h100", "80gb".
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) {
      words.back() += static_cast<char>(std::tolower(byte));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// Reads deploy/model_names.json once.
const nlohmann::json& ModelNames() {
  static const nlohmann::json names = nlohmann::json::parse(*ShippedText("model_names.json"));
  return names;
}

Domains LargestDomains(int gpus, int most) {
  int of_domain = 1;
  for (int size = 1; size <= most; ++size) {
    if (gpus % size == 0) of_domain = size;
  }
  return {gpus / of_domain, of_domain};
}

// "0.15" as {0, 15}; what is no number ends it.
std::vector<int> VersionNumbers(std::string_view version) {
  std::vector<int> numbers;
  const char* at = version.data();
  const char* const end = at + version.size();
  while (at < end) {
    int number = 0;
    const auto read = std::from_chars(at, end, number);
    if (read.ec != std::errc()) break;
    numbers.push_back(number);
    if (read.ptr == end || *read.ptr != '.') break;
    at = read.ptr + 1;
  }
  return numbers;
}

// A version such as 0.15.3 belongs to 0.15.
bool IsWithin(const std::string& version, const Target& target) {
  std::vector<int> asked = VersionNumbers(version);
  const std::vector<int> from = VersionNumbers(target.version_from), to = VersionNumbers(target.version_to);
  if (asked.empty() || asked < from) return false;
  asked.resize(std::min(asked.size(), to.size()));
  return asked <= to;
}

}  // namespace

std::string ModelMeant(std::string_view text) {
  const std::string plain = LettersAndDigits(text);
  for (const auto& [alias, name] : ModelNames().at("aliases").items()) {
    if (plain.starts_with(alias)) return name.get<std::string>();
  }
  std::string best;
  size_t longest = 0;
  for (const std::string& name : ShippedNames("models")) {
    const std::string known = LettersAndDigits(name);
    if (plain.starts_with(known) && known.size() > longest) best = name, longest = known.size();
  }
  return best;
}

std::string HardwareMeant(std::string_view text) {
  for (const std::string& word : WordsOf(text)) {
    std::string meant;
    for (const std::string& name : ShippedNames("hardware")) {
      // Where a GPU ships in several kinds, the last of them is the one with NVLink.
      if (word == name.substr(0, name.find('-'))) meant = name;
    }
    if (!meant.empty()) return meant;
  }
  return "";
}

bool MeansHybridModel(std::string_view text) {
  const std::string plain = LettersAndDigits(text);
  for (const auto& name : ModelNames().at("hybrids")) {
    if (plain.starts_with(name.get<std::string>())) return true;
  }
  return false;
}

std::string ModelNamesText() { return Listed("models"); }

StatusOr<std::string_view> NamedModelText(const std::string& name) {
  const auto text = ShippedText(StrCat("models/", name, ".json"));
  if (text.ok()) return text;
  return InvalidInput(StrCat("modelName: found '", name, "', expected one of ", ModelNamesText()));
}

StatusOr<ModelConfig> NamedModel(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string_view text, NamedModelText(name));
  return ModelFromHfConfig(std::string(text), name);
}

const std::vector<std::string>& UsualModels() {
  static const auto names = ModelNames().at("calibrated").get<std::vector<std::string>>();
  return names;
}

StatusOr<Hardware> HardwareOf(const std::string& name) {
  const auto text = ShippedText(StrCat("hardware/", name, ".json"));
  if (!text.ok()) {
    return InvalidInput(StrCat("hardware: found '", name, "', expected one of ", Listed("hardware"),
                               ", with :DOMAINSxGPUS or without"));
  }
  return HardwareFromJson(*text, StrCat("hardware/", name, ".json"));
}

std::optional<Domains> ReadDomains(std::string_view text) {
  Domains domains;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, domains.domains);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != 'x') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, domains.gpus);
  if (second.ec != std::errc() || second.ptr != end || domains.domains < 1 || domains.gpus < 1) return std::nullopt;
  return domains;
}

StatusOr<Profile> HardwareProfile(const std::string& text, int gpus, const ModelConfig& model,
                                  const std::function<void(Hardware&)>& change, const Network& network) {
  constexpr int kMostGpus = 1 << 16;
  if (gpus < 1 || gpus > kMostGpus) {
    return InvalidInput(StrCat("gpus: found ", gpus, ", expected a whole number of 1 to ", kMostGpus));
  }
  const size_t colon = text.find(':');
  ASSIGN_OR_RETURN(Hardware hardware, HardwareOf(text.substr(0, colon)));
  if (change) change(hardware);
  Domains domains = LargestDomains(gpus, hardware.gpus_per_domain);
  if (colon != std::string::npos) {
    const auto given = ReadDomains(std::string_view(text).substr(colon + 1));
    const std::string found = StrCat("hardware: found '", text, "', expected ");
    if (!given) return InvalidInput(StrCat(found, "DOMAINSxGPUS such as 8x8 behind the colon"));
    if (given->gpus > hardware.gpus_per_domain) {
      return InvalidInput(StrCat(found, "at most ", hardware.gpus_per_domain, " GPUs in a domain"));
    }
    if (given->domains != gpus / given->gpus || gpus % given->gpus != 0) {
      return InvalidInput(StrCat(found, "as many GPUs as asked for, ", gpus));
    }
    domains = *given;
  }
  // Every group is laid below the leaves, domain by domain: without a ceiling one request would take many seconds.
  constexpr int kMostDomainsBelowLeaves = 1 << 13;
  if (HasSlowUplinks(network, domains.domains) && domains.domains > kMostDomainsBelowLeaves) {
    return InvalidInput(StrCat("network.nodesPerLeaf: found leaves below ", domains.domains,
                               " domains, expected at most ", kMostDomainsBelowLeaves,
                               " domains where leaves are oversubscribed"));
  }
  return ProfileOf(hardware, domains.domains, domains.gpus, model, network);
}

int GpusOfHardware(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return 0;
  const std::optional<Domains> domains = ReadDomains(std::string_view(text).substr(colon + 1));
  constexpr int kMost = 1 << 15;
  return domains && domains->domains <= kMost && domains->gpus <= kMost ? domains->domains * domains->gpus : 0;
}

std::vector<std::string> TargetNames() {
  std::set<std::string> names;
  // A file is named after its target, with the version behind it where there are several: "megatron-0.15".
  for (const std::string& name : ShippedNames("targets")) names.insert(name.substr(0, name.find('-')));
  return {names.begin(), names.end()};
}

std::string TargetNamesText() {
  std::string text;
  for (const std::string& name : TargetNames()) text += StrCat(text.empty() ? "" : ", ", name);
  return text;
}

StatusOr<Target> TargetOf(const std::string& name, const std::string& version) {
  std::optional<Target> latest;
  std::string ranges;
  for (const std::string& file : ShippedNames("targets")) {
    if (file.substr(0, file.find('-')) != name) continue;
    const std::string path = StrCat("targets/", file, ".json");
    ASSIGN_OR_RETURN(const std::string_view text, ShippedText(path));
    ASSIGN_OR_RETURN(Target target, TargetFromJson(text, path));
    ranges += StrCat(ranges.empty() ? "" : ", ", target.version_from, " to ", target.version_to);
    if (!version.empty() && !IsWithin(version, target)) continue;
    const bool later = !latest || VersionNumbers(latest->version_to) < VersionNumbers(target.version_to);
    if (later) latest = std::move(target);
  }
  if (latest) return *std::move(latest);
  if (ranges.empty()) return InvalidInput(StrCat("to: found '", name, "', expected one of ", TargetNamesText()));
  return InvalidInput(StrCat("targetVersion: found '", version, "', expected one of ", name, "'s ", ranges));
}

}  // namespace moeplan::planner
