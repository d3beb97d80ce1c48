// Machines that nobody here measured: what their makers and others say of them, and a profile made of that.
//
// Every figure names its source, who measured it and when; a figure that nobody measured says that it is assumed.
// Values only; pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/cost/profile.h"
#include "models/hardware/network.h"
#include "models/model/model_config.h"
#include "models/status.h"

namespace moeplan {

struct Figure {
  double value = 0;
  std::string source, measured_by, date;
  bool assumed = false;
};

struct Hardware {
  std::string name;         // As --hardware takes it.
  std::string title;        // For people.
  int gpus_per_domain = 1;  // That one NVLink domain, or one host, joins.
  // One GPU's peak of dense BF16 products, and how many times as fast products of operands that are already converted to
  // FP8, MXFP8 and NVFP4 are (0: it has none).
  Figure peak_flops_per_s, fp8_speedup, mxfp8_speedup, fp4_speedup;
  Figure memory_bytes, memory_bytes_per_s, processors;
  Figure sustained_share;                            // Of the peak, of long products.
  Figure attention_share, attention_gradient_share;  // Of the peak, of the flops that a causal mask leaves.
  Figure memory_share;                               // Of memory_bytes_per_s, of kernels that move memory.
  Figure launch_s;                                   // Of a short kernel, on the GPU.
  Figure host_launch_s;                              // Of launching one after another; 0: not known.
  // Inside a domain: a collective's bytes through each GPU's links (nccl-tests' bus bandwidth), and its latency.
  Figure all_to_all_bytes_per_s, all_gather_bytes_per_s, reduce_scatter_bytes_per_s, all_reduce_bytes_per_s;
  Figure link_latency_s;
  // Between domains, one direction of one GPU's network card, what collectives reach of it, and their latency.
  Figure network_bytes_per_s, network_share, network_latency_s;
  // 90 % of kernels, and of collectives, lie within time × [1 / ratio, ratio] of what is made of these figures.
  Figure kernel_error_ratio, link_error_ratio;
};

// The name of each figure in a file, and its place.
struct HardwareFigure {
  std::string_view name;
  Figure Hardware::*value;
};
std::span<const HardwareFigure> HardwareFigures();

// {"name", "title", "gpusPerDomain", "figures": {NAME: {"value", "source", "measuredBy", "date"} or {"value", "source",
// "assumed": true}}}. kInvalidInput naming `source_name` and the field.
StatusOr<Hardware> HardwareFromJson(std::string_view text, std::string_view source_name);

// A profile of so many domains of such GPUs for steps of the model. Products and attention have a roofline; collectives
// of every group that the cluster can have, α and β: inside a domain the figures above; between domains an all-to-all
// sends through each GPU's own card, and the others go round over all cards of a domain together; what crosses leaves
// shares their uplinks (models/hardware/network.h).
//
// A group is known by its ranks and those on a domain, so its domains are taken to follow one another, as those of TP,
// CP, EP and dense replicas do in the frameworks' order of ranks. Experts' replicas and neighbours in a pipeline are
// farther apart: where that takes them to other leaves, groups of one rank a domain have an entry for each stride, too.
Profile ProfileOf(const Hardware& hardware, int domains, int gpus_per_domain, const ModelConfig& model,
                  const Network& network = {});

}  // namespace moeplan
