#include "planner/targets/target.h"

#include <algorithm>
#include <array>
#include <set>

#include "models/text.h"
#include "planner/targets/layout_fields.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;

template <typename Value>
struct Named {
  std::string_view name;
  Value value;
};
constexpr Named<SettingsForm> kForms[] = {{"FLAGS", SettingsForm::kFlags},
                                          {"DOTTED_FLAGS", SettingsForm::kDottedFlags},
                                          {"OVERRIDES", SettingsForm::kOverrides},
                                          {"JSON", SettingsForm::kJson},
                                          {"CALL", SettingsForm::kCall}};
constexpr Named<SettingType> kTypes[] = {{"INTEGER", SettingType::kInteger},
                                         {"NUMBER", SettingType::kNumber},
                                         {"BOOLEAN", SettingType::kBoolean},
                                         {"STRING", SettingType::kString},
                                         {"LIST", SettingType::kList}};
constexpr std::string_view kFacts[] = {
    "gpus",          "layers",          "experts",           "top_k",          "heads",          "kv_heads",
    "head_dim",      "model_dim",       "dense_hidden_dim",  "vocab",          "expert_groups",  "groups_per_token",
    "global_batch",  "sequence_length", "expert_hidden_dim", "kv_rank",        "q_rank",         "shared_hidden_dim",
    "nope_head_dim", "rope_head_dim",   "value_head_dim",    "moe_layer_freq", "tied_embeddings"};

// Reads one table. The first error stays.
class TableReader {
 public:
  TableReader(const Json& root, std::string_view source_name) : root_(root), source_name_(source_name) {}

  StatusOr<Target> Read() {
    target_.name = Text(root_, "", "target");
    target_.title = Text(root_, "", "title");
    target_.version_from = Text(root_, "", "versionFrom");
    target_.version_to = Text(root_, "", "versionTo");
    target_.repository = Text(root_, "", "repository");
    target_.commit = Text(root_, "", "commit");
    target_.form = OneOf(kForms, Text(root_, "", "form"), "form");
    target_.section = root_.value("section", "");
    ForEach("settings", [&](const Json& entry, const std::string& at) { AddSetting(entry, at); });
    ForEach("fields", [&](const Json& entry, const std::string& at) { AddField(entry, at); });
    ForEach("fixed", [&](const Json& entry, const std::string& at) {
      target_.fixed.push_back({.setting = KnownSetting(Text(entry, at, "setting"), at),
                               .value = entry.value("value", Json()),
                               .when = Condition(entry, at, "when"),
                               .reason = Text(entry, at, "reason")});
    });
    ForEach("environment", [&](const Json& entry, const std::string& at) {
      target_.environment.push_back({.name = Text(entry, at, "name"),
                                     .value = Text(entry, at, "value"),
                                     .reason = Text(entry, at, "reason"),
                                     .source = Text(entry, at, "source"),
                                     .when = Condition(entry, at, "when")});
    });
    ForEach("notExpressible", [&](const Json& entry, const std::string& at) {
      const Json only = entry.value("only", Json::array());
      target_.limits.push_back({.field = KnownField(Text(entry, at, "field"), at),
                                .only = {only.begin(), only.end()},
                                .reason = Text(entry, at, "reason")});
    });
    ForEach("live", [&](const Json& entry, const std::string& at) {
      target_.live.push_back({.field = KnownField(Text(entry, at, "field"), at),
                              .reason = Text(entry, at, "reason"),
                              .source = Text(entry, at, "source")});
    });
    ForEach("notRead", [&](const Json& entry, const std::string& at) {
      NotRead one = {.settings = Texts(entry, "settings"),
                     .when = Condition(entry, at, "when"),
                     .reason = Text(entry, at, "reason")};
      for (const std::string& setting : one.settings) KnownSetting(setting, at + ".settings");
      target_.not_read.push_back(std::move(one));
    });
    ForEach("rules", [&](const Json& entry, const std::string& at) { AddRule(entry, at); });
    if (!status_.ok()) return status_;
    return std::move(target_);
  }

