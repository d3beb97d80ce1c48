#include "planner/targets/settings_text.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "models/text.h"
#include "planner/targets/shell_words.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostValues = kMostShellWords;
constexpr int kDeepestConfig = 32;

// ---- Values.

std::optional<double> NumberOf(std::string_view text) {
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool SaysNone(std::string_view text) {
  const std::string lower = Lower(text);
  return lower == "none" || lower == "null" || lower == "~";
}

std::string WithoutQuotes(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// What is outside parentheses and quotes, at commas.
std::vector<std::string> SplitAtCommas(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  char quote = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (quote != 0) {
      if (c == quote && i < text.size()) quote = 0;
      if (i < text.size()) continue;
    }
    if (c == '\'' || c == '"') quote = c;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    const std::string_view part = Trimmed(text.substr(start, i - start));
    if (!part.empty()) parts.emplace_back(part);
    start = i + 1;
  }
  return parts;
}

// "[a, b]", "(a, b)" or "a,b".
std::vector<std::string> ElementsOf(std::string_view text) {
  text = Trimmed(text);
  const bool bracketed =
      text.size() >= 2 && ((text.front() == '[' && text.back() == ']') || (text.front() == '(' && text.back() == ')'));
  if (bracketed) text = text.substr(1, text.size() - 2);
  std::vector<std::string> elements;
  for (const std::string& part : SplitAtCommas(text)) elements.push_back(WithoutQuotes(part));
  return elements;
}

Json ElementValue(const std::string& text) {
  if (const auto number = NumberOf(text)) {
    return *number == std::floor(*number) && std::abs(*number) < 1e15 ? Json(static_cast<std::int64_t>(*number))
                                                                      : Json(*number);
  }
  return text;
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return StrCat(value.get<std::int64_t>());
  if (value.is_number()) return StrCat(value.get<double>());
  return value.dump();
}

// Whether one letter more, less or other, or two that changed places, make one the other. Short names are too near
// anyway.
bool IsSlipOf(std::string_view name, std::string_view known) {
  constexpr size_t kLongEnough = 10;
  if (name.size() > known.size()) std::swap(name, known);
  if (name.size() < kLongEnough || known.size() - name.size() > 1) return false;
  const size_t same = static_cast<size_t>(std::ranges::mismatch(name, known).in1 - name.begin());
  if (same == name.size()) return known.size() > name.size();
  const std::string_view rest = name.substr(same), other = known.substr(same);
  if (name.size() < known.size()) return rest == other.substr(1);
  if (rest.substr(1) == other.substr(1)) return true;
  return rest.size() > 1 && rest[0] == other[1] && rest[1] == other[0] && rest.substr(2) == other.substr(2);
}

// "a, b or c".
std::string OneOf(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    text += StrCat(i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ", choices[i]);
  }
  return text;
}

// ---- Reading.

// Puts values of any spelling into settings.
class Collector {
 public:
  explicit Collector(const Target& target) : target_(target) {}

  SettingsRead Take() { return std::move(read_); }

  // A name that is a slip of a known one is wrong; others are of things that no layout says.
  void Unknown(const std::string& name) {
    if (!unknown_.insert(name).second) return;
    std::string meant;
    for (const Setting& setting : target_.settings) {
      const std::string spelling = Spelling(target_, setting.name, "x");
      const std::string known = name.starts_with("--") ? spelling.substr(0, spelling.find(' ')) : setting.name;
      if (IsSlipOf(name, known)) meant = known;
    }
    if (meant.empty()) {
      read_.unknown.push_back(name);
      return;
    }
    read_.violations.push_back({.rule = "unknown-setting",
                                .flags = {name},
                                .reason = StrCat("found ", name, ", which is no setting; did you mean ", meant, "?"),
                                .source = ""});
  }
  void SetJson(const Setting& setting, Json value) { Keep(setting, std::move(value)); }

  // As text, of which lists are told by the target's form.
  void SetText(const Setting& setting, const std::string& text) {
    const bool is_choice = std::ranges::find(setting.choices, text) != setting.choices.end();
    if (SaysNone(text) && !is_choice) {
      read_.settings.erase(setting.name);
      return;
    }
    switch (setting.type) {
      case SettingType::kInteger:
      case SettingType::kNumber:
        if (const auto number = NumberOf(text)) return Keep(setting, ElementValue(text));
        return Fail(setting, text, setting.type == SettingType::kInteger ? "a whole number" : "a number");
      case SettingType::kBoolean: {
        const std::string lower = Lower(text);
        if (lower == "true" || lower == "1") return Keep(setting, true);
        if (lower == "false" || lower == "0") return Keep(setting, false);
        return Fail(setting, text, "true or false");
      }
      case SettingType::kString: return Keep(setting, text);
      case SettingType::kList: return SetList(setting, ElementsOf(text));
    }
  }

  void SetList(const Setting& setting, const std::vector<std::string>& elements) {
    Json list = Json::array();
    for (const std::string& element : elements) list.push_back(ElementValue(element));
    Keep(setting, std::move(list));
  }

 private:
  void Keep(const Setting& setting, Json value) {
    const std::string expected = ExpectedOf(setting, value);
    if (!expected.empty()) return Fail(setting, TextOf(value), expected);
    read_.settings[setting.name] = std::move(value);
  }

  void Fail(const Setting& setting, const std::string& found, const std::string& expected) {
    constexpr size_t kMostShown = 64;
    const std::string shown = found.size() > kMostShown ? found.substr(0, kMostShown) + "..." : found;
    const bool of_shell = found.find('$') != std::string::npos;
    read_.violations.push_back(
        {.rule = "value",
         .flags = {setting.flag.empty() ? Spelling(target_, setting.name, found) : setting.flag},
         .reason = StrCat("found ", shown, of_shell ? ", which a shell would fill in" : "", "; expected ", expected),
         .source = target_.Cite(setting.source)});
  }

  const Target& target_;
  SettingsRead read_;
  std::set<std::string, std::less<>> unknown_;
};

std::string FlagOf(const Target& target, const Setting& setting) {
  if (!setting.flag.empty()) return setting.flag;
  std::string flag = "--" + setting.name;
  if (target.form == SettingsForm::kFlags) std::ranges::replace(flag, '_', '-');
  return flag;
}

// Whether the flag is all of it: there is no value behind.
bool StandsAlone(const Target& target, const Setting& setting) {
  return !setting.constant.is_null() || (setting.type == SettingType::kBoolean && target.form == SettingsForm::kFlags);
}
Json ConstantOf(const Setting& setting) { return setting.constant.is_null() ? Json(true) : setting.constant; }

class FlagReader {
 public:
  FlagReader(const Target& target, std::vector<std::string> tokens) : target_(target), tokens_(std::move(tokens)) {
    for (const Setting& setting : target.settings) by_flag_.try_emplace(FlagOf(target, setting), &setting);
  }

  SettingsRead Read() {
    Collector into(target_);
    while (at_ < tokens_.size()) {
      const std::string& token = tokens_[at_++];
      if (!token.starts_with("--")) continue;
      const size_t equals = token.find('=');
      std::string flag = token.substr(0, equals);
      // Dashes and underscores are the same there.
      if (target_.form == SettingsForm::kDottedFlags) std::replace(flag.begin() + 2, flag.end(), '-', '_');
      const auto found = by_flag_.find(flag);
      if (found == by_flag_.end()) {
        if (!SetNo(flag, into)) into.Unknown(flag);
        continue;
      }
      const Setting& setting = *found->second;
      if (equals != std::string::npos) {
        into.SetText(setting, token.substr(equals + 1));
      } else {
        Set(setting, into);
      }
    }
    return into.Take();
  }

 private:
  // "--a.no_b", which says that a.b is not.
  bool SetNo(const std::string& flag, Collector& into) {
    const size_t dot = flag.rfind('.');
    const size_t last = dot == std::string::npos ? 2 : dot + 1;
    if (target_.form != SettingsForm::kDottedFlags || flag.compare(last, 3, "no_") != 0) return false;
    const auto found = by_flag_.find(flag.substr(0, last) + flag.substr(last + 3));
    if (found == by_flag_.end() || found->second->type != SettingType::kBoolean) return false;
    into.SetJson(*found->second, false);
    return true;
  }

  void Set(const Setting& setting, Collector& into) {
    if (StandsAlone(target_, setting)) return into.SetJson(setting, ConstantOf(setting));
    if (setting.type == SettingType::kBoolean) {
      const std::string next = at_ < tokens_.size() ? Lower(tokens_[at_]) : "";
      const bool said = next == "true" || next == "false";
      if (said) ++at_;
      return into.SetJson(setting, !said || next == "true");
    }
    std::vector<std::string> values;
    while (at_ < tokens_.size() && !tokens_[at_].starts_with("--") &&
           (values.empty() || setting.type == SettingType::kList)) {
      values.push_back(tokens_[at_++]);
    }
    if (setting.type != SettingType::kList) return into.SetText(setting, values.empty() ? "nothing" : values[0]);
    if (values.size() == 1) return into.SetText(setting, values[0]);
    into.SetList(setting, values);
  }

  const Target& target_;
  std::vector<std::string> tokens_;
  size_t at_ = 0;
  std::map<std::string, const Setting*, std::less<>> by_flag_;
};

void SetNamed(const Target& target, std::string_view name, const std::string& value, Collector& into) {
  const Setting* const setting = target.Find(name);
  if (setting == nullptr) return into.Unknown(std::string(name));
  into.SetText(*setting, WithoutQuotes(Trimmed(value)));
}

bool IsName(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

// "name = value" lines, with the name of the object that has them in front, and commas behind, left away.
SettingsRead ReadPython(const Target& target, std::string_view text) {
  Collector into(target);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    line = Trimmed(line.substr(0, line.find('#')));
    if (line.ends_with(',')) line.remove_suffix(1);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view name = Trimmed(line.substr(0, equals));
    for (const std::string_view object : {"config.", "cfg."}) {
      if (name.starts_with(object)) name.remove_prefix(object.size());
    }
    if (IsName(name)) SetNamed(target, name, std::string(Trimmed(line.substr(equals + 1))), into);
  }
  return into.Take();
}

void SetFromJson(const Target& target, const std::string& path, const Json& value, int depth, Collector& into) {
  if (const Setting* const setting = target.Find(path); setting != nullptr && !value.is_object()) {
    if (value.is_null()) return;
    // What another program fills in.
    if (value == "auto") return into.Unknown(path);
    const bool whole = setting->type == SettingType::kInteger && value.is_number_float() &&
                       value.get<double>() == std::floor(value.get<double>());
    return into.SetJson(*setting, whole ? ElementValue(TextOf(value)) : value);
  }
  if (!value.is_object() || depth > kDeepestConfig) return into.Unknown(path);
  for (const auto& [name, inner] : value.items()) {
    SetFromJson(target, path.empty() ? name : StrCat(path, ".", name), inner, depth + 1, into);
  }
}

// YAML's aliases make a short text long, so what is visited is counted.
class YamlReader {
 public:
  YamlReader(const Target& target, Collector& into) : target_(target), into_(into) {}

  void Read(const std::string& path, const YAML::Node& node, int depth) {
    if (++visited_ > kMostValues) return;
    if (const Setting* const setting = target_.Find(path); setting != nullptr && !node.IsMap()) {
      if (node.IsNull()) return;
      if (node.IsScalar()) return into_.SetText(*setting, node.Scalar());
      return into_.SetList(*setting, ElementsOfYaml(node, visited_));
    }
    if (!node.IsMap() || depth > kDeepestConfig) return into_.Unknown(path);
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) continue;
      Read(path.empty() ? entry.first.Scalar() : StrCat(path, ".", entry.first.Scalar()), entry.second, depth + 1);
    }
  }
  bool stopped() const { return visited_ > kMostValues; }

  static std::vector<std::string> ElementsOfYaml(const YAML::Node& list, size_t& visited) {
    std::vector<std::string> elements;
    for (const YAML::Node& element : list) {
      if (++visited > kMostValues) break;
      elements.push_back(element.IsScalar() ? element.Scalar() : "?");
    }
    return elements;
  }

 private:
  const Target& target_;
  Collector& into_;
  size_t visited_ = 0;
};

