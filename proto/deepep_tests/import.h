// What DeepEP's own tests measured (tests/test_intranode.py, tests/test_internode.py), as samples to fit.
//
// A test prints, from each node, its tokens, their width and top-k, then the best of the settings that it tried, for
// the dispatch in BF16 and for the combine. One sample is half of both together. Its bytes are those of the rows that a
// rank sends, counted once for each node that gets one, its own included, or inside one node once for each rank: what
// the tests' own bandwidths count, between nodes as "RDMA" and inside one as "NVL" (CollectiveKey::dispatcher).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/cost/samples.h"
#include "models/status.h"

namespace moeplan {

struct DeepEpTestsLog {
  std::string path;  // Begins messages.
  std::string text;
};

struct DeepEpTestsOptions {
  std::string name;   // Of the samples.
  GroupShape group;   // That the tests ran on, which they do not print.
  int experts = 256;  // Of tests that do not print them.
  int nodes = 0;      // Of the cluster; 0: those of the group.
  Transport transport = Transport::kNccl;
};

struct DeepEpTestsImport {
  SampleSet samples;               // Valid (ValidateSamples); sorted by size.
  std::vector<std::string> notes;  // What was left out, for a person.
};

// kInvalidInput with the file and the line: a number is none, a bandwidth and a time are not of the bytes that the
// tokens make on such a group, or nothing is left; also for a group, nodes or experts that cannot be. Pure.
StatusOr<DeepEpTestsImport> ImportDeepEpTests(std::span<const DeepEpTestsLog> logs, const DeepEpTestsOptions& options);

}  // namespace moeplan
