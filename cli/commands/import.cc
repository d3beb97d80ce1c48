#include <cstdio>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/commands/import_kineto.h"
#include "cli/options.h"
#include "models/text.h"
#include "proto/convert/samples.h"
#include "proto/deepep_tests/import.h"
#include "proto/json.h"
#include "proto/nccl_tests/import.h"

namespace moeplan::cli {
namespace {

struct ImportOptions {
  std::vector<std::string> logs;
  std::string name = "nccl-tests";
  std::string collective;
  bool in_place = false;
  std::optional<int> group_size, ranks_per_node, nodes, gpus_per_node;
  int ctas = 0;
  bool json = false;
};

StatusOr<NcclTestsOptions> ReadingOf(const ImportOptions& options) {
  NcclTestsOptions reading = {.name = options.name,
                              .in_place = options.in_place,
                              .nodes = options.nodes,
                              .gpus_per_node = options.gpus_per_node,
                              .ctas = options.ctas};
  if (!options.collective.empty()) {
    reading.collective = NamedValue<Collective>(options.collective);
    if (!reading.collective) {
      return InvalidInput(StrCat("--collective: found ", options.collective,
                                 ", expected one of ALL_TO_ALL, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE"));
    }
  }
  if (options.group_size.has_value() != options.ranks_per_node.has_value()) {
    return InvalidInput("found one of --group-size and --ranks-per-node, expected both or neither");
  }
  if (options.group_size) reading.group = GroupShape{*options.group_size, *options.ranks_per_node};
  return reading;
}

// One line for each key: how many sizes and times.
void PrintSummary(const SampleSet& samples) {
  struct Taken {
    size_t sizes = 0, times = 0;
    double least_bytes = 0, most_bytes = 0;
  };
  std::map<CollectiveKey, Taken> keys;
  for (const Sample& sample : samples.samples) {
    Taken& taken = keys[std::get<CollectiveKey>(sample.key)];
    if (taken.sizes++ == 0) taken.least_bytes = sample.size;
    taken.most_bytes = sample.size;  // They come sorted.
    taken.times += sample.times_s.size();
  }
  std::vector<std::vector<std::string>> rows = {{"key", "sizes", "times", "least bytes", "most bytes"}};
  for (const auto& [key, taken] : keys) {
    rows.push_back(
        {Describe(key), StrCat(taken.sizes), StrCat(taken.times), StrCat(taken.least_bytes), StrCat(taken.most_bytes)});
  }
  std::fputs(Table(rows).c_str(), stdout);
}

void Print(const SampleSet& samples, const std::vector<std::string>& notes, bool json) {
  for (const std::string& note : notes) std::fprintf(stderr, "moeplan: %s\n", note.c_str());
  if (json) {
    PrintJson(ToProto(samples));
  } else {
    PrintSummary(samples);
  }
}

Status Run(const ImportOptions& options) {
  ASSIGN_OR_RETURN(const NcclTestsOptions reading, ReadingOf(options));
  std::vector<NcclTestsLog> logs;
  for (const std::string& path : options.logs) {
    ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, "a log of nccl-tests"));
    logs.push_back({path, std::move(text)});
  }
  ASSIGN_OR_RETURN(const NcclTestsImport import, ImportNcclTests(logs, reading));
  Print(import.samples, import.notes, options.json);
  return OkStatus();
}

struct DeepEpOptions {
  std::vector<std::string> logs;
  std::string transport = "NCCL";
  DeepEpTestsOptions reading = {.name = "deepep-tests"};
  bool json = false;
};

Status RunDeepEp(const DeepEpOptions& options) {
  DeepEpTestsOptions reading = options.reading;
  const auto transport = NamedValue<Transport>(options.transport);
  if (!transport) {
    return InvalidInput(StrCat("--transport: found ", options.transport, ", expected NCCL, NVSHMEM or UCCL"));
  }
  reading.transport = *transport;
  std::vector<DeepEpTestsLog> logs;
  for (const std::string& path : options.logs) {
    ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, "what a test of DeepEP printed"));
    logs.push_back({path, std::move(text)});
  }
  ASSIGN_OR_RETURN(const DeepEpTestsImport import, ImportDeepEpTests(logs, reading));
  Print(import.samples, import.notes, options.json);
  return OkStatus();
}

void AddDeepEp(CLI::App& import, Invocation& invocation) {
  const auto options = std::make_shared<DeepEpOptions>();
  CLI::App* command = AddCommand(import, invocation, "deepep", "Samples from what DeepEP's own tests print",
                                 "moeplan import deepep test_internode.log --group-size 16 --ranks-per-node 8 "
                                 "--transport NVSHMEM --json > samples.json",
                                 [options] { return RunDeepEp(*options); });
  command->add_option("LOG", options->logs, "What test_intranode.py or test_internode.py printed")->required();
  command->add_option("--group-size", options->reading.group.size, "Ranks that it ran on")->required();
  command->add_option("--ranks-per-node", options->reading.group.ranks_per_node, "Ranks on a node")->required();
  command->add_option("--nodes", options->reading.nodes, "Nodes of the cluster, where they are more than it ran on")
      ->check(CLI::PositiveNumber);
  command->add_option("--experts", options->reading.experts, "Of tests that do not print num_experts")
      ->capture_default_str();
  command->add_option("--transport", options->transport, "NCCL, NVSHMEM or UCCL")->capture_default_str();
  command->add_option("--name", options->reading.name, "What a profile of the samples is called")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the samples as JSON");
}

}  // namespace

void AddImport(CLI::App& app, Invocation& invocation) {
  CLI::App* import = app.add_subcommand("import", "Read measurements and traces of other tools");
  import->require_subcommand(1);
  const auto options = std::make_shared<ImportOptions>();
  CLI::App* command =
      AddCommand(*import, invocation, "nccl-tests", "Samples from logs of nccl-tests (text, or its -J)",
                 "moeplan import nccl-tests alltoall_perf.log all_gather_perf.log --json > samples.json",
                 [options] { return Run(*options); });
  command->add_option("LOG", options->logs, "What *_perf programs printed; several are taken together")->required();
  command->add_option("--name", options->name, "What a profile of the samples is called")->capture_default_str();
  command->add_flag("--in-place", options->in_place, "Take the in-place times (default: those out of place)");
  command->add_option("--collective", options->collective, "What logs measured that do not name their program");
  command->add_option("--group-size", options->group_size, "Ranks, for logs without rank lines");
  command->add_option("--ranks-per-node", options->ranks_per_node, "Ranks of the group on a node, likewise");
  command->add_option("--nodes", options->nodes, "Nodes of the cluster, where no log shows them all");
  command->add_option("--gpus-per-node", options->gpus_per_node, "GPUs of a node, likewise");
  command->add_option("--ctas", options->ctas, "NCCL_MAX_CTAS that the logs were taken with (default: not set)");
  command->add_flag("--json", options->json, "Print the samples as JSON");
  AddDeepEp(*import, invocation);
  AddImportKineto(*import, invocation);
}

}  // namespace moeplan::cli