Status TooMany() { return InvalidInput(StrCat("found more than ", kMostValues, " values")); }

// Flags as keys: "--tensor-model-parallel-size: 2", of which `true` alone is a flag without a value.
StatusOr<SettingsRead> ReadYamlFlags(const Target& target, const YAML::Node& root) {
  std::vector<std::string> tokens;
  size_t visited = 0;
  const YAML::Node section = target.section.empty() ? root : root[target.section];
  const YAML::Node arguments = section.IsDefined() && section.IsMap() ? section : root;
  for (const auto& entry : arguments) {
    if (!entry.first.IsScalar()) continue;
    if (++visited > kMostValues) return TooMany();
    std::string flag = entry.first.Scalar();
    if (!flag.starts_with("--")) {
      flag.insert(0, "--");
      std::ranges::replace(flag, '_', '-');
    }
    if (entry.second.IsSequence()) {
      tokens.push_back(flag);
      for (std::string& element : YamlReader::ElementsOfYaml(entry.second, visited)) {
        tokens.push_back(std::move(element));
      }
    } else if (entry.second.IsScalar()) {
      const std::string value = entry.second.Scalar();
      if (Lower(value) == "false") continue;
      tokens.push_back(flag);
      if (Lower(value) != "true") tokens.push_back(value);
    }
  }
  return FlagReader(target, std::move(tokens)).Read();
}

