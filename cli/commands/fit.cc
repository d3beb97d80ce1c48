#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "models/fit/fit.h"
#include "models/text.h"
#include "moeplan/v1/samples.pb.h"
#include "proto/convert/profile.h"
#include "proto/convert/samples.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct FitOptions {
  std::vector<std::string> samples;
  bool json = false;
};

StatusOr<SampleSet> ReadSamples(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::Samples>(text, path));
  StatusOr<SampleSet> samples = SamplesFromProto(message);
  if (!samples.ok()) return samples.status().Within(path);
  return samples;
}

// The name is that of the first file; all must be of one cluster. What a file does not know of it, another may.
StatusOr<SampleSet> ReadAll(const std::vector<std::string>& paths) {
  ASSIGN_OR_RETURN(SampleSet all, ReadSamples(paths.front()));
  for (size_t i = 1; i < paths.size(); ++i) {
    ASSIGN_OR_RETURN(const SampleSet more, ReadSamples(paths[i]));
    if (more.cluster.nodes != all.cluster.nodes || more.cluster.gpus_per_node != all.cluster.gpus_per_node) {
      return InvalidInput(StrCat(paths[i], ": cluster: found ", more.cluster.nodes, " nodes of ",
                                 more.cluster.gpus_per_node, " GPUs, expected ", all.cluster.nodes, " of ",
                                 all.cluster.gpus_per_node, " as in ", paths.front()));
    }
    for (double Cluster::*known : {&Cluster::peak_flops_per_s, &Cluster::device_memory_bytes,
                                   &Cluster::node_link_bytes_per_s, &Cluster::network_bytes_per_s}) {
      if (all.cluster.*known == 0) all.cluster.*known = more.cluster.*known;
    }
    all.samples.insert(all.samples.end(), more.samples.begin(), more.samples.end());
  }
  return all;
}

void PrintSummary(const Profile& profile) {
  std::vector<std::vector<std::string>> rows = {{"key", "model", "alpha", "beta", "error", "rejected"}};
  const auto add = [&](const std::string& name, const CostModel& model) {
    const auto* own = std::get_if<AlphaBeta>(&model.curve);
    const AlphaBeta line = model.summary ? *model.summary : own != nullptr ? *own : AlphaBeta{};
    char beta[32];
    std::snprintf(beta, sizeof beta, "%.3g", line.beta_s_per_unit);
    const std::string error = model.fit ? Percent(model.fit->relative_error_p50) : "";
    rows.push_back({name, std::string(FormName(model.curve)), Duration(line.alpha_s), beta, error,
                    StrCat(model.fit ? model.fit->outliers : 0)});
  };
  for (const CollectiveModel& entry : profile.collectives) add(Describe(entry.key), entry.model);
  for (const KernelModel& entry : profile.kernels) add(Describe(entry.key), entry.model);
  std::fputs(Table(rows).c_str(), stdout);
}

Status Run(const FitOptions& options) {
  ASSIGN_OR_RETURN(const SampleSet samples, ReadAll(options.samples));
  ASSIGN_OR_RETURN(const Profile profile, FitProfile(samples));
  if (options.json) {
    PrintJson(ToProto(profile));
  } else {
    PrintSummary(profile);
  }
  return OkStatus();
}

}  // namespace

void AddFit(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<FitOptions>();
  CLI::App* command = AddCommand(app, invocation, "fit", "Fit cost models to samples",
                                 "moeplan fit --samples samples.json --json", [options] { return Run(*options); });
  command->add_option("--samples", options->samples, "SAMPLES.json; may be repeated, and is merged")
      ->required()
      ->take_all();
  command->add_flag("--json", options->json, "Print the profile as JSON");
}

}  // namespace moeplan::cli
