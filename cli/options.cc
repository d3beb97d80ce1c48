#include "cli/options.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/output.h"
#include "db/store.h"
#include "models/text.h"
#include "models/time_text.h"
#include "planner/client/answer_printer.h"
#include "planner/client/planner_client.h"
#include "planner/service/handlers/plan_question.h"
#include "planner/shipped/names.h"
#include "proto/convert/network.h"
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

void SourceOption::AddWithHardware(CLI::App& command) {
  Add(command);
  takes_hardware_ = true;
  command.add_option("--hardware", hardware_,
                     "NAME[:DOMAINSxGPUS] such as h100-sxm: public figures of machines that nobody measured here; "
                     "beside another source for what that lacks");
  command.add_option("--network", network_,
                     "JSON, or its file: what joins the domains of --hardware; {\"nodesPerLeaf\": N, "
                     "\"oversubscription\": F, \"rails\": true, \"bytesPerS\": B} (default: one switch at full rate)");
}

StatusOr<Network> SourceOption::ReadNetwork() const {
  if (network_.empty()) return Network();
  ASSIGN_OR_RETURN(const GivenJson given, JsonOrFile(network_, "--network", "a network as JSON"));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::Network>(given.text, given.source_name));
  const StatusOr<Network> network = NetworkFromProto(message, "");
  if (!network.ok()) return network.status().Within(given.source_name);
  return network;
}

StatusOr<Profile> SourceOption::LoadProfileOfJob(const ModelConfig& model, int& gpus) const {
  if (gpus == 0) gpus = planner::GpusOfHardware(hardware_);
  ASSIGN_OR_RETURN(Profile profile, LoadProfileFor(model, gpus));
  if (gpus == 0) gpus = Ranks(profile.cluster);
  return profile;
}

StatusOr<Profile> SourceOption::LoadProfileFor(const ModelConfig& model, int gpus) const {
  if (hardware_.empty()) return LoadProfile();
  if (gpus == 0 && !given()) {
    return InvalidInput("--gpus: expected how many, or --hardware NAME:DOMAINSxGPUS");
  }
  std::optional<Profile> profile;
  if (given()) {
    ASSIGN_OR_RETURN(profile, LoadProfile());
  }
  ASSIGN_OR_RETURN(const Network network, ReadNetwork());
  const StatusOr<Profile> named = planner::HardwareProfile(hardware_, gpus == 0 ? Ranks(profile->cluster) : gpus, model,
                                                           /*change=*/{}, network);
  if (!named.ok()) return AsOption(named.status());
  if (!profile) return *named;
  CompleteFrom(*named, *profile);
  return *std::move(profile);
}

Status SourceOption::CheckOne() const {
  const int count = !profile_file_.empty() + !db_.empty() + planner_.given();
  if (count != 1) {
    return InvalidInput(StrCat("found ", count, " of --profile, --db, --planner, expected exactly one",
                               takes_hardware_ ? ", or --hardware" : ""));
  }
  if (!profile_file_.empty() && !profile_name_.empty()) {
    return InvalidInput("--profile-name: found beside --profile, expected with --db or --planner");
  }
  return OkStatus();
}

