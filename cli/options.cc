#include "cli/options.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "agent/rank_session.h"
#include "cli/extensions.h"
#include "db/store.h"
#include "executor/backends.h"
#include "executor/launch/launch.h"
#include "models/links/link_model.h"
#include "models/text.h"
#include "moeplan/v1/cluster.pb.h"
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

constexpr double kJoinS = 60;
constexpr double kPlannerDeadlineS = 60;

RankProgram RankWorkerOf(const std::string& program) {
  RankProgram worker = {.program = program, .arguments = {"rank-worker"}};
  for (const std::string& path : LoadedExtensions()) {
    worker.arguments.insert(worker.arguments.end(), {"--extension", path});
  }
  return worker;
}

RankProgram OwnProgram() { return RankWorkerOf("/proc/self/exe"); }

template <typename Message>
StatusOr<Message> ReadMessage(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return FromJson<Message>(text, path);
}

StatusOr<std::unique_ptr<Launch>> LaunchFromEmulatedFile(const std::string& path, Provenance& facts) {
  ASSIGN_OR_RETURN(const auto message, ReadMessage<v1::EmulatedCluster>(path));
  const EmulatedNodes nodes = {.nodes = message.nodes(),
                               .ranks_per_node = message.gpus_per_node(),
                               .nic_bytes_per_s = message.nic().bytes_per_s()};
  facts["nicBytesPerS"] = StrCat(nodes.nic_bytes_per_s);
  StatusOr<std::unique_ptr<Launch>> launch = LaunchEmulated(nodes, OwnProgram());
  if (!launch.ok() && launch.status().code() == StatusCode::kInvalidInput) return launch.status().Within(path);
  return launch;
}

StatusOr<std::unique_ptr<Launch>> LaunchFromHostfile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  ASSIGN_OR_RETURN(const std::vector<Host> hosts, ParseHostfile(text, path));
  // On other hosts this program is wherever it is here.
  char own[4096];
  const ssize_t length = readlink("/proc/self/exe", own, sizeof own);
  if (length <= 0) return InternalError("cannot find the own program");
  return LaunchHosts(hosts, RankWorkerOf(std::string(own, length)));
}

// The launch of a rank 0 that serves itself from a thread of its own.
class RankZeroLaunch final : public Launch {
 public:
  RankZeroLaunch(std::jthread thread, std::unique_ptr<Launch> all) : thread_(std::move(thread)), all_(std::move(all)) {}

  int nodes() const override { return all_->nodes(); }
  int ranks_per_node() const override { return all_->ranks_per_node(); }
  int WriteFd(int rank) const override { return all_->WriteFd(rank); }
  int ReadFd(int rank) const override { return all_->ReadFd(rank); }
  std::string EndOf(int rank) override { return all_->EndOf(rank); }
  int ProcessOf(int rank) const override { return all_->ProcessOf(rank); }

 private:
  std::jthread thread_;  // Ends when `all_` closes its stream, and goes after it.
  std::unique_ptr<Launch> all_;
};

// Rank 0 serves itself over a socket pair.
StatusOr<std::unique_ptr<Launch>> LaunchAsRankZero(const LaunchedRank& self) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return InternalError("socketpair failed");
  std::jthread thread([fd = ends[1], address = self.master_address] {
    const std::unique_ptr<RankSession> session = RankSession::Make(address, FindBackend);
    ServeRank(*session, fd, fd);
    close(fd);
  });
  ASSIGN_OR_RETURN(std::unique_ptr<Launch> all, GatherLaunched(self, ends[0], kJoinS));
  return std::make_unique<RankZeroLaunch>(std::move(thread), std::move(all));
}

Status ServeAsLaunchedRank(const LaunchedRank& self) {
  ASSIGN_OR_RETURN(const JoinedLaunch joined, JoinLaunched(self, kJoinS));
  const std::unique_ptr<RankSession> session = RankSession::Make(joined.address, FindBackend);
  ServeRank(*session, joined.fd, joined.fd);
  close(joined.fd);
  return OkStatus();
}

}  // namespace

void ClusterOption::Add(CLI::App& command) {
  CLI::Option_group* group = command.add_option_group("CLUSTER", "Where the ranks run; exactly one of");
  local_option_ = group->add_option("--local", local_ranks_, "N ranks on this machine, as one node");
  group->add_option("--emulated", emulated_file_,
                    "EMULATED.json: nodes in network namespaces of this machine (needs root)");
  group->add_option("--hostfile", hostfile_, "Open MPI hostfile: ranks over ssh");
  group->add_flag("--launched", launched_, "This process is one rank of torchrun, Slurm or Open MPI");
  group->add_option("--simulated", simulated_file_, "CLUSTER.json (not there yet)");
  command.add_option("--deadline", deadline_, "How long one collective may take before its peers are given up")
      ->capture_default_str();
  command.add_option("--backend", backend_, "What the ranks run on: host (processors) or cuda (GPUs and NCCL)")
      ->capture_default_str();
}

Status ClusterOption::CheckOne() const {
  const int given = (local_option_->count() > 0) + !emulated_file_.empty() + !hostfile_.empty() + launched_ +
                    !simulated_file_.empty();
  if (given == 1) return OkStatus();
  return InvalidInput(
      StrCat("found ", given, " of --local, --emulated, --hostfile, --launched, --simulated, expected exactly one"));
}

