#include <chrono>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "db/store.h"
#include "models/text.h"
#include "models/time_text.h"
#include "moeplan/v1/profile.pb.h"
#include "planner/service/access/role.h"
#include "planner/service/access/token.h"

namespace moeplan::cli {
namespace {

struct TokenOptions {
  std::string db, name, role = "plan", expires_in;
};

// What is printed stands in logs and scripts, so that names are plain.
Status CheckName(const std::string& name) {
  constexpr size_t kLongest = 64;
  const bool plain =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@") == std::string::npos;
  if (plain && !name.empty() && name.size() <= kLongest) return OkStatus();
  return InvalidInput(
      StrCat("--name: found '", name, "', expected 1 to ", kLongest, " letters, digits, '-', '_', '.', '@'"));
}

Status Create(const TokenOptions& options) {
  RETURN_IF_ERROR(CheckName(options.name));
  if (!service::RoleNamed(options.role)) {
    return InvalidInput(StrCat("--role: found ", options.role, ", expected read, plan, report or admin"));
  }
  TokenRecord record = {.name = options.name, .role = options.role};
  if (!options.expires_in.empty()) {
    ASSIGN_OR_RETURN(const double seconds, ParseSeconds("--expires-in", options.expires_in));
    constexpr double kLongestS = 100.0 * 365 * 86400;
    if (seconds > kLongestS) {
      return InvalidInput(StrCat("--expires-in: found ", options.expires_in, ", expected at most 100 years"));
    }
    record.expires_at = Rfc3339(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::seconds>(
                                                                       std::chrono::duration<double>(seconds)));
  }
  ASSIGN_OR_RETURN(const std::string token, service::NewToken());
  record.sha256 = service::HexDigestOf(token);
  ASSIGN_OR_RETURN(Store store, Store::Open(options.db));
  RETURN_IF_ERROR(store.AddToken(record));
  std::fprintf(stderr, "the token of %s (role %s), shown this once:\n", options.name.c_str(), options.role.c_str());
  std::printf("%s\n", token.c_str());
  return OkStatus();
}

Status List(const TokenOptions& options) {
  ASSIGN_OR_RETURN(const Store store, Store::OpenReadOnly(options.db));
  ASSIGN_OR_RETURN(const std::vector<TokenRecord> tokens, store.Tokens());
  std::vector<std::vector<std::string>> rows = {{"name", "role", "created", "expires", "revoked"}};
  for (const TokenRecord& token : tokens) {
    rows.push_back({token.name, token.role, token.created_at, token.expires_at.empty() ? "never" : token.expires_at,
                    token.revoked_at.empty() ? "no" : token.revoked_at});
  }
  std::fputs(Table(rows).c_str(), stdout);
  return OkStatus();
}

Status Revoke(const TokenOptions& options) {
  RETURN_IF_ERROR(Store::OpenReadOnly(options.db).status());  // One that is not there is not made.
  ASSIGN_OR_RETURN(Store store, Store::Open(options.db));
  return store.RevokeToken(options.name);
}

}  // namespace

void AddToken(CLI::App& app, Invocation& invocation) {
  CLI::App* token = app.add_subcommand("token", "Say who may call a planner");
  token->require_subcommand(1);
  const auto options = std::make_shared<TokenOptions>();
  CLI::App* create = AddCommand(*token, invocation, "create", "Make a token and print it, this once",
                                "moeplan token create --db moeplan.db --name trainer --role plan",
                                [options] { return Create(*options); });
  CLI::App* list = AddCommand(*token, invocation, "list", "All tokens that there ever were, without themselves",
                              "moeplan token list --db moeplan.db", [options] { return List(*options); });
  CLI::App* revoke =
      AddCommand(*token, invocation, "revoke", "End a token", "moeplan token revoke --db moeplan.db --name trainer",
                 [options] { return Revoke(*options); });
  for (CLI::App* command : {create, list, revoke}) {
    command->add_option("--db", options->db, "Database that the planner serves")->required();
  }
  for (CLI::App* command : {create, revoke}) command->add_option("--name", options->name, "Whose it is")->required();
  create->add_option("--role", options->role, "read, plan, report or admin; each may what those before it may")
      ->capture_default_str();
  create->add_option("--expires-in", options->expires_in, "Such as 24h (default: never)");
}

}  // namespace moeplan::cli
