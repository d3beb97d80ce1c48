// The keys of the costs that a layer under a layout asks for, and the wording of what to do when a profile lacks one.
//
// Pure functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "models/cost/operation.h"
#include "models/workload/groups.h"
#include "models/workload/workload.h"

namespace moeplan {

// The DIRECT, uncontended key of a collective over `group`; kAllToAllAllGather also gets its N_MP and N_ESP.
CollectiveKey KeyOf(Collective collective, Group group, const Layout& layout, int gpus_per_node);

// Every uncontended collective that a schedule of this layer or a rule may ask for over groups of more than one rank,
// each once: all-to-alls by every algorithm that is allowed over EP and EP&ESP, gathers and all-reduces over MP and
// ESP; and, where EP&ESP lies on several nodes, what the ranks of a node and those of one place on each exchange. Not
// kAllToAllAllGather, which has its own stand-in (design.md §4). With the layer's element size.
std::vector<CollectiveKey> LayerCollectives(const Layer& layer, const Layout& layout, int gpus_per_node);
// With the all-reduce of its dense gradients, where it has any.
std::vector<CollectiveKey> LayerCollectives(const Workload& workload, int gpus_per_node);

// The uncontended key of a kernel of this layer. It carries every optional field, so that any entry measured for this
// layer matches; hidden_dim is that of one shard, H / N_ESP, because that is the matrix the GEMM sees. A product's
// kernel is that of the layer's experts.
KernelKey KeyOf(Kernel kernel, const Layer& layer, const Layout& layout);
// A matrix-product kernel on the shared expert, whose hidden dimension is cut over MP. Requires a layer that has one.
KernelKey SharedExpertKey(Kernel kernel, const Layer& layer, const Layout& layout);

// A size for messages: small whole numbers exactly, others to two digits ("1024", "6.7e+07").
std::string BriefNumber(double value);

// The command that measures what `layout` needs, with the library's own choice of CTAs.
std::string MeasureCommand(const Layout& layout);

// "the profile lacks KEY and KEY; measure with: COMMAND", and how to measure with limited CTAs where a key has them.
// Requires at least one key.
std::string MissingReason(const std::vector<CostKey>& missing, const Layout& layout);

}  // namespace moeplan
