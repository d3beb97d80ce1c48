#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "db/store.h"
#include "models/text.h"
#include "moeplan/v1/profile.pb.h"
#include "proto/convert/profile.h"

namespace moeplan::cli {
namespace {

struct ProfileOptions {
  std::string db, name;
  int version = 0;
  bool version_given = false;
  bool json = false;
};

Status List(const ProfileOptions& options) {
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(options.db));
  v1::ProfileList list;
  PageRequest request;
  do {
    ASSIGN_OR_RETURN(const ProfilePage page, store.ListProfiles(request));
    for (const ProfileVersion& version : page.profiles) {
      v1::ProfileSummary& summary = *list.add_profiles();
      summary.set_name(version.name);
      summary.set_version(version.version);
      summary.set_created_at(version.created_at);
    }
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
  ProfileSelection selection;
  if (!options.name.empty()) selection.name = options.name;
  if (options.version_given) selection.version = options.version;
  ASSIGN_OR_RETURN(const Profile profile, store.LoadProfile(selection));
  PrintJson(ToProto(profile));
  return OkStatus();
}

}  // namespace

void AddProfile(CLI::App& app, Invocation& invocation) {
  CLI::App* profile = app.add_subcommand("profile", "Look at the profiles of a database");
  profile->require_subcommand(1);
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* list = AddCommand(*profile, invocation, "list", "The stored profiles, newest first",
                              "moeplan profile list --db moeplan.db", [options] { return List(*options); });
  CLI::App* show = AddCommand(*profile, invocation, "show", "One profile, as JSON",
                              "moeplan profile show --db moeplan.db --profile-version 1 --json",
                              [options] { return Show(*options); });
  for (CLI::App* command : {list, show}) {
    command->add_option("--db", options->db, "Database")->required();
    command->add_flag("--json", options->json, "Print JSON");
  }
  show->add_option("--profile-name", options->name, "Which profile (default: the newest)");
  show->add_option("--profile-version", options->version, "Which version (default: the newest)")
      ->each([options](const std::string&) { options->version_given = true; });
}

}  // namespace moeplan::cli
