#include <cstdio>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/csv.h"
#include "cli/dispatchers.h"
#include "cli/options.h"
#include "cli/output.h"
#include "models/text.h"
#include "planner/search/candidate.h"
#include "planner/sweep/sweep.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct WhatIfOptions {
  SourceOption source;
  std::string workload;
  DispatcherOptions dispatchers;
  std::vector<std::string> sweep;
  int threads = 0;
  bool threads_given = false;
  bool extrapolate = false;
  bool json = false, jsonl = false, csv = false;
};

// ---- Printers take the rows as they are found.

class RowPrinter {
 public:
  virtual ~RowPrinter() = default;
  virtual void Begin() {}
  virtual void Print(const planner::SweepRow& row) = 0;
  virtual void End() {}
};

// Prints one object, as PrintJson would, once it is whole.
class JsonPrinter final : public RowPrinter {
 public:
  explicit JsonPrinter(const planner::Sweep& sweep) : sweep_(sweep) {}

  void Print(const planner::SweepRow& row) override {
    rows_ += rows_.empty() ? "\n    " : ",\n    ";
    std::string text = ToJson(sweep_.ToProto(row));
    text.pop_back();  // Takes the line break at its end away.
    for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
      text.insert(at + 1, "    ");
    rows_ += text;
  }
  void End() override { cli::Print(StrCat("{\n  \"rows\": [", rows_, "\n  ]\n}\n")); }

 private:
  const planner::Sweep& sweep_;
  std::string rows_;
};

class JsonLinesPrinter final : public RowPrinter {
 public:
  explicit JsonLinesPrinter(const planner::Sweep& sweep) : sweep_(sweep) {}

  void Print(const planner::SweepRow& row) override {
    cli::Print(ToJson(sweep_.ToProto(row), JsonStyle::kCompact) + "\n");
  }

 private:
  const planner::Sweep& sweep_;
};

// Writes shares as "0.25;0.5;0.25".
std::string SharesText(const std::vector<double>& shares) {
  std::string text;
  for (const double share : shares) text += StrCat(text.empty() ? "" : ";", share);
  return text;
}

class CsvPrinter final : public RowPrinter {
 public:
  explicit CsvPrinter(const planner::Sweep& sweep) : header_(sweep.paths()), extrapolates_(sweep.extrapolates()) {}

  void Begin() override {
    for (const char* column :
         {"schedule", "chunks", "partitionDegree", "allToAll", "dispatchCodec", "combineCodec", "overlappedGather",
          "chunkShares", "predictedTimeS", "lowS", "highS", "communicationTimeS", "exposedCommunicationS",
          "computeTimeS", "memoryBytes", "communicationCtas", "reason"}) {
      header_.emplace_back(column);
    }
    if (extrapolates_) header_.emplace_back("extrapolated");
    cli::Print(CsvRecord(header_));
  }
  void Print(const planner::SweepRow& row) override {
    std::vector<std::string> cells;
    for (const planner::SweepValue& value : row.values) cells.push_back(planner::TextOf(value));
    if (row.best) AddPlan(*row.best, cells);
    cells.resize(header_.size() - (extrapolates_ ? 2 : 1));
    cells.push_back(row.reason);
    if (extrapolates_) cells.push_back(StrCat(row.extrapolated));
    cli::Print(CsvRecord(cells));
  }

 private:
  static void AddPlan(const Plan& plan, std::vector<std::string>& cells) {
    const Knobs& knobs = plan.knobs;
    for (std::string cell :
         {std::string(Name(knobs.family)), StrCat(knobs.chunks), StrCat(knobs.partition_degree),
          std::string(Name(knobs.all_to_all)), std::string(Name(knobs.dispatch_codec)),
          std::string(Name(knobs.combine_codec)), StrCat(knobs.overlapped_gather), SharesText(knobs.chunk_shares),
          StrCat(plan.predicted_time_s), StrCat(plan.low_s), StrCat(plan.high_s), StrCat(plan.communication_time_s),
          StrCat(plan.exposed_communication_s), StrCat(plan.compute_time_s), StrCat(plan.memory_bytes),
          StrCat(knobs.communication_ctas)}) {
      cells.push_back(std::move(cell));
    }
  }

