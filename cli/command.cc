#include "cli/command.h"

#include <utility>

#include "models/text.h"

namespace moeplan::cli {

int ExitCode(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return 0;
    case StatusCode::kInfeasible: return 1;
    case StatusCode::kInvalidInput:
    case StatusCode::kNotFound:
    case StatusCode::kUnimplemented: return 2;
    default: return 3;
  }
}

namespace {

// "moeplan profile list".
std::string FullName(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  return StrCat(FullName(*command.get_parent()), " ", command.get_name());
}

// The commands that its help shows, one after the other.
std::string CommandsOf(const CLI::App& app) {
  const auto shown = [](const CLI::App* one) { return !one->get_name().empty() && !one->get_group().empty(); };
  std::string names;
  for (const CLI::App* command : app.get_subcommands(shown))
    names += StrCat(names.empty() ? "" : ", ", command->get_name());
  return names;
}

}  // namespace

std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error) {
  const std::string see = StrCat("; see ", FullName(app), " --help");
  if (const std::vector<std::string> unknown = app.remaining(); !unknown.empty()) {
    const std::string commands = unknown.front().starts_with('-') ? "" : CommandsOf(app);
    if (commands.empty()) return StrCat("found '", unknown.front(), "', which ", FullName(app), " does not take", see);
    return StrCat("found '", unknown.front(), "', expected one of the commands ", commands, see);
  }
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? error.what() + see : WhatIsWrong(*chosen.front(), error);
}

CLI::App* AddCommand(CLI::App& app, Invocation& invocation, const std::string& name, const std::string& description,
                     const std::string& example, std::function<Status()> run) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(StrCat("\nExample:\n  ", example, "\n"));
  command->add_option("--extension", invocation.extensions, "Library of own schedules, codecs, ... (may be repeated)")
      ->allow_extra_args(false);
  command->callback([&invocation, run = std::move(run)] { invocation.run = run; });
  return command;
}

}  // namespace moeplan::cli