StatusOr<SettingsRead> ReadYaml(const Target& target, std::string_view text) {
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap()) return InvalidInput("expected a mapping in YAML");
    if (target.form == SettingsForm::kFlags) return ReadYamlFlags(target, root);
    Collector into(target);
    YamlReader reader(target, into);
    reader.Read("", root, 0);
    if (reader.stopped()) return TooMany();
    return into.Take();
  } catch (const YAML::Exception& wrong) {
    return InvalidInput(StrCat("expected YAML: ", wrong.what()));
  }
}

// ---- Writing.

std::string PythonText(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return StrCat("\"", value.get<std::string>(), "\"");
  if (!value.is_array()) return TextOf(value);
  std::string text = "[";
  for (const Json& element : value) text += StrCat(text.size() > 1 ? "," : "", PythonText(element));
  return text + "]";
}

std::string ListText(const Json& value) {
  if (!value.is_array()) return TextOf(value);
  std::string text = "[";
  for (const Json& element : value) text += StrCat(text.size() > 1 ? "," : "", TextOf(element));
  return text + "]";
}

// In the table's order, each once.
std::vector<std::pair<const Setting*, Json>> Chosen(const Target& target, const Settings& settings) {
  std::vector<std::pair<const Setting*, Json>> chosen;
  std::set<std::string_view> seen;
  for (const Setting& setting : target.settings) {
    const auto found = settings.find(setting.name);
    if (found == settings.end() || !seen.insert(setting.name).second) continue;
    chosen.emplace_back(&setting, found->second);
  }
  return chosen;
}

