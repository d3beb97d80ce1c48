// The settings of one training system, a target, in a range of its versions: what they are called, which field of a
// layout each one says, and what the target itself refuses. A table is data (deploy/targets); nothing of a target
// stands in code.
//
// A table is read in both directions (translate.h): from a layout to settings, and from settings to a layout and the
// rules that they break. Values only; a Target may be read by several threads at once.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/status.h"
#include "planner/targets/expression.h"

namespace moeplan::planner {

// How a target takes its settings.
enum class SettingsForm {
  kFlags,        // --tensor-model-parallel-size 2
  kDottedFlags,  // --parallelism.expert_parallel_degree 8
  kOverrides,    // model.tensor_model_parallel_size=2
  kJson,         // A nested file; a setting's name is its path.
  kCall,         // top_k=2, of a call in Python
};

enum class SettingType { kInteger, kNumber, kBoolean, kString, kList };

struct Setting {
  std::string name;  // As expressions say it.
  SettingType type = SettingType::kString;
  nlohmann::json default_value;      // Null: none.
  std::vector<std::string> choices;  // Of a text, or of a list's elements; empty: any.
  std::optional<double> least;
  std::string given;        // The fact of the question that it repeats (Facts); empty: none.
  std::string flag;         // Its spelling where it is not made of the name.
  nlohmann::json constant;  // What a flag without a value sets it to; null: True, of a boolean.
  std::string source;       // path:line, in the table's repository.
};

struct FieldChoice {
  nlohmann::json value;
  std::vector<std::pair<std::string, nlohmann::json>> settings;  // All of them say it.
  std::optional<Expression> when;                                // It is read back only where this holds.
};

// How a field of a layout is said: by one setting, or by a choice among several combinations of settings. Where a field
// has several entries, the first that can says it, and the first whose settings say something is read back.
struct TargetField {
  std::string field;
  std::string setting;
  // The field's, and the setting's, null where it is not set; empty: alike.
  std::vector<std::pair<nlohmann::json, nlohmann::json>> values;
  std::vector<FieldChoice> choices;                          // Read back is the first that agrees.
  std::vector<std::pair<std::string, nlohmann::json>> with;  // Set beside the setting, when it is said.
  std::string codec;                                         // PIPELINE_LAYOUT, or empty.
  std::optional<Expression> reads;  // In place of a setting: what is read back; a layout is not said by it.
  std::optional<Expression> when;
};

// What every export carries.
struct FixedSetting {
  std::string setting;
  nlohmann::json value;
  std::optional<Expression> when;
  std::string reason;
};

struct EnvironmentVariable {
  std::string name, value, reason, source;
  std::optional<Expression> when;
};

// A target runs only these values of the field.
struct FieldLimit {
  std::string field;
  std::vector<nlohmann::json> only;
  std::string reason;
};

// Something that settings say and no layout can: the layout that is read has it otherwise.
struct NotRead {
  std::vector<std::string> settings;
  std::optional<Expression> when;
  std::string reason;
};

// A field that a running job can change.
struct LiveField {
  std::string field, reason, source;
};

struct TargetRule {
  std::string rule;
  std::vector<std::string> settings;  // That it is about.
  std::optional<Expression> when;
  std::optional<Expression> requires_;  // Always there.
  std::string reason, source;
  bool warns_only = false;  // The target goes on, but does something else than it was told.
  // An example that breaks this rule alone, and one thing in it mended, in the target's own form, with what they are
  // set for.
  std::string broken, mended;
  nlohmann::json facts = nlohmann::json::object();
};

struct Target {
  std::string name, title, version_from, version_to, repository, commit;
  SettingsForm form = SettingsForm::kFlags;
  std::string section;  // Flags in a file stand under this key; empty: on top.
  std::vector<Setting> settings;
  std::vector<TargetField> fields;
  std::vector<FixedSetting> fixed;
  std::vector<EnvironmentVariable> environment;
  std::vector<FieldLimit> limits;
  std::vector<NotRead> not_read;
  std::vector<LiveField> live;
  std::vector<TargetRule> rules;

  // The first entry of that name; null: there is none.
  const Setting* Find(std::string_view setting) const;
  // Gives NAME for "NAME.PART", where the setting NAME is a layout of stages; else empty. Parts are "valid", "stages"
  // and "layers", all null where the setting is not set.
  std::string_view LayoutPartOf(std::string_view name) const;
  // "repository@commit:path:line", or with the repository and the commit that the source itself names.
  std::string Cite(const std::string& source) const;
};

// Numbers of the question that settings repeat and rules ask for as given.NAME: "gpus", "layers", "experts", "top_k",
// "heads", "kv_heads", "head_dim", "model_dim", "dense_hidden_dim", "expert_hidden_dim", "shared_hidden_dim", "vocab",
// "global_batch", "sequence_length", "expert_groups", "groups_per_token"; of latent attention "q_rank", "kv_rank",
// "nope_head_dim", "rope_head_dim", "value_head_dim"; "tied_embeddings"; and "moe_layer_freq", which layers have
// experts, as Megatron writes it: "([0]*3+[1]*58)".
using Facts = std::map<std::string, nlohmann::json, std::less<>>;

// kInvalidInput naming `source_name` and the entry: the text is no table, an expression is none or asks for a setting
// that the table lacks, or a field's name is not one of a layout's.
StatusOr<Target> TargetFromJson(std::string_view text, std::string_view source_name);

}  // namespace moeplan::planner
