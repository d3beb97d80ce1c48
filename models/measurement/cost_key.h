// What a cost is looked up by, whether it is of a collective or of a kernel: building such keys from a layout, naming
// them, and wording what to do when a profile lacks one.
//
// Pure functions of their arguments.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/cost/profile.h"
#include "models/workload/groups.h"
#include "models/workload/workload.h"

namespace moeplan {

using CostKey = std::variant<CollectiveKey, KernelKey>;

// The DIRECT, uncontended key of a collective over `group`; kAllToAllAllGather also gets its N_MP and N_ESP.
CollectiveKey KeyOf(Collective collective, Group group, const Layout& layout, int gpus_per_node);

// Every uncontended collective that a schedule of this layer or a rule may ask for over groups of more than one rank,
// each once: all-to-alls by every algorithm that is allowed over EP and EP&ESP, gathers and all-reduces over MP and
// ESP. Not kAllToAllAllGather, which has its own stand-in (design.md §4). With the layer's element size.
std::vector<CollectiveKey> LayerCollectives(const Layer& layer, const Layout& layout, int gpus_per_node);
// With the all-reduce of its dense gradients, where it has any.
std::vector<CollectiveKey> LayerCollectives(const Workload& workload, int gpus_per_node);

// The uncontended key of a kernel of this layer. It carries every optional field, so that any entry measured for this
// layer matches; hidden_dim is that of one shard, H / N_ESP, because that is the matrix the GEMM sees. A product's
// kernel is that of the layer's experts.
KernelKey KeyOf(Kernel kernel, const Layer& layer, const Layout& layout);
// A matrix-product kernel on the shared expert, whose hidden dimension is cut over MP. Requires a layer that has one.
KernelKey SharedExpertKey(Kernel kernel, const Layer& layer, const Layout& layout);

// `key` with only the fields that what it measures depends on: none of the optional ones for collectives and copies,
// element and model dimension for GATE, PERMUTE and codecs, all for EXPERT_GEMM; the CTAs always. What measurements and
// messages use.
CostKey Essential(const CostKey& key);

Contention ContentionOf(const CostKey& key);
int CtasOf(const CostKey& key);
// Communication beside a kernel is limited to `ctas_beside`; a collective keeps its own limit.
CostKey WithContention(CostKey key, Contention contention, int ctas_beside = 0);
CostKey WithoutCtas(CostKey key);

std::string Describe(const CostKey& key);

// The key that Describe gives this text for; absent where it is no such text.
std::optional<CostKey> NamedCost(std::string_view text);

// "bytes", or "flops" where CountsFlops.
std::string_view UnitOf(const CostKey& key);

// A size for messages: small whole numbers exactly, others to two digits ("1024", "6.7e+07").
std::string BriefNumber(double value);

// The command that measures what `layout` needs, with the library's own choice of CTAs.
std::string MeasureCommand(const Layout& layout);

// "the profile lacks KEY and KEY; measure with: COMMAND", and how to measure with limited CTAs where a key has them.
// Requires at least one key.
std::string MissingReason(const std::vector<CostKey>& missing, const Layout& layout);

}  // namespace moeplan
