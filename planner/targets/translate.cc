#include "planner/targets/translate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "models/check.h"
#include "models/text.h"
#include "planner/targets/layout_fields.h"
#include "planner/targets/pipeline_layout.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;

// A model that has none of something, such as experts, leaves the setting as it is.
bool IsNone(const Json& fact) { return fact.is_null() || (fact.is_number() && fact == 0); }

// What a name of an expression stands for: what was set, else the fact that the setting repeats, else its default.
class Effective {
 public:
  Effective(const Target& target, const Settings& settings, const Facts& facts)
      : target_(target), settings_(settings), facts_(facts) {}

  Json operator()(std::string_view name) const {
    constexpr std::string_view kGiven = "given.";
    if (name.starts_with(kGiven)) return Fact(name.substr(kGiven.size()));
    if (const std::string_view layout = target_.LayoutPartOf(name); !layout.empty()) {
      return PartOfLayout((*this)(layout), name.substr(layout.size() + 1));
    }
    if (const auto set = settings_.find(name); set != settings_.end()) return set->second;
    const Setting* const setting = target_.Find(name);
    if (setting == nullptr) return nullptr;
    const Json fact = setting->given.empty() ? Json() : Fact(setting->given);
    return IsNone(fact) ? setting->default_value : fact;
  }

  bool Holds(const std::optional<Expression>& condition) const {
    return !condition || IsTrue(condition->Evaluate(*this));
  }

 private:
  static Json PartOfLayout(const Json& said, std::string_view part) {
    if (!said.is_string()) return nullptr;
    const StatusOr<PipelineLayout> layout = ParsePipelineLayout(said.get<std::string>());
    if (part == "valid") return layout.ok();
    if (!layout.ok()) return nullptr;
    if (part == "stages") return layout->layers.size();
    return std::accumulate(layout->layers.begin(), layout->layers.end(), 0);
  }

  // A fact that nobody gave is known where a setting that repeats it is set.
  Json Fact(std::string_view name) const {
    if (const auto given = facts_.find(name); given != facts_.end()) return given->second;
    for (const Setting& setting : target_.settings) {
      if (setting.given != name) continue;
      if (const auto set = settings_.find(setting.name); set != settings_.end()) return set->second;
    }
    return nullptr;
  }

  const Target& target_;
  const Settings& settings_;
  const Facts& facts_;
};

bool Alike(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() == b.get<double>();
  // An absent list is an empty one, and what is not set is not true.
  const auto empty = [](const Json& value) {
    return value.is_null() || value == false || (value.is_array() && value.empty());
  };
  return a == b || (empty(a) && empty(b));
}

// ---- From settings to a field's value.

// Null: the settings say nothing of it.
Json FieldFrom(const TargetField& field, const Effective& effective) {
  if (field.reads) return field.reads->Evaluate(effective);
  for (const FieldChoice& choice : field.choices) {
    const bool agrees =
        std::ranges::all_of(choice.settings, [&](const auto& one) { return Alike(effective(one.first), one.second); });
    if (agrees && effective.Holds(choice.when)) return choice.value;
  }
  if (!field.choices.empty()) return nullptr;
  const Json said = effective(field.setting);
  if (field.codec == "PIPELINE_LAYOUT") {
    if (!said.is_string()) return nullptr;
    const StatusOr<PipelineLayout> parsed = ParsePipelineLayout(said.get<std::string>());
    return parsed.ok() ? Json(parsed->layers) : Json();
  }
  if (field.values.empty()) return said;
  const auto back = [&](const Json& one) -> Json {
    for (const auto& [value, text] : field.values) {
      if (Alike(text, one)) return value;
    }
    return one.is_number() ? one : Json();
  };
  if (!said.is_array()) return back(said);
  Json list = Json::array();
  for (const Json& one : said) {
    if (const Json value = back(one); !value.is_null()) list.push_back(value);
  }
  return list;
}

// ---- From a field's value to settings.

