// Names the parts of a layer that selective recomputation computes again in the backward pass rather than keeps, as
// Megatron Core does (recompute_modules). Values only.
#pragma once

#include <initializer_list>
#include <string_view>

namespace moeplan {

enum class RecomputeModule {
  kCoreAttention,  // Attention's scores and what they make of the values.
  kMlaUpProj,      // From normed latent vectors to heads: products, rotary embedding.
  kLayerNorm,      // Norms before attention and before the feed-forward network.
  kMoeAct,         // The activation of experts.
  kMlp,            // Feed-forward networks without experts.
  kSharedExperts,
  kMoe,  // Router, exchanges and experts, shared ones and the activation too.
};
inline constexpr int kRecomputeModules = 7;

// The names of the contract, such as "CORE_ATTN".
std::string_view Name(RecomputeModule module);

class RecomputeModules {
 public:
  RecomputeModules() = default;
  RecomputeModules(std::initializer_list<RecomputeModule> modules) {
    for (const RecomputeModule module : modules) Add(module);
  }

  void Add(RecomputeModule module) { bits_ |= 1U << static_cast<unsigned>(module); }
  bool Has(RecomputeModule module) const { return (bits_ >> static_cast<unsigned>(module) & 1U) != 0; }
  bool empty() const { return bits_ == 0; }

  friend bool operator==(const RecomputeModules&, const RecomputeModules&) = default;

 private:
  unsigned bits_ = 0;
};

}  // namespace moeplan