StatusOr<std::optional<Fleet>> ClusterOption::Start() const {
  RETURN_IF_ERROR(CheckOne());
  if (!simulated_file_.empty()) return Unimplemented("--simulated is not there yet; use --local or --emulated");
  ASSIGN_OR_RETURN(const double deadline_s, ParseSeconds("--deadline", deadline_));
  if (!launched_ && hostfile_.empty()) RETURN_IF_ERROR(FindBackend(backend_).status().Within("--backend"));
  StatusOr<std::unique_ptr<Launch>> launch = InternalError("no launch");
  Provenance facts;
  if (launched_) {
    facts["launch"] = "launched";
    ASSIGN_OR_RETURN(const LaunchedRank self,
                     ReadLaunchedRank([](const char* name) -> const char* { return std::getenv(name); }));
    if (self.rank != 0) {
      RETURN_IF_ERROR(ServeAsLaunchedRank(self));
      return std::optional<Fleet>();
    }
    launch = LaunchAsRankZero(self);
  } else if (!emulated_file_.empty()) {
    facts["launch"] = "emulated";
    launch = LaunchFromEmulatedFile(emulated_file_, facts);
  } else if (!hostfile_.empty()) {
    facts["launch"] = "hostfile";
    launch = LaunchFromHostfile(hostfile_);
  } else {
    facts["launch"] = "local";
    launch = LaunchLocal(local_ranks_, OwnProgram());
  }
  if (!launch.ok()) return launch.status();
  ASSIGN_OR_RETURN(Fleet fleet, Fleet::Start(*std::move(launch), {.collective_deadline_s = deadline_s,
                                                                  .backend = backend_,
                                                                  .provenance = std::move(facts)}));
  return std::optional<Fleet>(std::move(fleet));
}

std::string ClusterOption::DefaultName(const Cluster& cluster) const {
  const std::string size = StrCat(cluster.nodes, "x", cluster.gpus_per_node);
  const std::string backend = backend_ == "host" ? "" : StrCat("-", backend_);
  if (local_option_->count() > 0) return StrCat("local-", size, backend);
  return StrCat(emulated_file_.empty() ? "cluster-" : "emulated-", size, backend);
}

void SourceOption::Add(CLI::App& command) {
  CLI::Option_group* group = command.add_option_group("SOURCE", "Where the profile comes from; one of");
  group->add_option("--profile", profile_file_, "PROFILE.json");
  group->add_option("--db", db_, "A database that calibrate wrote");
  group->add_option("--planner", planner_, "HOST:PORT of a planner");
  command.add_option("--profile-name", profile_name_, "Which profile of a database or planner (default: the newest)");
}

Status SourceOption::CheckOne() const {
  const int count = !profile_file_.empty() + !db_.empty() + !planner_.empty();
  if (count != 1) return InvalidInput(StrCat("found ", count, " of --profile, --db, --planner, expected exactly one"));
  if (!profile_file_.empty() && !profile_name_.empty()) {
    return InvalidInput("--profile-name: found beside --profile, expected with --db or --planner");
  }
  return OkStatus();
}

StatusOr<Profile> SourceOption::LoadProfile() const {
  RETURN_IF_ERROR(CheckOne());
  if (!planner_.empty()) {
    ASSIGN_OR_RETURN(const auto client, PlannerClient::Connect(planner_, kPlannerDeadlineS));
    v1::GetProfileRequest request;
    request.set_profile_name(profile_name_);
    ASSIGN_OR_RETURN(const v1::GetProfileResponse response, client->GetProfile(request));
    return ProfileFromProto(response.profile());
  }
  if (!profile_file_.empty()) {
    ASSIGN_OR_RETURN(const auto message, ReadMessage<v1::Profile>(profile_file_));
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
  if (planner_.empty()) {
    ASSIGN_OR_RETURN(const Profile profile, LoadProfile());
    std::optional<LinkModel> links;
    if (options.extrapolate) links.emplace(profile);
    StatusOr<PlanAnswer> answer = PlanRoutedLayer(workload, profile,
                                                  {.top = options.top,
                                                   .budget_nodes = options.budget_nodes.value_or(kDefaultBudgetNodes),
                                                   .links = links ? &*links : nullptr});
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
  if (!planner_.empty()) {
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
  ASSIGN_OR_RETURN(const auto client, PlannerClient::Connect(planner_, kPlannerDeadlineS));
  request.set_profile_name(profile_name_);
  StatusOr<v1::PlanResponse> response = client->Plan(request);
  if (!response.ok() && response.status().code() == StatusCode::kInvalidInput) return response.status().Within(origin);
  return response;
}

StatusOr<double> ParseSeconds(const std::string& option, const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"", 1}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, text.data() + text.size());
  for (const auto& [name, factor] : kUnits) {
    if (error == std::errc() && unit == name && std::isfinite(value) && value > 0) return value * factor;
  }
  return InvalidInput(StrCat(option, ": found '", text, "', expected a time above 0 such as 60s, 2m or 500ms"));
}

StatusOr<std::vector<Workload>> ReadGrid(const std::string& path) {
  ASSIGN_OR_RETURN(const auto message, ReadMessage<v1::WorkloadGrid>(path));
  StatusOr<std::vector<Workload>> workloads = WorkloadsFromProto(message);
  if (!workloads.ok()) return workloads.status().Within(path);
  if (workloads->empty()) return InvalidInput(StrCat(path, ": workloads: found none, expected at least one"));
  for (size_t i = 0; i < workloads->size(); ++i) {
    if ((*workloads)[i].name.empty()) (*workloads)[i].name = StrCat("workload ", i + 1);
  }
  return workloads;
}

StatusOr<std::vector<Workload>> ResolveGrid(const std::vector<Workload>& workloads, const Cluster& cluster) {
  std::vector<Workload> resolved;
  for (size_t i = 0; i < workloads.size(); ++i) {
    StatusOr<Workload> one = ResolveWorkload(workloads[i], cluster);
    if (!one.ok()) return one.status().Within(StrCat("workloads[", i, "] (", workloads[i].name, ")"));
    resolved.push_back(*std::move(one));
  }
  return resolved;
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

std::string NowText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

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