// Empty: it is said now; else why it cannot be.
std::string SayField(const Target& target, const TargetField& field, const Json& value, int next_tokens,
                     Settings& settings) {
  if (!field.choices.empty()) {
    for (const FieldChoice& choice : field.choices) {
      if (!Alike(choice.value, value)) continue;
      for (const auto& [setting, said] : choice.settings) {
        if (!said.is_null()) settings[setting] = said;
      }
      return "";
    }
    return StrCat(target.title, " has no setting for this value");
  }
  if (field.codec == "PIPELINE_LAYOUT") {
    if (!value.is_array() || value.empty()) return "";
    settings[field.setting] = PipelineLayoutText({value.get<std::vector<int>>(), next_tokens});
    return "";
  }
  if (field.values.empty()) {
    const Setting& setting = *target.Find(field.setting);
    // A number of none, such as no capacity, is not said.
    const bool nothing =
        value.is_number() && value == 0 && (setting.default_value.is_null() || (setting.least && *setting.least > 0));
    if (!nothing) settings[field.setting] = value;
    return "";
  }
  const auto said = [&](const Json& one) -> std::optional<Json> {
    for (const auto& [from, to] : field.values) {
      if (Alike(from, one)) return to;
    }
    return std::nullopt;
  };
  if (!value.is_array()) {
    const std::optional<Json> text = said(value);
    // A setting without such names has other values as they are.
    if (!text && !value.is_number()) return StrCat(target.title, " has no setting for this value");
    if (!text) settings[field.setting] = value;
    if (text && !text->is_null()) settings[field.setting] = *text;
    return "";
  }
  Json list = Json::array();
  for (const Json& one : value) {
    const std::optional<Json> text = said(one);
    if (!text) return StrCat(target.title, " has no setting for ", one.dump());
    list.push_back(*text);
  }
  if (!list.empty()) settings[field.setting] = list;
  return "";
}

Json ValueOf(const Json& layout, std::string_view field) {
  const auto found = layout.find(std::string(field));
  if (found != layout.end() && !found->is_null()) return *found;
  const Json* const usual = DefaultOf(field);
  const Json known = usual == nullptr ? Json() : *usual;
  const bool of_plan = std::ranges::find(kPlanFields, field) != std::end(kPlanFields);
  if (!of_plan || !layout.contains("plan") || !layout["plan"].is_object()) return known;
  // A knob of 0 was not chosen.
  const Json knob = layout["plan"].value(std::string(field), known);
  return knob == 0 ? known : knob;
}

// Fields that say nothing of the layout, such as how its contexts exchange where there is one.
std::set<std::string_view> IdleFields(const Json& layout, const Facts& facts) {
  const auto value = [&](std::string_view name) -> Json {
    constexpr std::string_view kGiven = "given.";
    if (!name.starts_with(kGiven)) return ValueOf(layout, name);
    const auto fact = facts.find(name.substr(kGiven.size()));
    return fact == facts.end() ? Json() : fact->second;
  };
  std::set<std::string_view> idle;
  for (const LayoutField& field : LayoutFields()) {
    if (field.matters.empty()) continue;
    const StatusOr<Expression> matters = Expression::Parse(field.matters);
    MOEPLAN_CHECK(matters.ok());
    if (!IsTrue(matters->Evaluate(value))) idle.insert(field.name);
  }
  return idle;
}

std::vector<std::string> FlagsOf(const Target& target, const TargetRule& rule, const Effective& effective) {
  std::vector<std::string> flags;
  for (const std::string& setting : rule.settings) {
    const Json value = effective(setting);
    if (value.is_null() || value == false) continue;
    const std::string spelling = Spelling(target, setting, value);
    if (!spelling.empty()) flags.push_back(spelling);
  }
  return flags;
}

// Whatever is new and the target's default anyway.
void DropDefaults(const Target& target, const Settings& before, Settings& settings) {
  std::erase_if(settings, [&](const auto& entry) {
    const auto& [name, value] = entry;
    return !before.contains(name) && target.Find(name)->default_value == value;
  });
}

// Puts the field into settings by the first entry that can; empty, or why none does.
std::string Say(const Target& target, const LayoutField& field, const Json& value, int next_tokens, const Facts& facts,
                Settings& settings) {
  for (const FieldLimit& limit : target.limits) {
    if (limit.field != field.name) continue;
    const bool runs = std::ranges::any_of(limit.only, [&](const Json& one) { return Alike(one, value); });
    if (!runs) return limit.reason;
  }
  std::string reason;
  bool idle = false;
  for (const TargetField& entry : target.fields) {
    if (entry.field != field.name || entry.reads) continue;
    Settings with = settings;
    const std::string refused = SayField(target, entry, value, next_tokens, with);
    if (!Alike(value, field.default_value)) {
      for (const auto& [setting, beside] : entry.with) with[setting] = beside;
    }
    // What the layout leaves at its default is not said where it is the target's, too; but for degrees, which a script
    // may have set otherwise.
    const bool degree = field.name.ends_with("Parallel") && value.is_number();
    if (!degree && Alike(value, field.default_value)) DropDefaults(target, settings, with);
    if (!refused.empty()) {
      if (reason.empty()) reason = refused;
      continue;
    }
    // An entry that counts under a condition may itself bring it about.
    if (!Effective(target, with, facts).Holds(entry.when)) {
      idle = true;
      continue;
    }
    settings = std::move(with);
    return "";
  }
  const bool limited = std::ranges::any_of(target.limits, [&](const auto& one) { return one.field == field.name; });
  if (idle || limited || Alike(value, field.default_value)) return "";
  return reason.empty() ? StrCat(target.title, " has no setting for ", field.words) : reason;
}

}  // namespace