 private:
  template <typename Add>
  void ForEach(const char* name, Add add) {
    const Json entries = root_.value(name, Json::array());
    if (!entries.is_array()) return Fail(name, "a list");
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string at = StrCat(name, "[", i, "]");
      if (!entries[i].is_object()) return Fail(at, "an object");
      add(entries[i], at);
    }
  }

  void AddSetting(const Json& entry, const std::string& at) {
    Setting setting = {.name = Text(entry, at, "name"),
                       .type = OneOf(kTypes, Text(entry, at, "type"), at + ".type"),
                       .default_value = entry.value("default", Json()),
                       .choices = Texts(entry, "choices"),
                       .given = entry.value("given", ""),
                       .flag = entry.value("flag", ""),
                       .constant = entry.value("constant", Json()),
                       .source = Text(entry, at, "source")};
    if (entry.contains("least") && entry["least"].is_number()) setting.least = entry["least"].get<double>();
    if (!setting.given.empty() && std::ranges::find(kFacts, setting.given) == std::end(kFacts)) {
      Fail(at + ".given", "a fact");
    }
    target_.settings.push_back(std::move(setting));
  }

  void AddField(const Json& entry, const std::string& at) {
    TargetField field = {.field = KnownField(Text(entry, at, "field"), at),
                         .codec = entry.value("codec", ""),
                         .when = Condition(entry, at, "when")};
    if (entry.contains("setting")) field.setting = KnownSetting(Text(entry, at, "setting"), at);
    if (entry.contains("values")) {
      for (const auto& [value, said] : entry["values"].items()) field.values.emplace_back(NumberOrText(value), said);
    }
    const Json with = entry.value("with", Json::object());
    for (const auto& [setting, value] : with.items()) field.with.emplace_back(KnownSetting(setting, at), value);
    const Json choices = entry.value("choices", Json::array());
    for (const Json& choice : choices) {
      FieldChoice one = {.value = choice.value("value", Json()), .when = Condition(choice, at, "when")};
      const Json said = choice.value("settings", Json::object());
      for (const auto& [setting, value] : said.items()) {
        one.settings.emplace_back(KnownSetting(setting, at), value);
      }
      field.choices.push_back(std::move(one));
    }
    field.reads = Condition(entry, at, "reads");
    if (!field.setting.empty() + !field.choices.empty() + field.reads.has_value() != 1) {
      Fail(at, "one of a setting, choices and reads");
    }
    if (!field.codec.empty() && field.codec != "PIPELINE_LAYOUT") Fail(at + ".codec", "PIPELINE_LAYOUT");
    target_.fields.push_back(std::move(field));
  }

  void AddRule(const Json& entry, const std::string& at) {
    TargetRule rule = {.rule = Text(entry, at, "rule"),
                       .settings = Texts(entry, "settings"),
                       .when = Condition(entry, at, "when"),
                       .requires_ = Condition(entry, at, "requires"),
                       .reason = Text(entry, at, "reason"),
                       .source = Text(entry, at, "source"),
                       .warns_only = entry.value("severity", "") == "WARNING",
                       .broken = Example(entry, "broken"),
                       .mended = Example(entry, "mended"),
                       .facts = entry.value("facts", Json::object())};
    if (entry.contains("gpus")) rule.facts["gpus"] = entry["gpus"];
    if (!rule.requires_) Fail(at + ".requires", "an expression");
    for (const std::string& setting : rule.settings) KnownSetting(setting, at + ".settings");
    target_.rules.push_back(std::move(rule));
  }

  // A key of JSON that stands for a field's number.
  static Json NumberOrText(const std::string& key) {
    const Json number = Json::parse(key, nullptr, /*allow_exceptions=*/false);
    return number.is_number() || number.is_boolean() ? number : Json(key);
  }

  static std::string Example(const Json& entry, const char* name) {
    const Json value = entry.value(name, Json(""));
    return value.is_string() ? value.get<std::string>() : value.dump();
  }

  std::optional<Expression> Condition(const Json& entry, const std::string& at, const char* name) {
    if (!entry.contains(name)) return std::nullopt;
    const std::string text = Text(entry, at, name);
    StatusOr<Expression> expression = Expression::Parse(text);
    if (!expression.ok()) {
      Fail(StrCat(at, ".", name), StrCat("an expression (", expression.status().message(), ")"));
      return std::nullopt;
    }
    for (const std::string& asked : expression->names()) {
      constexpr std::string_view kGiven = "given.";
      if (asked.starts_with(kGiven)) {
        if (std::ranges::find(kFacts, asked.substr(kGiven.size())) != std::end(kFacts)) continue;
        Fail(StrCat(at, ".", name), StrCat("a fact instead of ", asked));
      } else if (target_.LayoutPartOf(asked).empty()) {
        KnownSetting(asked, StrCat(at, ".", name));
      }
    }
    return *std::move(expression);
  }

  std::string KnownSetting(std::string name, const std::string& at) {
    if (target_.Find(name) == nullptr) Fail(at, StrCat("a setting of the table instead of ", name));
    return name;
  }
  std::string KnownField(std::string name, const std::string& at) {
    if (DefaultOf(name) == nullptr) Fail(at, StrCat("a field of a layout instead of ", name));
    return name;
  }

  std::string Text(const Json& entry, const std::string& at, const char* name) {
    if (entry.is_object() && entry.contains(name) && entry[name].is_string() && entry[name] != "") {
      return entry[name].get<std::string>();
    }
    Fail(StrCat(at, at.empty() ? "" : ".", name), "a text");
    return "";
  }
  // Numbers as people write them.
  static std::vector<std::string> Texts(const Json& entry, const char* name) {
    std::vector<std::string> texts;
    const Json all = entry.value(name, Json::array());
    for (const Json& one : all) {
      texts.push_back(one.is_string() ? one.get<std::string>() : one.dump());
    }
    return texts;
  }
  template <typename Value, size_t kSize>
  Value OneOf(const Named<Value> (&values)[kSize], const std::string& name, const std::string& at) {
    const auto* const found = std::ranges::find(values, name, &Named<Value>::name);
    if (found != std::end(values)) return found->value;
    Fail(at, StrCat(values[0].name, " or one of the like instead of '", name, "'"));
    return values[0].value;
  }
  void Fail(const std::string& at, std::string_view expected) {
    if (status_.ok()) status_ = InvalidInput(StrCat(source_name_, ": ", at, ": expected ", expected));
  }

  const Json& root_;
  std::string source_name_;
  Target target_;
  Status status_;
};

}  // namespace

