#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/options.h"
#include "db/store.h"
#include "models/text.h"
#include "models/time_text.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/samples.pb.h"
#include "planner/service/samples/withdraw.h"
#include "proto/convert/profile.h"
#include "proto/convert/samples.h"

namespace moeplan::cli {
namespace {

struct ProfileOptions {
  std::string db, name;
  int version = 0;
  bool version_given = false;
  bool json = false;
};

struct PruneOptions {
  std::string db, name, older_than;
  int keep = 0;
  bool samples = false, dry_run = false;
  bool json = false;
};

struct WithdrawOptions {
  std::string db, name, request_id, agent, since;
  bool dry_run = false;
  bool json = false;
};

struct BackUpOptions {
  std::string db, to;
  bool json = false;
};

v1::ProfileSummary SummaryOf(const ProfileVersion& version) {
  v1::ProfileSummary summary;
  summary.set_name(version.name);
  summary.set_version(version.version);
  summary.set_created_at(version.created_at);
  return summary;
}

std::optional<std::string> NameOf(const std::string& name) { return name.empty() ? std::nullopt : std::optional(name); }

Status List(const ProfileOptions& options) {
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(options.db));
  v1::ProfileList list;
  PageRequest request;
  do {
    ASSIGN_OR_RETURN(const ProfilePage page, store.ListProfiles(request));
    for (const ProfileVersion& version : page.profiles) *list.add_profiles() = SummaryOf(version);
    request.token = page.next_token;
  } while (!request.token.empty());
  if (options.json) {
    PrintJson(list);
    return OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {{"name", "version", "created"}};
  for (const v1::ProfileSummary& summary : list.profiles()) {
    rows.push_back({summary.name(), StrCat(summary.version()), summary.created_at()});
  }
  std::fputs(Table(rows).c_str(), stdout);
  return OkStatus();
}

Status Show(const ProfileOptions& options) {
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(options.db));
  ProfileSelection selection = {.name = NameOf(options.name)};
  if (options.version_given) selection.version = options.version;
  ASSIGN_OR_RETURN(const Profile profile, store.LoadProfile(selection));
  PrintJson(ToProto(profile));
  return OkStatus();
}

Status Rejected(const ProfileOptions& options) {
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(options.db));
  v1::RejectedSampleList list;
  PageRequest request = {.size = 1000};
  do {
    ASSIGN_OR_RETURN(const RejectedPage page, store.ListRejectedSamples(request, NameOf(options.name)));
    for (const RejectedSample& rejected : page.samples) *list.add_rejected_samples() = ToProto(rejected);
    request.token = page.next_token;
  } while (!request.token.empty());
  if (options.json) {
    PrintJson(list);
    return OkStatus();
  }
  for (const v1::RejectedSample& rejected : list.rejected_samples()) {
    std::printf("%s  %s, request %s: %s\n", rejected.received_at().c_str(), rejected.profile_name().c_str(),
                rejected.request_id().c_str(), rejected.reason().c_str());
  }
  return OkStatus();
}

StatusOr<std::chrono::seconds> ParseAge(const std::string& option, const std::string& text) {
  constexpr double kLongestS = 1e10;
  ASSIGN_OR_RETURN(const double age_s, ParseSeconds(option, text));
  return std::chrono::seconds(static_cast<std::int64_t>(std::min(std::ceil(age_s), kLongestS)));
}

v1::PruneReport ReportOf(const PruneOutcome& outcome) {
  v1::PruneReport report;
  for (const ProfileVersion& version : outcome.removed) *report.add_removed() = SummaryOf(version);
  for (const ProfileVersion& version : outcome.in_use) *report.add_in_use() = SummaryOf(version);
  report.set_plans(outcome.plans);
  report.set_runs(outcome.runs);
  report.set_samples(outcome.samples);
  report.set_rejected_samples(outcome.rejected_samples);
  return report;
}

void PrintReport(const v1::PruneReport& report) {
  std::vector<std::vector<std::string>> rows = {{"name", "version", "created", ""}};
  const auto add = [&rows](const v1::ProfileSummary& summary, const char* fate) {
    rows.push_back({summary.name(), StrCat(summary.version()), summary.created_at(), fate});
  };
  for (const v1::ProfileSummary& summary : report.removed()) add(summary, report.dry_run() ? "would go" : "removed");
  for (const v1::ProfileSummary& summary : report.in_use()) add(summary, "stays: plans refer to it");
  std::fputs(Table(rows).c_str(), stdout);
  std::printf("%s%d versions, %d plans, %d runs, %d samples, %d rejected samples; %.0f bytes freed\n",
              report.dry_run() ? "would remove " : "removed ", report.removed_size(), report.plans(), report.runs(),
              report.samples(), report.rejected_samples(), report.freed_bytes());
}

