#include "planner/messages/targets.h"

#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <string>
#include <utility>

#include "models/text.h"
#include "planner/layout/stages.h"
#include "planner/targets/facts.h"
#include "proto/json.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;

google::protobuf::Value ValueOf(const Json& json) {
  google::protobuf::Value value;
  if (json.is_boolean()) value.set_bool_value(json.get<bool>());
  if (json.is_number()) value.set_number_value(json.get<double>());
  if (json.is_string()) value.set_string_value(json.get<std::string>());
  if (json.is_null()) value.set_null_value(google::protobuf::NULL_VALUE);
  if (json.is_array()) {
    value.mutable_list_value();
    for (const Json& element : json) *value.mutable_list_value()->add_values() = ValueOf(element);
  }
  return value;
}

v1::BrokenRule MessageOf(const Violation& violation) {
  v1::BrokenRule message;
  message.set_rule(violation.rule);
  for (const std::string& flag : violation.flags) message.add_flags(flag);
  message.set_reason(violation.reason);
  message.set_source(violation.source);
  return message;
}

std::string WarningText(const Violation& violation) {
  if (violation.rule == kOtherQuestion || violation.rule == kNotRead) return violation.reason;
  return StrCat(violation.rule, ": ", violation.reason, violation.source.empty() ? "" : " (", violation.source,
                violation.source.empty() ? "" : ")");
}

// Frameworks deal layers out evenly or not at all: whatever does not divide is said stage by stage.
void SetStages(const ModelConfig& model, v1::StepLayout& layout) {
  const int pipeline = layout.has_pipeline_parallel() ? layout.pipeline_parallel() : 1;
  const int rounds = layout.has_virtual_stages() ? layout.virtual_stages() : 1;
  const long long stages = 1LL * pipeline * rounds;
  if (pipeline < 2 || rounds < 1 || !layout.stages().empty() || stages > model.layers()) return;
  // A layer that predicts a further token is one more on the last stage, which only a layout of stages can say.
  if (model.layers() % stages == 0 && layout.mtp_layers() == 0) return;
  LayoutRequest request;
  request.model = model;
  request.virtual_stages = rounds;
  request.next_tokens = layout.mtp_layers();
  for (const int layers : LayersOfStages(request, pipeline)) layout.add_stages(layers);
}

}  // namespace

Facts FactsOf(const LaunchNumbers& numbers) {
  Facts facts;
  const std::pair<const char*, int> named[] = {
      {"gpus", numbers.gpus}, {"global_batch", numbers.global_batch}, {"sequence_length", numbers.sequence_length}};
  for (const auto& [name, number] : named) {
    if (number > 0) facts.emplace(name, number);
  }
  return facts;
}

Facts FactsOf(const ModelConfig& model, const LaunchNumbers& numbers) {
  Facts facts = FactsOf(model);
  facts.merge(FactsOf(numbers));
  return facts;
}

v1::ExportedLayout Export(const Target& target, v1::StepLayout layout, const ModelConfig& model,
                          const LaunchNumbers& numbers) {
  SetStages(model, layout);
  return Export(target, layout, FactsOf(model, numbers));
}

v1::ExportedLayout Export(const Target& target, const v1::StepLayout& layout, const Facts& facts) {
  const ExportedLayout exported = ExportLayout(target, Json::parse(ToJson(layout, JsonStyle::kCompact)), facts);
  v1::ExportedLayout message;
  message.set_target(target.name);
  message.set_target_version(target.version_to);
  for (const std::string& token : WriteArguments(target, exported.settings)) message.add_arguments(token);
  for (const std::string& token : WriteArguments(target, exported.of_layout)) message.add_layout_arguments(token);
  if (target.form == SettingsForm::kJson) {
    // A file has no arguments: its settings by their paths.
    for (const auto& [name, value] : exported.of_layout) message.add_layout_arguments(Spelling(target, name, value));
  }
  message.mutable_environment();
  for (const auto& [name, value] : exported.environment) {
    (*message.mutable_environment()->mutable_fields())[name].set_string_value(value);
  }
  message.set_config(WriteConfig(target, exported.settings));
  for (const NotExpressible& one : exported.not_expressible) {
    v1::NotExpressible& entry = *message.add_not_expressible();
    entry.set_field(one.field);
    *entry.mutable_value() = ValueOf(one.value);
    entry.set_reason(one.reason);
  }
  for (const Violation& warning : exported.checked.warnings) message.add_warnings(WarningText(warning));
  if (facts.contains("layers")) {
    message.add_warnings(
        "of the model these settings have the dimensions alone: what its definition says beside (router scores and "
        "their "
        "scale, norms of queries and keys, rotary base, biases, sinks, tokenizer) is yours to add");
  }
  const auto capacity = layout.capacity_factor();
  if (capacity > 0 && !exported.of_layout.empty()) {
    message.add_warnings(StrCat("capacityFactor ", capacity, ": experts drop what exceeds it; 0 is dropless"));
  }
  for (const Violation& violation : exported.checked.violations) *message.add_violations() = MessageOf(violation);
  return message;
}

StatusOr<v1::CheckedSettings> Check(const Target& target, const SettingsRead& read, const Facts& facts) {
  const CheckedSettings checked = CheckSettings(target, read.settings, facts);
  v1::CheckedSettings message;
  for (const Violation& violation : read.violations) *message.add_violations() = MessageOf(violation);
  for (const Violation& violation : checked.violations) *message.add_violations() = MessageOf(violation);
  message.set_valid(message.violations().empty());
  for (const Violation& warning : checked.warnings) message.add_warnings(WarningText(warning));
  if (!read.unknown.empty()) {
    constexpr size_t kMostNamed = 8;
    std::string names;
    for (size_t i = 0; i < std::min(kMostNamed, read.unknown.size()); ++i) {
      names += StrCat(i == 0 ? "" : ", ", read.unknown[i].substr(0, 80));
    }
    message.add_warnings(StrCat(read.unknown.size(), read.unknown.size() == 1 ? " setting was" : " settings were",
                                " not checked, since the table of ", target.title, " does not have ",
                                read.unknown.size() == 1 ? "it: " : "them: ", names,
                                read.unknown.size() > kMostNamed ? ", ..." : ""));
  }
  const Status parsed = ParseJson(checked.layout.dump(), "layout", *message.mutable_layout());
  if (!parsed.ok()) return InternalError(StrCat("the table of ", target.title, ": ", parsed.message()));
  return message;
}

}  // namespace moeplan::planner
