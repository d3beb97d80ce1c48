#include "cli/options.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "db/store.h"
#include "models/links/link_model.h"
#include "models/text.h"
#include "models/time_text.h"
#include "planner/client/planner_client.h"
#include "planner/routing/plan_routed_layer.h"
#include "planner/rules/lancet.h"
#include "proto/convert/plan.h"
#include "proto/convert/profile.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

constexpr double kPlannerDeadlineS = 60;

}  // namespace

void SourceOption::Add(CLI::App& command) {
  CLI::Option_group* group = command.add_option_group("SOURCE", "Where the profile comes from; one of");
  group->add_option("--profile", profile_file_, "PROFILE.json");
  group->add_option("--db", db_, "A database that calibrate wrote");
  planner_.Add(*group, command);
  command.add_option("--profile-name", profile_name_, "Which profile of a database or planner (default: the newest)");
}

Status SourceOption::CheckOne() const {
  const int count = !profile_file_.empty() + !db_.empty() + planner_.given();
  if (count != 1) return InvalidInput(StrCat("found ", count, " of --profile, --db, --planner, expected exactly one"));
  if (!profile_file_.empty() && !profile_name_.empty()) {
    return InvalidInput("--profile-name: found beside --profile, expected with --db or --planner");
  }
  return OkStatus();
}

StatusOr<Profile> SourceOption::LoadProfile() const {
  RETURN_IF_ERROR(CheckOne());
  if (planner_.given()) {
    ASSIGN_OR_RETURN(const ConnectOptions connect, planner_.Connect(kPlannerDeadlineS));
    ASSIGN_OR_RETURN(const auto client, PlannerClient::Connect(connect));
    v1::GetProfileRequest request;
    request.set_profile_name(profile_name_);
    ASSIGN_OR_RETURN(const v1::GetProfileResponse response, client->GetProfile(request));
    return ProfileFromProto(response.profile());
  }
  if (!profile_file_.empty()) {
    ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::Profile>(profile_file_));
    StatusOr<Profile> profile = ProfileFromProto(message);
    if (!profile.ok()) return profile.status().Within(profile_file_);
    profile->version = 0;
    return profile;
  }
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(db_));
  ProfileSelection selection;
  if (!profile_name_.empty()) selection.name = profile_name_;
  return store.LoadProfile(selection);
}

StatusOr<PlanAnswer> SourceOption::Plan(const Workload& workload, const std::string& origin,
                                        const CandidateOptions& options) const {
  RETURN_IF_ERROR(CheckOne());
  if (!planner_.given()) {
    ASSIGN_OR_RETURN(const Profile profile, LoadProfile());
    std::optional<LinkModel> links;
    if (options.extrapolate) links.emplace(profile);
    StatusOr<PlanAnswer> answer = PlanRoutedLayer(workload, profile,
                                                  {.top = options.top, .links = links ? &*links : nullptr},
                                                  {.nodes = options.budget_nodes.value_or(kDefaultBudgetNodes)});
    if (!answer.ok()) return answer.status().Within(origin);
    return answer;
  }
  v1::PlanRequest request;
  *request.mutable_workload() = ToProto(workload);
  if (options.top > 0) request.set_top(options.top);
  request.set_extrapolate(options.extrapolate);
  if (options.budget_nodes) request.set_budget_nodes(*options.budget_nodes);
  ASSIGN_OR_RETURN(const v1::PlanResponse response, AskPlanner(std::move(request), origin));
  return PlanAnswerFromProto(response);
}

StatusOr<GraphPlanAnswer> SourceOption::Plan(const TrainingGraph& graph, const std::string& origin) const {
  if (given() || !profile_name_.empty()) RETURN_IF_ERROR(CheckOne());
  if (planner_.given()) {
    v1::PlanRequest request;
    *request.mutable_graph() = ToProto(graph);
    ASSIGN_OR_RETURN(const v1::PlanResponse response, AskPlanner(std::move(request), origin));
    return GraphPlanAnswerFromProto(response);
  }
  std::optional<Profile> profile;
  if (given()) {
    ASSIGN_OR_RETURN(profile, LoadProfile());
  }
  StatusOr<GraphPlanAnswer> answer = PlanGraph(graph, profile ? &*profile : nullptr);
  if (!answer.ok()) return answer.status().Within(origin);
  return answer;
}

StatusOr<v1::PlanResponse> SourceOption::AskPlanner(v1::PlanRequest request, const std::string& origin) const {
  ASSIGN_OR_RETURN(const ConnectOptions connect, planner_.Connect(kPlannerDeadlineS));
  ASSIGN_OR_RETURN(const auto client, PlannerClient::Connect(connect));
  request.set_profile_name(profile_name_);
  StatusOr<v1::PlanResponse> response = client->Plan(request);
  if (!response.ok() && response.status().code() == StatusCode::kInvalidInput) return response.status().Within(origin);
  return response;
}

StatusOr<double> ParseSeconds(const std::string& option, const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1e-3}, {"s", 1},     {"m", 60},
                                                            {"h", 3600},  {"d", 86400}, {"", 1}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, text.data() + text.size());
  for (const auto& [name, factor] : kUnits) {
    if (error == std::errc() && unit == name && std::isfinite(value) && value > 0) return value * factor;
  }
  return InvalidInput(StrCat(option, ": found '", text, "', expected a time above 0 such as 60s, 2m or 500ms"));
}

StatusOr<std::vector<Workload>> ReadGrid(const std::string& path) {
  ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::WorkloadGrid>(path));
  StatusOr<std::vector<Workload>> workloads = WorkloadsFromProto(message);
  if (!workloads.ok()) return workloads.status().Within(path);
  if (workloads->empty()) return InvalidInput(StrCat(path, ": workloads: found none, expected at least one"));
  for (size_t i = 0; i < workloads->size(); ++i) {
    if ((*workloads)[i].name.empty()) (*workloads)[i].name = StrCat("workload ", i + 1);
  }
  return workloads;
}

void PrintJson(const google::protobuf::Message& message) {
  const std::string text = ToJson(message) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status WriteFile(const std::string& path, const std::string& text) {
  const std::string partial = StrCat(path, ".", static_cast<int>(getpid()), ".partial");
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    std::remove(partial.c_str());
    return Unavailable(StrCat(path, ": cannot be written; check that its folder exists, is writable and has room"));
  }
  return OkStatus();
}

std::string NowText() { return Rfc3339(std::chrono::system_clock::now()); }

std::string Duration(double seconds) {
  char text[64];
  if (seconds < 1e-3) {
    std::snprintf(text, sizeof text, "%.1f µs", seconds * 1e6);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.2f s", seconds);
  }
  return text;
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

int DefaultThreads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

namespace {

// Characters, not bytes: "µ" is one column wide.
size_t Width(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - Width(row[i]), ' ');
      line += (i > 0 ? "  " : "") + (i == 0 ? row[i] + gap : gap + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

ProgressBar::ProgressBar(std::string title) : title_(std::move(title)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::Show(double done, const std::string& what) {
  if (!terminal_) return;
  constexpr int kCells = 30;
  const int full = static_cast<int>(std::lround(std::clamp(done, 0.0, 1.0) * kCells));
  std::string bar(full, '#');
  bar.resize(kCells, '.');
  std::fprintf(stderr, "\r\033[K%s [%s] %3.0f %%  %.60s", title_.c_str(), bar.c_str(), 100 * done, what.c_str());
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace moeplan::cli