// Finds the flag that sets the value and stands alone; null: there is none.
const Setting* FlagFor(const Target& target, std::string_view name, const Json& value) {
  for (const Setting& setting : target.settings) {
    if (setting.name == name && StandsAlone(target, setting) && ConstantOf(setting) == value) return &setting;
  }
  return nullptr;
}

std::vector<std::string> TokensOf(const Target& target, const Setting& setting, const Json& value) {
  if (target.form == SettingsForm::kOverrides || target.form == SettingsForm::kCall) {
    return {StrCat(setting.name, "=", target.form == SettingsForm::kCall ? PythonText(value) : ListText(value))};
  }
  if (target.form == SettingsForm::kJson) return {StrCat(setting.name, "=", value.dump())};
  if (const Setting* const alone = FlagFor(target, setting.name, value)) return {FlagOf(target, *alone)};
  if (setting.type == SettingType::kBoolean && value.is_boolean() && target.form == SettingsForm::kFlags) return {};
  std::vector<std::string> tokens = {FlagOf(target, setting)};
  if (!value.is_array()) {
    tokens.push_back(value.is_boolean() ? PythonText(value) : TextOf(value));
    return tokens;
  }
  for (const Json& element : value) tokens.push_back(TextOf(element));
  return tokens;
}

// Text without a setting is something else, a file's name perhaps.
StatusOr<SettingsRead> WithAny(const Target& target, SettingsRead read) {
  if (!read.settings.empty() || !read.violations.empty()) return read;
  const auto first = std::ranges::find_if(target.fields, [](const auto& field) { return !field.setting.empty(); });
  return InvalidInput(StrCat("found none of ", target.title, "'s settings, expected some, such as ",
                             first == target.fields.end() ? "" : Spelling(target, first->setting, 2)));
}

