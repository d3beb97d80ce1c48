#include "models/step/layer_work.h"

#include <algorithm>

namespace moeplan {
namespace {

// Passes over a tensor: a norm reads and writes, backward reads two and writes one; a sum reads two and writes one.
MovedWork Norm(double bytes, std::optional<RecomputeModule> module = std::nullopt) {
  return {.kernel = Kernel::kNorm, .forward_bytes = 2 * bytes, .backward_bytes = 3 * bytes, .module = module};
}
MovedWork Residual(double bytes) {
  return {.kernel = Kernel::kResidual, .forward_bytes = 3 * bytes, .backward_bytes = 3 * bytes};
}

// Read and written once each pass, in one launch a tensor.
MovedWork InPlace(Kernel kernel, double bytes, int launches) {
  return {.kernel = kernel,
          .forward_bytes = 2 * bytes,
          .backward_bytes = 2 * bytes,
          .forward_launches = launches,
          .backward_launches = launches};
}

// A copy counts what it copies once.
MovedWork Copies(double bytes, int launches) {
  return {.kernel = Kernel::kDeviceCopy,
          .forward_bytes = bytes,
          .backward_bytes = bytes,
          .forward_launches = launches,
          .backward_launches = launches};
}

MovedWork Of(RecomputeModule module, MovedWork work) {
  work.module = module;
  return work;
}

class AttentionBlock {
 public:
  AttentionBlock(const ModelConfig& model, const RankSlice& slice)
      : model_(model),
        slice_(slice),
        tensor_(slice.tensor_parallel),
        heads_(std::max(1, model.heads / tensor_)),
        kv_heads_(std::max(1, model.kv_heads / tensor_)),
        row_bytes_(slice.tokens * slice.bytes_per_element) {}

  BlockWork Work() {
    const double own_bytes = slice_.own_tokens() * model_.model_dim * slice_.bytes_per_element;
    work_.moved = {Norm(own_bytes, RecomputeModule::kLayerNorm), Residual(own_bytes)};
    model_.latent_attention.kv_rank > 0 ? AddLatent() : AddGrouped();
    return std::move(work_);
  }

 private:
  void AddLinear(int in_features, int out_features, std::optional<RecomputeModule> module = std::nullopt) {
    work_.linears.push_back(
        {.rows = slice_.tokens, .in_features = in_features, .out_features = out_features, .module = module});
  }

  void AddGrouped() {
    const int dim = model_.head_dim;
    AddLinear(model_.model_dim, (heads_ + 2 * kv_heads_) * dim);
    AddLinear(heads_ * dim, model_.model_dim);
    work_.moved.push_back(InPlace(Kernel::kRotary, row_bytes_ * (heads_ + kv_heads_) * dim, /*launches=*/2));
    AddScores(kv_heads_, dim, dim);
  }

  // DeepSeek-V2 §2.1: down to the latent vectors, their norms, up to heads; position on a part of each head alone,
  // which is copied beside the rest.
  void AddLatent() {
    const LatentAttention& latent = model_.latent_attention;
    const int query_key = latent.nope_head_dim + latent.rope_head_dim, value = latent.value_head_dim;
    constexpr RecomputeModule kUp = RecomputeModule::kMlaUpProj;
    if (latent.q_rank > 0) {
      AddLinear(model_.model_dim, latent.q_rank);
      AddLinear(latent.q_rank, heads_ * query_key, kUp);
      work_.moved.push_back(Norm(row_bytes_ * latent.q_rank));
    } else {
      AddLinear(model_.model_dim, heads_ * query_key);
    }
    AddLinear(model_.model_dim, latent.kv_rank + latent.rope_head_dim);
    AddLinear(latent.kv_rank, heads_ * (latent.nope_head_dim + value), kUp);
    work_.moved.push_back(Norm(row_bytes_ * latent.kv_rank));
    AddLinear(heads_ * value, model_.model_dim);
    work_.moved.push_back(
        Of(kUp, InPlace(Kernel::kRotary, row_bytes_ * heads_ * latent.rope_head_dim, /*launches=*/2)));
    work_.moved.push_back(Of(kUp, Copies(2 * row_bytes_ * heads_ * query_key, /*launches=*/2)));
    AddScores(heads_, query_key, value);
  }