Status Prune(const PruneOptions& options) {
  PruneRequest request = {.keep = options.keep,
                          .profile_name = NameOf(options.name),
                          .samples = options.samples,
                          .dry_run = options.dry_run};
  if (!options.older_than.empty()) {
    ASSIGN_OR_RETURN(request.plans_older_than, ParseAge("--older-than", options.older_than));
  }
  // Nothing to prune in a file that is not there, and none to be made.
  RETURN_IF_ERROR(Store::OpenReadOnly(options.db).status());
  ASSIGN_OR_RETURN(Store store, Store::Open(options.db));
  ASSIGN_OR_RETURN(const PruneOutcome outcome, store.PruneProfiles(request));
  v1::PruneReport report = ReportOf(outcome);
  report.set_dry_run(options.dry_run);
  if (!options.dry_run) {
    const StatusOr<std::int64_t> freed = store.FreeSpace();
    if (freed.ok()) report.set_freed_bytes(std::max(0.0, static_cast<double>(*freed)));
    // What was asked for is done; the space is used again, or given back the next time.
    if (!freed.ok()) std::fprintf(stderr, "moeplan: no space was freed: %s\n", freed.status().message().c_str());
  }
  if (options.json) {
    PrintJson(report);
  } else {
    PrintReport(report);
  }
  return OkStatus();
}

StatusOr<std::string> ParseMoment(const std::string& option, const std::string& text) {
  const auto moment = ParseRfc3339(text);
  if (moment) return Rfc3339(*moment);
  return InvalidInput(StrCat(option, ": found '", text, "', expected a moment such as 2026-01-31T12:00:00Z"));
}

StatusOr<WithdrawRequest> RequestOf(const WithdrawOptions& options) {
  const int selectors = !options.request_id.empty() + !options.agent.empty() + !options.since.empty();
  if (selectors != 1) {
    return InvalidInput(StrCat("found ", selectors, " of --request-id, --agent and --since, expected exactly one"));
  }
  WithdrawRequest request = {.profile_name = options.name,
                             .request_id = NameOf(options.request_id),
                             .agent = NameOf(options.agent),
                             .dry_run = options.dry_run};
  if (!options.since.empty()) {
    ASSIGN_OR_RETURN(request.since, ParseMoment("--since", options.since));
  }
  return request;
}

void PrintReport(const v1::WithdrawReport& report) {
  std::printf("%s%d samples of %d requests; %d are left", report.dry_run() ? "would withdraw " : "withdrew ",
              report.samples(), report.requests(), report.left_samples());
  if (report.profile_version() > 0) {
    std::printf(", now profile %s, version %d", report.profile_name().c_str(), report.profile_version());
  }
  std::fputs("\n", stdout);
}

// A fit of nothing is no profile, so the last version stays although its samples are gone.
void WarnOfVersionThatStays(const Store& store, const std::string& name) {
  const StatusOr<Profile> newest = store.LoadProfile({.name = name});
  if (!newest.ok()) return;
  std::fprintf(
      stderr,
      "warning: nothing is left to fit, so version %d of profile %s still answers, which was fitted to what was "
      "withdrawn; calibrate again, or put another profile, to replace it\n",
      newest->version, name.c_str());
}

Status Withdraw(const WithdrawOptions& options) {
  ASSIGN_OR_RETURN(const WithdrawRequest request, RequestOf(options));
  // There is nothing to withdraw in a file that is not there, and none to be made.
  RETURN_IF_ERROR(Store::OpenReadOnly(options.db).status());
  ASSIGN_OR_RETURN(Store store, Store::Open(options.db));
  ASSIGN_OR_RETURN(const WithdrawOutcome outcome, service::Withdraw(store, request));
  v1::WithdrawReport report;
  report.set_profile_name(options.name);
  report.set_profile_version(outcome.version ? outcome.version->version : 0);
  report.set_samples(outcome.samples);
  report.set_requests(outcome.requests);
  report.set_left_samples(outcome.left);
  report.set_dry_run(options.dry_run);
  if (options.json) {
    PrintJson(report);
  } else {
    PrintReport(report);
  }
  if (outcome.samples == 0) return Infeasible(StrCat("no sample of profile ", options.name, " was selected"));
  if (outcome.left == 0 && !options.dry_run) WarnOfVersionThatStays(store, options.name);
  return OkStatus();
}