const Setting* Target::Find(std::string_view setting) const {
  const auto found = std::ranges::find(settings, setting, &Setting::name);
  return found == settings.end() ? nullptr : &*found;
}

std::string_view Target::LayoutPartOf(std::string_view name) const {
  const size_t dot = name.rfind('.');
  constexpr std::string_view kParts[] = {"valid", "stages", "layers"};
  if (dot == std::string_view::npos || std::ranges::find(kParts, name.substr(dot + 1)) == std::end(kParts)) return {};
  const std::string_view setting = name.substr(0, dot);
  const bool of_stages = std::ranges::any_of(
      fields, [&](const TargetField& field) { return field.setting == setting && field.codec == "PIPELINE_LAYOUT"; });
  return of_stages ? setting : std::string_view();
}

std::string Target::Cite(const std::string& source) const {
  constexpr size_t kShort = 10;
  // "owner/name:path:line@commit", "path:line@commit" or "path:line".
  const size_t at = source.rfind('@');
  const std::string place = source.substr(0, at);
  const std::string read_at = at == std::string::npos ? commit.substr(0, kShort) : source.substr(at + 1);
  const size_t first = place.find(':');
  const bool names_repository = first != std::string::npos && place.find(':', first + 1) != std::string::npos;
  return names_repository ? StrCat(place.substr(0, first), "@", read_at, place.substr(first))
                          : StrCat(repository, "@", read_at, ":", place);
}

StatusOr<Target> TargetFromJson(std::string_view text, std::string_view source_name) {
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return InvalidInput(StrCat(source_name, ": expected a JSON object"));
  return TableReader(root, source_name).Read();
}

}  // namespace moeplan::planner
