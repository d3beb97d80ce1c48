#include "models/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/text.h"

namespace moeplan {
namespace {

using Json = nlohmann::json;
using Names = std::initializer_list<const char*>;

constexpr int kMostOf = kMostDimension;
constexpr size_t kShownText = 40;

// Looks fields up and remembers the first that was wrong, so that what follows reads as a list of facts.
class Fields {
 public:
  Fields(const Json& root, std::string_view source_name) : root_(root), source_name_(source_name) {}

  // The value of the first of `names` that is there and not null; "a.b" is b inside a.
  const Json* Find(Names names, std::string* found_name = nullptr) const {
    for (const std::string name : names) {
      const size_t dot = name.find('.');
      const Json* value = Member(root_, name.substr(0, dot));
      if (value != nullptr && dot != std::string::npos) value = Member(*value, name.substr(dot + 1));
      if (value == nullptr) continue;
      if (found_name != nullptr) *found_name = name;
      return value;
    }
    return nullptr;
  }
  bool Has(Names names) const { return Find(names) != nullptr; }

  // A whole number of `least` to `most`, or `otherwise` where there is none.
  int Number(Names names, int least, int most, int otherwise) {
    std::string name;
    const Json* value = Find(names, &name);
    if (value == nullptr) return otherwise;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (number >= least && number <= most && number == std::floor(number)) return static_cast<int>(number);
    Fail(name, Shown(*value), StrCat("a whole number of ", least, " to ", most));
    return otherwise;
  }
  // A number above 0, or `otherwise` where there is none.
  double Positive(Names names, double otherwise) {
    std::string name;
    const Json* value = Find(names, &name);
    if (value == nullptr) return otherwise;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (std::isfinite(number) && number > 0) return number;
    Fail(name, Shown(*value), "a finite number above 0");
    return otherwise;
  }
  int Needed(Names names, int most) {
    if (!Has(names)) Missing(names);
    return Number(names, 1, most, 1);
  }

  std::string Text(Names names) {
    std::string name;
    const Json* value = Find(names, &name);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    Fail(name, Shown(*value), "a text");
    return {};
  }

  bool Flag(Names names, bool otherwise) {
    std::string name;
    const Json* value = Find(names, &name);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    Fail(name, Shown(*value), "true or false");
    return otherwise;
  }

  // The indices of layers in a list.
  std::optional<std::vector<int>> Indices(Names names, int layers) {
    std::string name;
    const Json* value = Find(names, &name);
    if (value == nullptr) return std::nullopt;
    std::vector<int> indices;
    for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
      const double index = item.is_number_integer() ? item.get<double>() : -1;
      if (index < 0 || index >= layers) {
        Fail(name, Shown(item), StrCat("layers of 0 to ", layers - 1));
        break;
      }
      indices.push_back(static_cast<int>(index));
    }
    return indices;
  }

  void Missing(Names names) {
    std::string all;
    for (const char* name : names) all += StrCat(all.empty() ? "" : " or ", name);
    Fail(all, "nothing", "a whole number of at least 1");
  }
  void Fail(std::string_view name, std::string_view found, std::string_view expected) {
    if (!status_.ok()) return;
    status_ = InvalidInput(StrCat(source_name_, ": ", name, ": found ", found, ", expected ", expected));
  }
  const Status& status() const { return status_; }