Status BackUp(const BackUpOptions& options) {
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(options.db));
  ASSIGN_OR_RETURN(const std::int64_t bytes, store.BackUp(options.to));
  v1::BackUpReport report;
  report.set_file(options.to);
  report.set_bytes(static_cast<double>(bytes));
  if (options.json) {
    PrintJson(report);
  } else {
    std::printf("%s: %.0f bytes\n", report.file().c_str(), report.bytes());
  }
  return OkStatus();
}

void AddPrune(CLI::App& profile, Invocation& invocation) {
  const auto options = std::make_shared<PruneOptions>();
  CLI::App* command =
      AddCommand(profile, invocation, "prune", "Remove old versions of profiles and give their space back",
                 "moeplan profile prune --db moeplan.db --keep 10 --dry-run", [options] { return Prune(*options); });
  command->add_option("--db", options->db, "Database")->required();
  command->add_option("--keep", options->keep, "How many of the newest versions of each name stay")->required();
  command->add_option("--profile-name", options->name, "Whose versions (default: of all names)");
  command->add_option("--older-than", options->older_than,
                      "Plans stored longer ago than that, such as 90d, no longer keep their version, and go with it");
  command->add_flag("--samples", options->samples, "Remove the samples of removed versions, too");
  command->add_flag("--dry-run", options->dry_run, "Only say what would be removed");
  command->add_flag("--json", options->json, "Print JSON");
}

void AddWithdraw(CLI::App& profile, Invocation& invocation) {
  const auto options = std::make_shared<WithdrawOptions>();
  CLI::App* command =
      AddCommand(profile, invocation, "withdraw", "Take samples out of a profile and fit the rest again",
                 "moeplan profile withdraw --db moeplan.db --profile-name gates --request-id job-17",
                 [options] { return Withdraw(*options); });
  command->add_option("--db", options->db, "Database")->required();
  command->add_option("--profile-name", options->name, "Whose samples")->required();
  command->add_option("--request-id", options->request_id, "Those that this request, or this calibration, brought");
  command->add_option("--agent", options->agent, "Those whose provenance names this agent");
  command->add_option("--since", options->since, "Those received at this moment or later, as 2026-01-31T12:00:00Z");
  command->add_flag("--dry-run", options->dry_run, "Only say what would be taken out");
  command->add_flag("--json", options->json, "Print JSON");
}

void AddBackUp(CLI::App& profile, Invocation& invocation) {
  const auto options = std::make_shared<BackUpOptions>();
  CLI::App* command =
      AddCommand(profile, invocation, "backup", "Copy a database, also while a planner writes to it",
                 "moeplan profile backup --db moeplan.db --to moeplan-copy.db", [options] { return BackUp(*options); });
  command->add_option("--db", options->db, "Database")->required();
  command->add_option("--to", options->to, "The copy; nothing may be there yet")->required();
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace

void AddProfile(CLI::App& app, Invocation& invocation) {
  CLI::App* profile = app.add_subcommand("profile", "Look at the profiles of a database, and keep it in order");
  profile->require_subcommand(1);
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* list = AddCommand(*profile, invocation, "list", "The stored profiles, newest first",
                              "moeplan profile list --db moeplan.db", [options] { return List(*options); });
  CLI::App* show = AddCommand(*profile, invocation, "show", "One profile, as JSON",
                              "moeplan profile show --db moeplan.db --profile-version 1 --json",
                              [options] { return Show(*options); });
  CLI::App* rejected =
      AddCommand(*profile, invocation, "rejected", "Samples that were set aside, and why",
                 "moeplan profile rejected --db moeplan.db --json", [options] { return Rejected(*options); });
  for (CLI::App* command : {list, show, rejected}) {
    command->add_option("--db", options->db, "Database")->required();
    command->add_flag("--json", options->json, "Print JSON");
  }
  rejected->add_option("--profile-name", options->name, "Those that came under this name (default: all)");
  show->add_option("--profile-name", options->name, "Which profile (default: the newest)");
  show->add_option("--profile-version", options->version, "Which version (default: the newest)")
      ->each([options](const std::string&) { options->version_given = true; });
  AddPrune(*profile, invocation);
  AddWithdraw(*profile, invocation);
  AddBackUp(*profile, invocation);
}

}  // namespace moeplan::cli