CheckedSettings CheckSettings(const Target& target, const Settings& settings, const Facts& facts) {
  const Effective effective(target, settings, facts);
  CheckedSettings checked = {.layout = Json::object()};
  for (const auto& [name, value] : settings) {
    const Setting& setting = *target.Find(name);
    const std::string expected = ExpectedOf(setting, value);
    if (expected.empty()) continue;
    checked.violations.push_back({.rule = "value",
                                  .flags = {Spelling(target, name, value)},
                                  .reason = StrCat("found ", value.dump(), "; expected ", expected),
                                  .source = target.Cite(setting.source)});
  }
  for (const TargetRule& rule : target.rules) {
    if (!effective.Holds(rule.when)) continue;
    const Json holds = rule.requires_->Evaluate(effective);
    if (holds.is_null() || IsTrue(holds)) continue;
    Violation violation = {.rule = rule.rule,
                           .flags = FlagsOf(target, rule, effective),
                           .reason = rule.reason,
                           .source = target.Cite(rule.source)};
    (rule.warns_only ? checked.warnings : checked.violations).push_back(std::move(violation));
  }
  for (const NotRead& one : target.not_read) {
    if (!effective.Holds(one.when)) continue;
    std::string said;
    std::vector<std::string> flags;
    for (const std::string& setting : one.settings) {
      const auto set = settings.find(setting);
      if (set == settings.end()) continue;
      flags.push_back(Spelling(target, setting, set->second));
      said += StrCat(said.empty() ? "" : ", ", flags.back());
    }
    checked.warnings.push_back(
        {.rule = kNotRead, .flags = std::move(flags), .reason = StrCat(said, ": ", one.reason), .source = ""});
  }
  std::set<std::string_view> told;
  for (const Setting& setting : target.settings) {
    // The first setting that repeats a fact says it; others may bound it.
    const auto fact = facts.find(setting.given);
    if (setting.given.empty() || fact == facts.end() || !told.insert(setting.given).second) continue;
    const auto set = settings.find(setting.name);
    if (set == settings.end() || Alike(set->second, fact->second)) continue;
    checked.warnings.push_back({.rule = kOtherQuestion,
                                .flags = {Spelling(target, setting.name, set->second)},
                                .reason = StrCat("the settings say ", Spelling(target, setting.name, set->second),
                                                 ", the question says ", fact->second.dump()),
                                .source = ""});
  }
  for (const TargetField& field : target.fields) {
    // Several entries may say one field: the first that says something counts.
    if (checked.layout.contains(field.field) || !effective.Holds(field.when)) continue;
    Json value = FieldFrom(field, effective);
    if (!value.is_null()) checked.layout[field.field] = std::move(value);
  }
  // A layout of stages says how many virtual ones there are.
  const Json stages = checked.layout.value("stages", Json()),
             pipeline = checked.layout.value("pipelineParallel", Json());
  if (stages.is_array() && pipeline.is_number_integer() && pipeline > 0 && !stages.empty() &&
      stages.size() % pipeline.get<size_t>() == 0) {
    checked.layout["virtualStages"] = stages.size() / pipeline.get<size_t>();
  }
  Json plan = Json::object();
  for (const std::string_view name : kPlanFields) {
    const auto knob = checked.layout.find(std::string(name));
    if (knob == checked.layout.end()) continue;
    plan[std::string(name)] = *knob;
    checked.layout.erase(knob);
  }
  const Json schedule = checked.layout.value("schedule", Json());
  if (!plan.empty() && !schedule.is_null()) {
    plan["schedule"] = schedule;
    checked.layout["plan"] = std::move(plan);
  }
  return checked;
}