  std::vector<std::string> header_;
  const bool extrapolates_;
};

// Prints the whole table at the end, for people.
class TablePrinter final : public RowPrinter {
 public:
  explicit TablePrinter(const planner::Sweep& sweep) : rows_{sweep.paths()} {
    rows_.front().insert(rows_.front().end(), {"predicted", "best"});
  }

  void Print(const planner::SweepRow& row) override {
    std::vector<std::string>& cells = rows_.emplace_back();
    for (const planner::SweepValue& value : row.values) cells.push_back(planner::TextOf(value));
    const std::string mark = row.extrapolated ? "*" : "";
    cells.push_back(row.best ? Duration(row.best->predicted_time_s) + mark : "-");
    cells.push_back(row.best ? planner::Describe(row.best->knobs) : row.reason);
    extrapolated_ = extrapolated_ || row.extrapolated;
  }
  void End() override {
    cli::Print(Table(rows_));
    if (extrapolated_) cli::Print("* some cost of the layer was not measured; taken from those that were\n");
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  bool extrapolated_ = false;
};

std::unique_ptr<RowPrinter> PrinterFor(const WhatIfOptions& options, const planner::Sweep& sweep) {
  if (options.json) return std::make_unique<JsonPrinter>(sweep);
  if (options.jsonl) return std::make_unique<JsonLinesPrinter>(sweep);
  if (options.csv) return std::make_unique<CsvPrinter>(sweep);
  return std::make_unique<TablePrinter>(sweep);
}

Status CheckOptions(const WhatIfOptions& options) {
  constexpr int kMostThreads = 1024;
  if (options.json + options.jsonl + options.csv > 1) {
    return InvalidInput("found several of --json, --jsonl, --csv, expected at most one");
  }
  if (options.threads_given && (options.threads < 1 || options.threads > kMostThreads)) {
    return InvalidInput(StrCat("--threads: found ", options.threads, ", expected 1 to ", kMostThreads));
  }
  return OkStatus();
}

// Collects the warnings of all points, each once, with the first sizes that it was about.
class Warnings {
 public:
  void Add(const planner::SweepRow& row) {
    for (const std::string& warning : row.warnings) {
      auto& [first, points] = by_cost_[warning.substr(0, warning.find(": asked at"))];
      if (points++ == 0) first = warning;
    }
  }
  void Print() const {
    for (const auto& [cost, warning] : by_cost_) {
      const auto& [first, points] = warning;
      const std::string others =
          points > 1 ? StrCat(" (and likewise at ", points - 1, points == 2 ? " more point)" : " more points)") : "";
      std::fprintf(stderr, "moeplan: %s%s\n", first.c_str(), others.c_str());
    }
  }

