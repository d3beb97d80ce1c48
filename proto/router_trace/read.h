// How often a router chose each expert, from traces that training jobs write as JSON lines.
//
// Of a line, an object, are read
//   top_indices, topk_indices, topk_ids   the experts of each token: [[12, 45], ...], each token once per expert, or of
//                                         one token a list without lists. What Megatron-LM's router tracer writes
//                                         (--moe-routing-trace-path), with
//   num_tokens, topk                      which must fit, where they are there
//   routing_map                           likewise, 0 and 1 or false and true for every token and expert
//   tokens_per_expert                     counts, one for each expert
//   tpe                                   the same for each micro-batch: [[128, 64], ...]. Megatron-LM writes there
//                                         the experts of one rank (--save-tokens-per-experts-interval), which is all
//                                         where a rank holds all experts, and is refused elsewhere
// one of them; and, where one layer is wanted, layer, layer_number or layer_id. Other members are passed over. Lines
// add up: over steps, ranks, files and, unless one is wanted, layers. Records of "block": "mtp" have layer numbers of
// their own; they count only where all layers do. Empty lines are passed over.
//
// Sources: Megatron-LM, megatron/core/transformer/moe/router_trace.py and megatron/training/activation_logging.py.
#pragma once

#include <istream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"

namespace moeplan {

struct RouterTraceOptions {
  int experts = 0;           // E of the layer.
  std::optional<int> layer;  // Absent: all.
};

class RouterTraceReader {
 public:
  // kInvalidInput unless there are 1 to kMaxRoutedExperts experts, and the layer is at least 0.
  static StatusOr<RouterTraceReader> Make(const RouterTraceOptions& options);

  // Adds one trace, line by line, so that it may be of any length; a line has at most kMaxJsonBytes. `path` and the
  // line's number begin every error (kInvalidInput), after which the counts mean nothing.
  Status Read(std::istream& trace, const std::string& path);
  Status ReadFile(const std::string& path);

  // Counts by expert. kInvalidInput when no record was of the layer, or no token anywhere.
  StatusOr<std::vector<double>> TokensPerExpert() const;
  // How many experts a token chose, on average; absent where no record lists tokens one by one.
  std::optional<double> ExpertsPerToken() const;

 private:
  explicit RouterTraceReader(const RouterTraceOptions& options)
      : options_(options), tokens_per_expert_(options.experts, 0) {}
  Status ReadLine(std::string_view line, const std::string& where);

  RouterTraceOptions options_;
  std::vector<double> tokens_per_expert_;
  double listed_tokens_ = 0, listed_pairs_ = 0;  // Of records that list tokens one by one.
  std::set<int> other_layers_;                   // The first few.
  bool found_ = false;
};

}  // namespace moeplan