 private:
  static const Json* Member(const Json& object, const std::string& name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  static std::string Shown(const Json& value) {
    if (value.is_array()) return "a list";
    if (value.is_object()) return "an object";
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= kShownText ? text : text.substr(0, kShownText) + "...";
  }

  const Json& root_;
  std::string source_name_;
  Status status_;
};

bool IsDivisible(int number, int by) { return by > 0 && number % by == 0; }

void SetMoe(std::vector<bool>& moe, size_t first, size_t count, const auto& rule) {
  for (size_t i = 0; i < count; ++i) moe[first + i] = rule(static_cast<int>(i));
}

// T5's and NLLB's two stacks. Switch Transformers name how many layers have experts, NLLB how far apart they lie.
void ReadStacks(Fields& fields, ModelConfig& model) {
  const int encoder = fields.Needed({"encoder_layers", "num_layers"}, kMostLayers);
  const int decoder = fields.Number({"decoder_layers", "num_decoder_layers"}, 0, kMostLayers, encoder);
  model.encoder_layers = encoder;
  model.moe_layer.assign(encoder + decoder, false);
  const auto fill = [&](size_t first, int layers, Names count_names, Names step_names) {
    if (fields.Has(count_names)) {
      const int sparse = fields.Number(count_names, 0, layers, 0);
      const int step = sparse > 0 ? layers / sparse : 0;
      SetMoe(model.moe_layer, first, layers, [&](int i) { return step == 1 || (step > 0 && i % step == 1); });
    } else {
      const int step = fields.Number(step_names, 0, kMostLayers, 1);
      SetMoe(model.moe_layer, first, layers, [&](int i) { return IsDivisible(i + 1, step); });
    }
  };
  fill(0, encoder, {"num_sparse_encoder_layers"}, {"encoder_sparse_step"});
  fill(encoder, decoder, {"num_sparse_decoder_layers"}, {"decoder_sparse_step"});
}

// Which layers of a decoder have experts, by whichever rule the file states; all where it states none.
std::vector<bool> MoeLayersOfDecoder(Fields& fields, int layers) {
  std::vector<bool> moe(layers, true);
  if (const auto listed = fields.Indices({"moe_layers"}, layers)) {  // Llama 4.
    moe.assign(layers, false);
    for (const int i : *listed) moe[i] = true;
    return moe;
  }
  const int step = fields.Number({"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"}, 0,
                                 kMostLayers, 1);  // Qwen, Llama 4, ERNIE.
  const int first = fields.Number({"first_k_dense_replace", "moe_layer_start_index"}, 0, kMostLayers, 0);
  const int last = fields.Number({"moe_layer_end_index"}, -1, kMostLayers, -1);  // -1: the last layer.
  const int frequency = fields.Number({"moe_layer_freq"}, 1, kMostLayers, 1);    // DeepSeek.
  SetMoe(moe, 0, layers, [&](int i) {
    return IsDivisible(i + 1, step) && i >= first && (last < 0 || i <= last) && i % frequency == 0;
  });
  if (const auto dense = fields.Indices({"mlp_only_layers"}, layers)) {
    for (const int i : *dense) moe[i] = false;
  }
  return moe;
}

void ReadLayers(Fields& fields, ModelConfig& model) {
  if (fields.Has({"mamba_d_state", "mamba_expand", "ssm_state_size"})) {
    fields.Fail("mamba_d_state", "a state-space model", "a model whose layers are all attention and feed-forward");
    return;
  }
  if (fields.Has({"encoder_layers"}) || fields.Has({"num_decoder_layers"}) ||
      fields.Has({"num_sparse_encoder_layers"})) {
    ReadStacks(fields, model);
    return;
  }
  const int layers = fields.Needed({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, kMostLayers);
  model.moe_layer = MoeLayersOfDecoder(fields, layers);
}

void ReadAttention(Fields& fields, ModelConfig& model) {
  model.heads =
      fields.Needed({"num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"}, kMostOf);
  const bool one_key = fields.Flag({"multi_query"}, false);
  model.kv_heads =
      fields.Number({"num_key_value_heads", "attn_config.kv_n_heads"}, 1, kMostOf, one_key ? 1 : model.heads);
  model.head_dim = fields.Number({"head_dim", "d_kv"}, 1, kMostOf, 0);
  LatentAttention& latent = model.latent_attention;
  latent.kv_rank = fields.Number({"kv_lora_rank"}, 0, kMostOf, 0);
  if (latent.kv_rank > 0) {
    latent.q_rank = fields.Number({"q_lora_rank"}, 0, kMostOf, 0);
    latent.nope_head_dim = fields.Needed({"qk_nope_head_dim"}, kMostOf);
    latent.rope_head_dim = fields.Needed({"qk_rope_head_dim"}, kMostOf);
    latent.value_head_dim = fields.Needed({"v_head_dim"}, kMostOf);
    if (model.head_dim == 0) model.head_dim = latent.nope_head_dim + latent.rope_head_dim;
  }
  if (model.head_dim == 0 && !IsDivisible(model.model_dim, model.heads)) {
    fields.Fail("head_dim", "nothing",
                StrCat("a whole number, because ", model.heads, " heads do not divide ", model.model_dim));
  }
  if (model.head_dim == 0) model.head_dim = model.model_dim / model.heads;
  if (!IsDivisible(model.heads, model.kv_heads)) {
    fields.Fail("num_key_value_heads", StrCat(model.kv_heads), StrCat("a divisor of the ", model.heads, " heads"));
  }
}

// Which layers see the last tokens alone, where the file does not list them: in GPT-OSS and Gemma 2 every other, from
// the first on; in Gemma 3 all but every sixth; in Qwen 2 those from max_window_layers on; else all.
std::vector<bool> WindowedByModel(Fields& fields, const ModelConfig& model) {
  const std::string& type = model.model_type;
  const int usual = type == "gpt_oss" || type.starts_with("gemma2") ? 2 : type.starts_with("gemma3") ? 6 : 0;
  const int pattern = fields.Number({"sliding_window_pattern"}, 1, kMostLayers, usual);
  const int first = type.starts_with("qwen2") ? fields.Number({"max_window_layers"}, 0, kMostLayers, 0) : 0;
  std::vector<bool> windowed(model.moe_layer.size());
  for (int i = 0; i < model.layers(); ++i) windowed[i] = i >= first && !(pattern > 0 && IsDivisible(i + 1, pattern));
  return windowed;
}

void ReadWindow(Fields& fields, ModelConfig& model) {
  const int window = fields.Number({"sliding_window"}, 1, kMostOf, 0);
  if (window == 0 || !fields.Flag({"use_sliding_window"}, true)) return;
  model.windowed_layer = WindowedByModel(fields, model);
  if (const Json* types = fields.Find({"layer_types"})) {
    const bool whole = types->is_array() && static_cast<int>(types->size()) == model.layers();
    if (!whole || !std::ranges::all_of(*types, [](const Json& type) { return type.is_string(); })) {
      fields.Fail("layer_types", types->is_array() ? StrCat("a list of ", types->size()) : "no list",
                  StrCat("a text for each of ", model.layers(), " layers"));
      return;
    }
    for (int i = 0; i < model.layers(); ++i) model.windowed_layer[i] = (*types)[i] == "sliding_attention";
  }
  if (std::ranges::find(model.windowed_layer, true) == model.windowed_layer.end()) {
    model.windowed_layer.clear();
    return;
  }
  model.window = window;
}

// T5 says so; a plain activation_function (GPT-2, NLLB) or a GELU or ReLU under hidden_act (BERT, GPT-NeoX) has none
// beside it; SiLU has.
bool IsGated(Fields& fields, const std::string& model_type) {
  if (fields.Has({"feed_forward_proj"})) return fields.Text({"feed_forward_proj"}).starts_with("gated");
  if (fields.Has({"activation_function"})) return false;
  const std::string activation = fields.Text({"hidden_act", "hidden_activation", "ffn_config.ffn_act_fn.name"});
  const bool alone = activation.starts_with("gelu") || activation.starts_with("relu");
  return !alone || model_type.starts_with("gemma");
}

// How the class of a model type routes, where its config leaves it open. Read from modeling_*.py of Hugging Face's
// transformers, and from the code that publishers ship beside their weights.
struct RouterClass {
  std::string_view model_type;
  ScoreFunction function = ScoreFunction::kSoftmax;
  bool raw_weights = false, correction_bias = false;
  std::string_view beyond;  // What Router has no words for; empty: nothing.
};
constexpr ScoreFunction kSoftmax = ScoreFunction::kSoftmax, kSigmoid = ScoreFunction::kSigmoid;
constexpr std::string_view kSharedGate = "the shared expert has a gate of its own";
constexpr std::string_view kCorrectedSoftmax = "choices among probabilities of a softmax are corrected by a bias";
constexpr RouterClass kRouterClasses[] = {
    {"mixtral"},
    {"minimax"},
    {"granitemoe"},
    {"granitemoeshared"},
    {"jetmoe"},
    {"dbrx"},
    {"hunyuan_v1_moe"},
    {"gpt_oss"},
    {"switch_transformers", kSoftmax, true},
    {"qwen3_moe", kSoftmax, true},
    {"olmoe", kSoftmax, true},
    {"flex_olmo", kSoftmax, true},
    {"deepseek_v2", kSoftmax, true},
    {"deepseek_v3", kSigmoid, false, true},
    {"kimi_k2", kSigmoid, false, true},
    {"kimi_linear", kSigmoid, false, true},
    {"glm4_moe", kSigmoid, false, true},
    {"glm4v_moe", kSigmoid, false, true},
    {"glm4v_moe_text", kSigmoid, false, true},
    {"lfm2_moe", kSigmoid, false, true},
    {"dots1", kSigmoid, true, true},
    {"minimax_m2", kSigmoid},
    {"llama4", kSigmoid, true},
    {"llama4_text", kSigmoid, true},
    {"qwen2_moe", kSoftmax, true, false, kSharedGate},
    {"qwen3_next", kSoftmax, false, false, kSharedGate},
    {"qwen3_5_moe", kSoftmax, false, false, kSharedGate},
    {"qwen3_5_moe_text", kSoftmax, false, false, kSharedGate},
    {"ernie4_5_moe", kSoftmax, false, false, kCorrectedSoftmax},
    {"phimoe", kSoftmax, false, false, "experts are chosen one after the other, by sparsemixer"},
};

// A group that routing is not limited to is no group: 0 of them are 1.
void ReadGroups(Fields& fields, ModelConfig& model) {
  Router& router = model.router;
  const Names groups = {"n_group", "num_expert_group"};
  if (fields.Text({"topk_method"}) == "greedy") return;  // DeepSeek-V2-Lite.
  router.expert_groups = std::max(1, fields.Number(groups, 0, model.experts, 1));
  router.groups_per_token = fields.Number({"topk_group"}, 0, model.experts, router.expert_groups);
  if (router.groups_per_token == 0) router.groups_per_token = router.expert_groups;
  if (model.experts % router.expert_groups != 0) {
    fields.Fail("n_group", StrCat(router.expert_groups), StrCat("a divisor of the ", model.experts, " experts"));
  } else if (router.groups_per_token > router.expert_groups ||
             model.top_k > model.experts / router.expert_groups * router.groups_per_token) {
    fields.Fail(
        "topk_group", StrCat(router.groups_per_token),
        StrCat("at most the ", router.expert_groups, " groups, and so many that they have ", model.top_k, " experts"));
  }
}

// Scores, weights and biases. A plan needs none of them, so that what is not known is noted rather than refused.
void ReadRouter(Fields& fields, ModelConfig& model) {
  Router& router = model.router;
  const std::string& type = model.model_type;
  const auto* const known = std::ranges::find(kRouterClasses, type, &RouterClass::model_type);
  const RouterClass by_class = known == std::end(kRouterClasses) ? RouterClass() : *known;
  const std::string function = fields.Text({"scoring_func", "score_function", "moe_router_activation_func"});
  const bool corrects = function == "noaux_tc" || fields.Text({"topk_method"}) == "noaux_tc";
  const bool sigmoid = function.empty() ? by_class.function == kSigmoid || corrects : function != "softmax";
  router.score_function = sigmoid ? kSigmoid : kSoftmax;
  router.correction_bias =
      sigmoid && fields.Flag({"use_routing_bias", "use_expert_bias", "moe_router_enable_expert_bias"},
                             by_class.correction_bias || corrects);
  router.raw_weights = !fields.Flag({"norm_topk_prob", "moe_renormalize"}, !by_class.raw_weights);
  router.weight_scale = fields.Positive({"routed_scaling_factor", "moe_routed_scaling_factor"}, 1);
  const bool is_llama = type.starts_with("llama4"), is_gpt_oss = type == "gpt_oss";
  router.bias = is_gpt_oss;
  router.weighs_input = is_llama && model.top_k == 1;
  model.expert_bias = is_gpt_oss;
  model.swiglu_limit = is_gpt_oss ? fields.Positive({"swiglu_limit"}, 7) : 0;

  model.router_note = by_class.beyond;
  if (known == std::end(kRouterClasses)) {
    model.router_note = StrCat("how model type \"", type, "\" routes is not known here beyond what the config says");
  } else if (sigmoid && !function.empty() && function != "sigmoid" && function != "noaux_tc") {
    model.router_note = StrCat("scores are ", function);
  } else if (corrects && !sigmoid) {
    model.router_note = kCorrectedSoftmax;
  } else if (is_llama && model.top_k > 1) {
    model.router_note = "weights multiply what several experts get";
  } else if (model.top_k == 1 && !router.raw_weights) {
    model.router_note = "the weight of a single expert is 1, and not its score";
  }
}

void ReadExperts(Fields& fields, ModelConfig& model) {
  model.experts = fields.Number(
      {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "ffn_config.moe_num_experts"}, 0,
      kMostExperts, 0);
  if (model.experts == 0) {
    model.moe_layer.assign(model.moe_layer.size(), false);
    return;
  }
  const Names chosen = {
      "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk", "moe_k",
      "ffn_config.moe_top_k"};
  const bool one = model.model_type == "switch_transformers", two = model.model_type == "nllb-moe";
  if (!fields.Has(chosen) && !one && !two) fields.Missing(chosen);
  model.top_k = fields.Number(chosen, 1, kMostExperts, two ? 2 : 1);
  if (model.top_k > model.experts) {
    fields.Fail("num_experts_per_tok", StrCat(model.top_k), StrCat("at most the ", model.experts, " experts"));
  }
  ReadGroups(fields, model);
  ReadRouter(fields, model);
  model.expert_hidden_dim =
      fields.Number({"moe_intermediate_size", "expert_ffn_hidden_size"}, 1, kMostOf, model.dense_hidden_dim);
  if (model.expert_hidden_dim == 0) fields.Missing({"moe_intermediate_size", "intermediate_size"});
  const int shared = fields.Number({"n_shared_experts", "moe_num_shared_experts", "num_shared_experts"}, 0,
                                   kMostExperts, model.model_type.starts_with("llama4") ? 1 : 0);
  const double all_shared = static_cast<double>(shared) * model.expert_hidden_dim;
  if (all_shared > kMostOf) fields.Fail("n_shared_experts", StrCat(shared), "fewer");
  model.shared_hidden_dim = fields.Number({"shared_expert_intermediate_size", "shared_intermediate_size"}, 0, kMostOf,
                                          all_shared > kMostOf ? 0 : static_cast<int>(all_shared));
}

void ReadFeedForward(Fields& fields, ModelConfig& model) {
  model.gated_mlp = IsGated(fields, model.model_type);
  const int usual = fields.Has({"n_embd"}) && model.model_dim <= kMostOf / 4 ? 4 * model.model_dim : 0;  // GPT-2's.
  const int hidden = fields.Number(
      {"intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "ffn_config.ffn_hidden_size", "ffn_dim"}, 1, kMostOf,
      usual);
  model.dense_hidden_dim = hidden;
  ReadExperts(fields, model);
  // Llama 4 has another size where there are no experts; intermediate_size is then that of the experts.
  model.dense_hidden_dim = fields.Number({"intermediate_size_mlp"}, 1, kMostOf, hidden);
  const bool any_dense = model.moe_layers() < model.layers();
  if (any_dense && model.dense_hidden_dim == 0) fields.Missing({"intermediate_size", "n_inner", "d_ff"});
}

StatusOr<Json> Parse(std::string_view text, std::string_view source_name) {
  if (text.size() > kMaxHfConfigBytes) {
    return InvalidInput(
        StrCat(source_name, ": found ", text.size(), " bytes, expected at most ", kMaxHfConfigBytes, " of a config"));
  }
  // Copies of nested values recurse.
  constexpr int kMostDepth = 64;
  bool too_deep = false;
  const auto shallow = [&too_deep](int depth, Json::parse_event_t, Json&) { return !(too_deep |= depth > kMostDepth); };
  Json json = Json::parse(text, shallow, /*allow_exceptions=*/false);
  if (too_deep) {
    return InvalidInput(
        StrCat(source_name, ": found values nested more than ", kMostDepth, " deep, expected a model's config.json"));
  }
  if (json.is_discarded()) return InvalidInput(StrCat(source_name, ": not JSON; expected a model's config.json"));
  if (!json.is_object()) return InvalidInput(StrCat(source_name, ": found no object, expected a model's config.json"));
  // Models that also see or hear keep the text's part in an object of its own.
  const auto inner = json.find("text_config");
  if (inner != json.end() && inner->is_object() && !json.contains("num_hidden_layers")) return Json(*inner);
  return json;
}

}  // namespace

StatusOr<ModelConfig> ModelFromHfConfig(std::string_view text, std::string_view source_name) {
  ASSIGN_OR_RETURN(const Json json, Parse(text, source_name));
  Fields fields(json, source_name);
  ModelConfig model;
  model.model_type = fields.Text({"model_type"});
  model.model_dim = fields.Needed({"hidden_size", "n_embd", "d_model"}, kMostOf);
  ReadLayers(fields, model);
  RETURN_IF_ERROR(fields.status());
  ReadAttention(fields, model);
  ReadWindow(fields, model);
  ReadFeedForward(fields, model);
  model.vocab = fields.Needed({"vocab_size"}, kMostOf);
  model.max_positions =
      fields.Number({"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"}, 1, kMostOf, 0);
  model.tied_embeddings = fields.Flag({"tie_word_embeddings"}, true);
  RETURN_IF_ERROR(fields.status());
  return model;
}

}  // namespace moeplan
