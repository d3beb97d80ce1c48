// Options that several commands take: SOURCE, numbers with units, files, and how results are printed. CLUSTER is in
// cluster_option.h.
#pragma once

#include <google/protobuf/message.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/planner_option.h"
#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/training/training_graph.h"
#include "models/workload/workload.h"
#include "moeplan/v1/plan.pb.h"

namespace moeplan::cli {

// What is asked of the candidates of a layer, as in PlanOptions.
struct CandidateOptions {
  int top = 0;               // 0: all.
  bool extrapolate = false;  // From the profile's links (models/links/link_model.h).
  std::optional<int> budget_nodes;
};

// One of --profile, --db, --planner, with --profile-name.
class SourceOption {
 public:
  void Add(CLI::App& command);
  bool given() const { return !profile_file_.empty() || !db_.empty() || planner_.given(); }
  const std::string& db() const { return db_; }  // Empty: another source.
  // The profile, from wherever the source is.
  StatusOr<Profile> LoadProfile() const;
  // The answer for one workload, from wherever the source is; `origin` (its file) begins errors about the workload.
  StatusOr<PlanAnswer> Plan(const Workload& workload, const std::string& origin,
                            const CandidateOptions& options = {}) const;
  // Likewise for a validated training graph; no source need be given where it has every time.
  StatusOr<GraphPlanAnswer> Plan(const TrainingGraph& graph, const std::string& origin) const;

 private:
  Status CheckOne() const;
  StatusOr<v1::PlanResponse> AskPlanner(v1::PlanRequest request, const std::string& origin) const;

  std::string profile_file_, db_, profile_name_;
  PlannerOption planner_;
};

// Of --extrapolate.
inline constexpr const char* kExtrapolateHelp =
    "Take costs that were not measured from those that were (collectives by their links, products by the nearest "
    "dimensions); warnings name them";

// "60s", "2m", "500ms", "90d", "60": seconds.
StatusOr<double> ParseSeconds(const std::string& option, const std::string& text);

// The workloads of a GRID.json, each with a name ("workload 1" where it has none).
StatusOr<std::vector<Workload>> ReadGrid(const std::string& path);

// Prints the message as the contract's JSON object on standard output.
void PrintJson(const google::protobuf::Message& message);

// Writes a whole file or none, under another name first. A device or a pipe is written into, never replaced.
Status WriteFile(const std::string& path, const std::string& text);

// The moment as RFC 3339 in UTC.
std::string NowText();

// "1.23 ms", "4.5 s".
std::string Duration(double seconds);
// 0.123: "12.3 %".
std::string Percent(double share);

// Threads for work that can be split, where nobody says: one for each processor.
int DefaultThreads();

// A table with aligned columns, the first to the left, the rest to the right.
std::string Table(const std::vector<std::vector<std::string>>& rows);

// A bar on standard error while that is a terminal; silent otherwise.
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