  void AddScores(int kv_heads, int query_key, int value) {
    const int cut = slice_.exchanges_heads ? slice_.context_parallel : 1;
    // Stored scores are computed whole, whatever the mask leaves out.
    const bool sees_all = slice_.stores_scores || slice_.window >= slice_.sequence_length;
    KernelShape shape = {.heads = heads_,
                         .kv_heads = std::max(1, kv_heads / cut),
                         .query_key_dim = query_key,
                         .value_dim = value,
                         .sequence = slice_.sequence_length,
                         .window = sees_all ? 0 : slice_.window};
    const double flops = slice_.tokens / slice_.sequence_length * AttentionFlops(shape);
    shape.heads = std::max(1, heads_ / cut);
    work_.attention = {.shape = shape, .flops = flops};
    if (slice_.stores_scores) AddStoredScores();
    if (cut == 1) return;
    constexpr int kTensors = 4, kCopies = 2;  // Before and after each exchange.
    const double elements = heads_ * (query_key + value) + kv_heads * (query_key + value);
    work_.moved.push_back(Copies(kCopies * row_bytes_ * elements, kTensors * kCopies));
  }

  void AddStoredScores() {
    work_.attention->flops *= 2;  // No block is left out for its mask.
    // Forward, the first product writes them, the softmax reads and writes them, the second product reads them.
    // Backward, their gradients are written, the softmax reads both and writes, and three products read.
    constexpr double kForward = 4, kBackward = 7;
    constexpr int kLaunches = 3;
    const double bytes = row_bytes_ * slice_.sequence_length * heads_;
    work_.moved.push_back({.kernel = Kernel::kActivation,
                           .forward_bytes = kForward * bytes,
                           .backward_bytes = kBackward * bytes,
                           .forward_launches = kLaunches,
                           .backward_launches = kLaunches,
                           .module = RecomputeModule::kCoreAttention});
  }

