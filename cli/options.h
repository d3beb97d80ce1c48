// These options are taken by several commands: SOURCE, numbers with units, and files. CLUSTER is in cluster_option.h.
// How results are printed is here, too.
#pragma once

#include <google/protobuf/message.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/planner_option.h"
#include "models/cost/profile.h"
#include "models/hardware/network.h"
#include "models/model/model_config.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/training/training_graph.h"
#include "models/workload/workload.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/wording.h"

namespace moeplan::cli {

// SOURCE is one of --profile, --db and --planner, with --profile-name: where costs come from. Commands that know their
// model and its GPUs also take --hardware, alone or beneath one of them, and the --network that joins it.
class SourceOption {
 public:
  void Add(CLI::App& command);
  void AddWithHardware(CLI::App& command);
  bool given() const { return !profile_file_.empty() || !db_.empty() || planner_.given(); }
  const std::string& db() const { return db_; }  // Empty where the source is another.
  // Returns the value of --hardware; empty: it was not given.
  const std::string& hardware() const { return hardware_; }
  // Loads the profile, from wherever the source is.
  StatusOr<Profile> LoadProfile() const;
  // The same; --hardware for so many GPUs (0: the profile's), whose figures stand in for every cost that the profile
  // does not have.
  StatusOr<Profile> LoadProfileFor(const ModelConfig& model, int gpus) const;
  // The same, and where `gpus` is 0, sets it: to those of --hardware NAME:DxG, else to the profile's.
  StatusOr<Profile> LoadProfileOfJob(const ModelConfig& model, int& gpus) const;
  // Answers a request that names no profile, from wherever the source is; no source need be given for a training graph
  // that has every time. `origin` (the file of the workload or graph) begins the errors about it; those about
  // another field of the request begin with the field.
  StatusOr<v1::PlanResponse> Answer(const v1::PlanRequest& request, const std::string& origin) const;
  // Answers for one workload.
  StatusOr<PlanAnswer> Plan(const Workload& workload, const std::string& origin) const;
  // Prints an answer of the source as JSON, with the fields of a newer planner that this program does not know.
  Status PrintAnswer(const v1::PlanResponse& answer) const;

 private:
  Status CheckOne() const;
  StatusOr<Network> ReadNetwork() const;
  StatusOr<v1::PlanResponse> AskPlanner(v1::PlanRequest request, const std::string& origin) const;

  std::string profile_file_, db_, profile_name_, hardware_, network_;
  bool takes_hardware_ = false;
  PlannerOption planner_;
};

// The help of --extrapolate.
inline constexpr const char* kExtrapolateHelp =
    "Take costs that were not measured from those that were (collectives by their links, products by the nearest "
    "dimensions); warnings name them";

// An error of a request whose fields options gave: it begins with the option instead of the field.
Status AsOption(const Status& status);

// JSON that an option gives as it stands or in the file that it names, and what begins errors about it: the option or
// the file. `expected` is as in ReadTextFile.
struct GivenJson {
  std::string text, source_name;
};
StatusOr<GivenJson> JsonOrFile(const std::string& value, const std::string& option, std::string_view expected);

// Reads "60s", "2m", "500ms", "90d" or "60" as seconds; `option` begins the error.
StatusOr<double> ParseSeconds(const std::string& option, const std::string& text);

// Reads the workloads of a GRID.json, each with a name ("workload 1" where it has none).
StatusOr<std::vector<Workload>> ReadGrid(const std::string& path);
// A training graph, validated.
StatusOr<TrainingGraph> ReadTrainingGraph(const std::string& path);

// Prints the message as the contract's JSON object on standard output.
void PrintJson(const google::protobuf::Message& message);

// Writes a whole file or none, under another name first. A device or a pipe is written into, never replaced.
Status WriteFile(const std::string& path, const std::string& text);

// Writes the moment as RFC 3339 in UTC.
std::string NowText();

using planner::Duration;
using planner::Gigabytes;
using planner::Percent;

// How many threads share work that can be split, where nobody says: one for each processor.
int DefaultThreads();

// Lays out a table with aligned columns, the first to the left, the rest to the right.
std::string Table(const std::vector<std::vector<std::string>>& rows);

// Breaks text into lines of 80 columns, which begin so many columns to the right; the first begins with the label.
std::vector<std::string> Wrapped(const std::string& label, const std::string& text, size_t indent);

// Prints a paragraph of text, broken so.
void PrintParagraph(const std::string& text);

// Shows progress as a bar on standard error while that is a terminal; silent otherwise.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  void Show(double done, const std::string& what);

 private:
  std::string title_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace moeplan::cli