 private:
  std::map<std::string, std::pair<std::string, int64_t>> by_cost_;
};

Status Run(const WhatIfOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.workload.empty() == options.dispatchers.layout.empty()) {
    return InvalidInput("what-if: expected --workload, or --layout with --model; one of both");
  }
  if (!options.dispatchers.layout.empty()) {
    if (options.csv || options.jsonl) return InvalidInput("--csv, --jsonl: found one with --layout, expected --json");
    return CompareDispatchers(options.dispatchers, options.source, options.sweep, options.json);
  }
  if (!options.source.hardware().empty()) {
    return InvalidInput("--hardware: found it with --workload, expected it with --layout");
  }
  ASSIGN_OR_RETURN(v1::Workload workload, ReadJsonFile<v1::Workload>(options.workload));
  RETURN_IF_ERROR(WorkloadFromProto(workload).status().Within(options.workload));
  ASSIGN_OR_RETURN(Profile profile, options.source.LoadProfile());
  ASSIGN_OR_RETURN(const planner::Sweep sweep,
                   planner::Sweep::Make(std::move(workload), std::move(profile), options.sweep,
                                        {.extrapolate = options.extrapolate}));
  for (const std::string& note : sweep.notes()) std::fprintf(stderr, "moeplan: --sweep: %s\n", note.c_str());
  const std::unique_ptr<RowPrinter> printer = PrinterFor(options, sweep);
  int64_t feasible = 0;
  std::string first_reason;
  Warnings warnings;
  // Nothing is printed where every point is refused, as `plan` would refuse it: wrong input is no answer.
  constexpr size_t kMostHeld = 10000;
  std::vector<planner::SweepRow> held;
  bool begun = false;
  const auto begin = [&] {
    begun = true;
    printer->Begin();
    for (const planner::SweepRow& row : held) printer->Print(row);
    held = {};
  };
  RETURN_IF_ERROR(
      sweep.Run(options.threads_given ? options.threads : DefaultThreads(), [&](const planner::SweepRow& row) {
        feasible += row.best.has_value();
        warnings.Add(row);
        if (first_reason.empty()) first_reason = row.reason;
        if (!begun && row.refused && held.size() < kMostHeld) {
          held.push_back(row);
          return OkStatus();
        }
        if (!begun) begin();
        printer->Print(row);
        return FlushOutput();
      }));
  if (!begun) {
    return InvalidInput(
        StrCat("--sweep: none of the ", sweep.rows(), " points can be planned; the first: ", first_reason));
  }
  printer->End();
  warnings.Print();
  if (feasible > 0) return OkStatus();
  return Infeasible(StrCat("none of the ", sweep.rows(), " points has a plan; the first: ", first_reason));
}

}  // namespace

void AddWhatIf(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<WhatIfOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "what-if", "Sweep fields of a workload, layout, cluster or cost model",
                 "moeplan what-if --db moeplan.db --workload workload.json --sweep layer.sequenceLength=4096,8192 "
                 "--sweep cluster.nic.scale=1,2 --csv",
                 [options] { return Run(*options); });
  options->source.AddWithHardware(*command);
  command->add_option("--workload", options->workload, "WORKLOAD.json");
  DispatcherOptions& dispatchers = options->dispatchers;
  CLI::Option* const layout = command->add_option("--layout", dispatchers.layout,
                                                  "In place of --workload: a layout of `step`, to say which dispatcher "
                                                  "is the fastest and where that changes; --sweep is "
                                                  "then microBatch, expertParallel, gpus or expertImbalance");
  command->add_option("--model", dispatchers.model, "With --layout: as in `step`")->needs(layout);
  command->add_option("--gpus", dispatchers.gpus, "With --layout: as in `step`")->needs(layout);
  command->add_option("--global-batch", dispatchers.global_batch, "With --layout: as in `step`")->needs(layout);
  command->add_option("--sequence-length", dispatchers.sequence_length, "With --layout: as in `step`")->needs(layout);
  command->add_option("--dispatchers", dispatchers.dispatchers, "With --layout: names with commas (default: all)")
      ->needs(layout);
  command
      ->add_option("--sweep", options->sweep,
                   "PATH=VALUE,VALUE,...; may be repeated: all combinations. A path is a field of the workload "
                   "(layer.batch, layout.expertParallel, maxChunks), of the cluster (cluster.nodes) or of a cost "
                   "model (kernels[NAME or NUMBER].alphaBeta.betaSPerFlop, collectives[...]), cluster.nic.scale (the "
                   "rate between nodes), or timeScale of a cost model (collectives[NAME].timeScale)")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--threads", options->threads, "Threads that plan (default: one for each processor)")
      ->each([options](const std::string&) { options->threads_given = true; });
  command->add_flag("--extrapolate", options->extrapolate, kExtrapolateHelp);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("--jsonl", options->jsonl, "Print one JSON object a line, as found");
  command->add_flag("--csv", options->csv, "Print comma-separated values (RFC 4180), as found");
}

}  // namespace moeplan::cli
