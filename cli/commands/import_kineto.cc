#include "cli/commands/import_kineto.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "models/text.h"
#include "proto/convert/training_graph.h"
#include "proto/kineto/import.h"

namespace moeplan::cli {
namespace {

struct KinetoCommandOptions {
  std::string trace;
  KinetoOptions reading;
  bool json = false;
};

// One line for each operation of each pass.
void PrintSummary(const TrainingGraph& graph) {
  struct Sum {
    size_t instructions = 0;
    double time_s = 0, bytes = 0;
  };
  std::map<std::pair<Pass, InstructionOp>, Sum> sums;
  for (const Instruction& one : graph.instructions) {
    Sum& sum = sums[{one.phase, one.op}];
    ++sum.instructions;
    sum.time_s += one.time_s.value_or(0);
    sum.bytes += one.bytes.value_or(0);
  }
  std::vector<std::vector<std::string>> rows = {{"operation", "instructions", "time", "bytes"}};
  for (const auto& [key, sum] : sums) {
    rows.push_back({StrCat(key.first == Pass::kForward ? "FORWARD " : "BACKWARD ", Name(key.second)),
                    StrCat(sum.instructions), Duration(sum.time_s), sum.bytes > 0 ? StrCat(sum.bytes) : ""});
  }
  std::fputs(Table(rows).c_str(), stdout);
}

Status Run(const KinetoCommandOptions& options) {
  const StatusOr<KinetoImport> import = ImportKineto(kineto::TraceInFile(options.trace), options.reading);
  if (!import.ok()) {
    const bool is_option = import.status().message().starts_with("--");
    return is_option ? import.status() : import.status().Within(options.trace);
  }
  for (const std::string& note : import->notes) std::fprintf(stderr, "moeplan: %s\n", note.c_str());
  if (options.json) {
    PrintJson(ToProto(import->graph));
  } else {
    PrintSummary(import->graph);
  }
  return OkStatus();
}

}  // namespace

void AddImportKineto(CLI::App& import, Invocation& invocation) {
  const auto options = std::make_shared<KinetoCommandOptions>();
  CLI::App* command =
      AddCommand(import, invocation, "kineto", "A training graph from what torch.profiler wrote of one rank of any job",
                 "moeplan import kineto rank0.pt.trace.json.gz --ranks-per-node 8 --json > graph.json",
                 [options] { return Run(*options); });
  command
      ->add_option("TRACE", options->trace,
                   "What export_chrome_trace or tensorboard_trace_handler wrote, with record_shapes=True; .json or "
                   ".json.gz")
      ->required();
  command->add_option("--step", options->reading.step, "N of ProfilerStep#N (default: the last whole one)");
  command->add_option("--rank", options->reading.rank, "Rank of the trace, where the trace does not say it");
  command->add_option("--ranks-per-node", options->reading.ranks_per_node,
                      "Ranks of the job on a node, for ranksPerNode of each group");
  command
      ->add_option("--max-parts", options->reading.max_parts,
                   "Most parts of a range; above 1 you say that samples of the batch may be computed apart, which no "
                   "trace shows")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the graph as JSON, for plan --graph");
}

}  // namespace moeplan::cli