StatusOr<Profile> SourceOption::LoadProfile() const {
  if (!network_.empty() && hardware_.empty()) {
    return InvalidInput("--network: found it without --hardware, expected it beside --hardware");
  }
  RETURN_IF_ERROR(CheckOne());
  if (planner_.given()) {
    ASSIGN_OR_RETURN(const client::ConnectOptions connect, planner_.Connect(kPlannerDeadlineS));
    ASSIGN_OR_RETURN(const auto client, client::PlannerClient::Connect(connect));
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

StatusOr<v1::PlanResponse> SourceOption::Answer(const v1::PlanRequest& request, const std::string& origin) const {
  ASSIGN_OR_RETURN(const service::PlanQuestion question, service::QuestionOf(request));
  const bool any_source = request.has_workload() || given() || !profile_name_.empty();
  if (any_source) RETURN_IF_ERROR(CheckOne());
  if (planner_.given()) return AskPlanner(request, origin);
  std::optional<Profile> profile;
  if (any_source) {
    ASSIGN_OR_RETURN(profile, LoadProfile());
  }
  StatusOr<v1::PlanResponse> answer = service::AnswerTo(question, profile ? &*profile : nullptr);
  if (!answer.ok()) return answer.status().Within(origin);
  return answer;
}

StatusOr<PlanAnswer> SourceOption::Plan(const Workload& workload, const std::string& origin) const {
  v1::PlanRequest request;
  *request.mutable_workload() = ToProto(workload);
  ASSIGN_OR_RETURN(const v1::PlanResponse answer, Answer(request, origin));
  return PlanAnswerFromProto(answer);
}

Status SourceOption::PrintAnswer(const v1::PlanResponse& answer) const {
  if (!planner_.given()) {
    PrintJson(answer);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const client::ConnectOptions connect, planner_.Connect(kPlannerDeadlineS));
  client::AnswerPrinter printer(connect);
  Print(printer.Json(answer, JsonStyle::kPretty) + "\n");
  WarnOfLeftOut(printer);
  return OkStatus();
}

StatusOr<v1::PlanResponse> SourceOption::AskPlanner(v1::PlanRequest request, const std::string& origin) const {
  ASSIGN_OR_RETURN(const client::ConnectOptions connect, planner_.Connect(kPlannerDeadlineS));
  ASSIGN_OR_RETURN(const auto client, client::PlannerClient::Connect(connect));
  request.set_profile_name(profile_name_);
  StatusOr<v1::PlanResponse> response = client->Plan(request);
  if (!response.ok() && response.status().code() == StatusCode::kInvalidInput) return response.status().Within(origin);
  return response;
}

Status AsOption(const Status& status) {
  constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
      {"against", "--against"},
      {"axis", "--sweep"},
      {"dispatchers", "--dispatchers"},
      {"gpus", "--gpus"},
      {"hardware", "--hardware"},
      {"measuredStepS", "--measured-step"},
      {"mine", "--mine"},
      {"precision", "--precision"},
      {"targetVersion", "--target-version"},
      {"to", "--to"},
      {"globalBatch", "--global-batch"},
      {"sequenceLength", "--sequence-length"},
  };
  const std::string_view message = status.message();
  for (const auto& [field, option] : kOptions) {
    if (!message.starts_with(field) || message.size() == field.size()) continue;
    const char next = message[field.size()];
    if (next != ':' && next != '.' && next != '[') continue;
    return {status.code(), StrCat(option, message.substr(field.size()))};
  }
  return status;
}

StatusOr<GivenJson> JsonOrFile(const std::string& value, const std::string& option, std::string_view expected) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && value[first] == '{') return GivenJson{value, option};
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(value, expected));
  return GivenJson{std::move(text), value};
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

StatusOr<TrainingGraph> ReadTrainingGraph(const std::string& path) {
  ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::TrainingGraph>(path));
  StatusOr<TrainingGraph> graph = TrainingGraphFromProto(message);
  if (!graph.ok()) return graph.status().Within(path);
  if (const Status status = ValidateTrainingGraph(*graph); !status.ok()) return status.Within(path);
  return graph;
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

void PrintJson(const google::protobuf::Message& message) { Print(ToJson(message) + "\n"); }

Status WriteFile(const std::string& path, const std::string& text) {
  std::error_code ignored;
  const bool in_place = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string written = in_place ? path : StrCat(path, ".", static_cast<int>(getpid()), ".partial");
  std::ofstream file(written, std::ios::binary);
  file << text;
  file.close();
  if (file && (in_place || std::rename(written.c_str(), path.c_str()) == 0)) return OkStatus();
  if (!in_place) std::remove(written.c_str());
  return Unavailable(StrCat(path, ": cannot be written; check that its folder exists, is writable and has room"));
}

std::string NowText() { return Rfc3339(std::chrono::system_clock::now()); }

namespace {

// Counts characters, not bytes: "µ" is one column wide.
size_t Width(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::vector<std::string> Wrapped(const std::string& label, const std::string& text, size_t indent) {
  constexpr size_t kWidth = 80;
  std::vector<std::string> lines;
  std::string line = label;
  line.resize(std::max(indent, label.empty() ? 0 : label.size() + 1), ' ');
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.size(), text.find(' ', start));
    const std::string word = text.substr(start, end - start);
    if (line.size() > indent && Width(line) + 1 + Width(word) > kWidth) {
      lines.push_back(std::move(line));
      line = std::string(indent, ' ');
    } else if (line.size() > indent && line.back() != ' ') {
      line += ' ';
    }
    line += word;
    start = end + 1;
  }
  lines.push_back(std::move(line));
  return lines;
}

void PrintParagraph(const std::string& text) {
  for (const std::string& line : Wrapped("", text, 0)) Print(line + "\n");
}

int DefaultThreads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

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