  const ModelConfig& model_;
  const RankSlice& slice_;
  int tensor_, heads_, kv_heads_;
  double row_bytes_;
  BlockWork work_;
};

}  // namespace

KernelShape LinearWork::shape() const {
  return {.in_features = in_features, .out_features = out_features, .experts = experts};
}

double LinearWork::flops() const { return 2 * rows * in_features * out_features; }

MovedWork ActivationWork(double rows, double hidden_dim, int matrices, int bytes_per_element) {
  const double bytes = rows * hidden_dim * bytes_per_element;
  const int inputs = matrices - 1;
  return {
      .kernel = Kernel::kActivation, .forward_bytes = (inputs + 1) * bytes, .backward_bytes = (2 * inputs + 1) * bytes};
}

std::vector<LinearWork> ExpertLinears(int model_dim, int hidden_dim, int matrices, double rows, int experts) {
  return {{.rows = rows, .in_features = model_dim, .out_features = (matrices - 1) * hidden_dim, .experts = experts},
          {.rows = rows, .in_features = hidden_dim, .out_features = model_dim, .experts = experts}};
}

BlockWork AttentionBlockWork(const ModelConfig& model, const RankSlice& slice) {
  return AttentionBlock(model, slice).Work();
}

namespace {

BlockWork FeedForward(const ModelConfig& model, const RankSlice& slice, int hidden_dim, RecomputeModule module) {
  const int own_hidden = std::max(1, hidden_dim / slice.tensor_parallel);
  BlockWork work = {
      .linears = ExpertLinears(model.model_dim, own_hidden, model.ffn_matrices(), slice.tokens, /*experts=*/1),
      .attention = {},
      .moved = {Of(module, ActivationWork(slice.tokens, own_hidden, model.ffn_matrices(), slice.bytes_per_element))}};
  for (LinearWork& linear : work.linears) linear.module = module;
  return work;
}

double OwnRowBytes(const ModelConfig& model, const RankSlice& slice) {
  return slice.own_tokens() * model.model_dim * slice.bytes_per_element;
}

}  // namespace

BlockWork DenseBlockWork(const ModelConfig& model, const RankSlice& slice) {
  BlockWork work = FeedForward(model, slice, model.dense_hidden_dim, RecomputeModule::kMlp);
  for (const MovedWork& moved : AroundExpertsWork(model, slice).moved) work.moved.push_back(moved);
  return work;
}

BlockWork AroundExpertsWork(const ModelConfig& model, const RankSlice& slice) {
  const double bytes = OwnRowBytes(model, slice);
  return {.linears = {}, .attention = {}, .moved = {Norm(bytes, RecomputeModule::kLayerNorm), Residual(bytes)}};
}

BlockWork SharedExpertWork(const ModelConfig& model, const RankSlice& slice) {
  BlockWork work = FeedForward(model, slice, model.shared_hidden_dim, RecomputeModule::kSharedExperts);
  work.moved.push_back(Residual(OwnRowBytes(model, slice)));
  return work;
}

BlockWork EmbeddingWork(const ModelConfig& model, const RankSlice& slice) {
  constexpr double kFp32 = 4;
  const double elements = slice.tokens * model.model_dim;
  return {.linears = {},
          .attention = {},
          .moved = {{.kernel = Kernel::kEmbedding,
                     .forward_bytes = 2 * elements * slice.bytes_per_element,
                     .backward_bytes = elements * (slice.bytes_per_element + 2 * kFp32),
                     .backward_launches = 2}}};
}

BlockWork HeadWork(const ModelConfig& model, const RankSlice& slice) {
  const int own_vocab = (model.vocab + slice.tensor_parallel - 1) / slice.tensor_parallel;
  const double logit_bytes = slice.tokens * own_vocab * slice.bytes_per_element;
  BlockWork work = {
      .linears = {},
      .attention = {},
      .moved = {Norm(OwnRowBytes(model, slice)), InPlace(Kernel::kCrossEntropy, logit_bytes, /*launches=*/1)}};
  if (own_vocab > 0) {
    work.linears = {
        {.rows = slice.tokens, .in_features = model.model_dim, .out_features = own_vocab, .keeps_precision = true}};
  }
  return work;
}

BlockWork JoinWork(const ModelConfig& model, const RankSlice& slice) {
  const double bytes = OwnRowBytes(model, slice);
  return {.linears = {{.rows = slice.tokens,
                       .in_features = kJoinedWidth * model.model_dim,
                       .out_features = std::max(1, model.model_dim / slice.tensor_parallel)}},
          .attention = {},
          .moved = {Norm(bytes), Norm(bytes), Copies(kJoinedWidth * bytes, /*launches=*/1)}};
}

double RouterPasses(int experts, int model_dim, int bytes_per_element) {
  constexpr double kTokens = 3, kScoreBytes = 4 * 4;
  return kTokens + kScoreBytes * experts / (1.0 * bytes_per_element * model_dim);
}

double PermutePasses(int top_k) { return 3 + 1.0 / top_k; }

double OptimizerBytes(double parameters, double shards, int bytes_per_element, int gradient_bytes) {
  constexpr double kFp32 = 4;
  const double cleared = gradient_bytes, scaled = 2.0 * gradient_bytes, norm = gradient_bytes;
  const double adam_reads = gradient_bytes + 3 * kFp32;
  constexpr double kAdamWrites = 3 * kFp32;
  return parameters * (cleared + scaled) + parameters / shards * (norm + adam_reads + kAdamWrites + bytes_per_element);
}

}  // namespace moeplan