// Whatever is read is told back as text.
Status CheckText(std::string_view text) {
  if (text.size() > kMostSettingsBytes) {
    return InvalidInput(StrCat("found ", text.size(), " bytes, expected at most ", kMostSettingsBytes));
  }
  try {
    (void)Json(std::string(text)).dump();
  } catch (const Json::exception&) {
    return InvalidInput("found bytes that are no UTF-8, expected text");
  }
  return OkStatus();
}

}  // namespace

std::string ExpectedOf(const Setting& setting, const Json& value) {
  const auto is_choice = [&](const Json& one) {
    return setting.choices.empty() || std::ranges::find(setting.choices, TextOf(one)) != setting.choices.end();
  };
  switch (setting.type) {
    case SettingType::kInteger:
      if (!value.is_number_integer()) return "a whole number";
      break;
    case SettingType::kNumber:
      if (!value.is_number()) return "a number";
      break;
    case SettingType::kBoolean: return value.is_boolean() ? "" : "true or false";
    case SettingType::kString:
      if (!value.is_string() && !setting.choices.empty()) return OneOf(setting.choices);
      return is_choice(value) ? "" : OneOf(setting.choices);
    case SettingType::kList:
      if (!value.is_array()) return "a list";
      return std::ranges::all_of(value, is_choice) ? "" : OneOf(setting.choices);
  }
  return setting.least && value.get<double>() < *setting.least ? StrCat("at least ", *setting.least) : "";
}

StatusOr<SettingsRead> ReadArguments(const Target& target, std::string_view text) {
  RETURN_IF_ERROR(CheckText(text));
  if (target.form == SettingsForm::kJson) {
    return InvalidInput(StrCat(target.title, " takes no arguments; expected its configuration file (--config)"));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> tokens, ShellWords(text));
  if (target.form == SettingsForm::kFlags || target.form == SettingsForm::kDottedFlags) {
    return WithAny(target, FlagReader(target, std::move(tokens)).Read());
  }
  Collector into(target);
  for (const std::string& token : tokens) {
    const std::vector<std::string> parts =
        target.form == SettingsForm::kCall ? SplitAtCommas(token) : std::vector<std::string>{token};
    for (const std::string& part : parts) {
      const size_t equals = part.find('=');
      if (equals == std::string::npos) continue;
      // Hydra's marks of settings that are added.
      std::string_view name = std::string_view(part).substr(0, equals);
      while (name.starts_with('+')) name.remove_prefix(1);
      // A script's own variables look the same.
      const bool of_script = target.form == SettingsForm::kOverrides && name.find('.') == std::string_view::npos &&
                             target.Find(name) == nullptr;
      if (IsName(name) && !of_script) SetNamed(target, name, part.substr(equals + 1), into);
    }
  }
  return WithAny(target, into.Take());
}