namespace {

// What is said only beside other settings may come back as something else: then it is not said.
void AddLost(const Target& target, const Json& layout, const std::set<std::string_view>& idle,
             ExportedLayout& exported) {
  for (const LayoutField& field : LayoutFields()) {
    const auto of = [&](const auto& one) { return one.field == field.name; };
    const bool has_entry = std::ranges::any_of(target.fields, of);
    const bool known = std::ranges::any_of(exported.not_expressible, of);
    const Json value = ValueOf(layout, field.name);
    // The schedule that a system has goes by several names.
    if (!has_entry || known || field.name == "schedule" || idle.contains(field.name) || value.is_null()) continue;
    if (std::ranges::find(kPlanFields, field.name) != std::end(kPlanFields)) continue;
    Json back = exported.checked.layout.value(std::string(field.name), field.default_value);
    // A step that hides exchanges behind another micro-batch has shared experts beside nothing, said or not.
    const bool hides = IsTrue(ValueOf(layout, "overlapExpertParallel"));
    if (field.name == "overlapSharedExperts" && hides && !exported.checked.layout.contains(field.name)) back = false;
    if (Alike(back, value)) continue;
    exported.not_expressible.push_back(
        {std::string(field.name), value, StrCat(target.title, " has no setting for it beside the others")});
  }
}

}  // namespace

Settings ToRemove(const Target& target, const Settings& mine, const Settings& wanted, const Facts& facts) {
  const Effective before(target, mine, facts), after(target, wanted, facts);
  std::set<std::string, std::less<>> of_layout;
  for (const TargetField& field : target.fields) {
    if (!field.setting.empty()) of_layout.insert(field.setting);
    for (const auto& [name, value] : field.with) of_layout.insert(name);
    for (const FieldChoice& choice : field.choices) {
      for (const auto& [name, value] : choice.settings) of_layout.insert(name);
    }
  }
  Settings removed;
  for (const auto& [name, value] : mine) {
    if (of_layout.contains(name) && !wanted.contains(name) && !Alike(before(name), after(name))) removed[name] = value;
  }
  return removed;
}

ExportedLayout ExportLayout(const Target& target, const Json& layout, const Facts& facts) {
  ExportedLayout exported;
  const std::set<std::string_view> idle = IdleFields(layout, facts);
  const Json next_tokens = ValueOf(layout, "mtpLayers");
  const int mtp_layers = next_tokens.is_number_integer() ? next_tokens.get<int>() : 0;
  Settings known;
  for (const Setting& setting : target.settings) {
    const auto fact = facts.find(setting.given);
    if (fact != facts.end() && !IsNone(fact->second)) known[setting.name] = fact->second;
  }
  // What every export carries may depend on what the layout says, and the other way round: the second round knows both.
  constexpr int kRounds = 2;
  for (int round = 0; round < kRounds; ++round) {
    Settings settings = known;
    for (const FixedSetting& fixed : target.fixed) {
      if (Effective(target, round == 0 ? known : exported.settings, facts).Holds(fixed.when)) {
        if (target.Find(fixed.setting)->default_value != fixed.value) settings[fixed.setting] = fixed.value;
      }
    }
    exported.not_expressible.clear();
    exported.of_layout.clear();
    for (const LayoutField& field : LayoutFields()) {
      const Json value = ValueOf(layout, field.name);
      const bool open = field.name == "schedule" && value == "UNSPECIFIED";
      if (value.is_null() || open || idle.contains(field.name)) continue;
      const Settings before = settings;
      const std::string reason = Say(target, field, value, mtp_layers, facts, settings);
      for (const auto& [name, said] : settings) {
        const auto was = before.find(name);
        if (was == before.end() || was->second != said) exported.of_layout[name] = said;
      }
      if (!reason.empty()) exported.not_expressible.push_back({std::string(field.name), value, reason});
    }
    exported.settings = std::move(settings);
  }
  for (const Setting& setting : target.settings) {
    const auto of_question = {"gpus", "global_batch", "sequence_length"};
    if (std::ranges::find(of_question, setting.given) == of_question.end()) continue;
    const auto set = exported.settings.find(setting.name);
    if (set != exported.settings.end()) exported.of_layout.insert(*set);
  }
  for (const EnvironmentVariable& variable : target.environment) {
    if (!Effective(target, exported.settings, facts).Holds(variable.when)) continue;
    exported.environment.try_emplace(variable.name, variable.value);
  }
  exported.checked = CheckSettings(target, exported.settings, facts);
  AddLost(target, layout, idle, exported);
  return exported;
}

}  // namespace moeplan::planner