namespace {

StatusOr<SettingsRead> ReadFile(const Target& target, std::string_view text) {
  if (target.form == SettingsForm::kJson) {
    const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
    if (!root.is_object()) return InvalidInput("expected a JSON object");
    Collector into(target);
    SetFromJson(target, "", root, 0, into);
    return into.Take();
  }
  if (target.form == SettingsForm::kDottedFlags || target.form == SettingsForm::kCall) return ReadPython(target, text);
  return ReadYaml(target, text);
}

}  // namespace

StatusOr<SettingsRead> ReadConfig(const Target& target, std::string_view text, std::string_view source_name) {
  if (const Status fits = CheckText(text); !fits.ok()) return fits.Within(source_name);
  StatusOr<SettingsRead> read = ReadFile(target, text);
  if (read.ok()) read = WithAny(target, *std::move(read));
  if (!read.ok()) return read.status().Within(source_name);
  return read;
}

std::vector<std::string> WriteArguments(const Target& target, const Settings& settings) {
  std::vector<std::string> arguments;
  if (target.form == SettingsForm::kJson) return arguments;
  for (const auto& [setting, value] : Chosen(target, settings)) {
    for (std::string& token : TokensOf(target, *setting, value)) arguments.push_back(std::move(token));
  }
  return arguments;
}

std::string WriteConfig(const Target& target, const Settings& settings) {
  std::string text;
  Json root = Json::object();
  for (const auto& [setting, value] : Chosen(target, settings)) {
    std::string pointer = "/" + setting->name;
    std::ranges::replace(pointer, '.', '/');
    root[Json::json_pointer(pointer)] = value;
    switch (target.form) {
      case SettingsForm::kJson:
      case SettingsForm::kOverrides: break;
      case SettingsForm::kDottedFlags: text += StrCat("config.", setting->name, " = ", PythonText(value), "\n"); break;
      case SettingsForm::kCall: text += StrCat(setting->name, "=", PythonText(value), ",\n"); break;
      case SettingsForm::kFlags: {
        const std::vector<std::string> tokens = TokensOf(target, *setting, value);
        if (tokens.empty()) break;
        const Json shown = value.is_array() ? value : Json(tokens.size() == 1 ? Json(true) : value);
        text += StrCat("  ", tokens[0], ": ", shown.dump(), "\n");
        break;
      }
    }
  }
  if (target.form == SettingsForm::kFlags) return target.section.empty() ? text : StrCat(target.section, ":\n", text);
  if (target.form == SettingsForm::kJson) return root.dump(2) + "\n";
  if (target.form != SettingsForm::kOverrides) return text;
  // JSON's values are YAML's, so that texts are quoted where they must be.
  const auto write = [&](const auto& self, const Json& object, int depth) -> void {
    for (const auto& [name, value] : object.items()) {
      text += StrCat(std::string(static_cast<size_t>(depth) * 2, ' '), name, ":");
      if (!value.is_object()) {
        text += StrCat(" ", value.dump(), "\n");
        continue;
      }
      text += "\n";
      self(self, value, depth + 1);
    }
  };
  write(write, root, 0);
  return text;
}

std::string Spelling(const Target& target, std::string_view setting, const Json& value) {
  const Setting* const found = target.Find(setting);
  if (found == nullptr) return std::string(setting);
  std::string text;
  for (const std::string& token : TokensOf(target, *found, value)) text += StrCat(text.empty() ? "" : " ", token);
  return text;
}

}  // namespace moeplan::planner
