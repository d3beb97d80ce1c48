// What the commands of `moeplan` share: how one is registered, what it gets and what its end means.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::cli {

// The chosen command; set while the command line is parsed, run afterwards.
struct Invocation {
  std::function<Status()> run;
  std::vector<std::string> extensions;  // Loaded before it runs.
  int exit_code = 0;                    // What a command that was OK ends with, where that is for what it ran to say.
};

// 0 done; 1 the answer is "no"; 2 the input or the command line is wrong; 3 anything else (contract).
int ExitCode(const Status& status);

// One line about a command line that did not parse. CLI11 complains of what it misses before what it does not know; a
// word that no command takes is the likelier slip, so that is named first, with the commands there are.
std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error);

// Adds a subcommand with an example at the end of its help; `run` is called when it was chosen.
CLI::App* AddCommand(CLI::App& app, Invocation& invocation, const std::string& name, const std::string& description,
                     const std::string& example, std::function<Status()> run);

void AddAdvise(CLI::App& app, Invocation& invocation);
void AddAgent(CLI::App& app, Invocation& invocation);
void AddCalibrate(CLI::App& app, Invocation& invocation);
void AddFit(CLI::App& app, Invocation& invocation);
void AddGraph(CLI::App& app, Invocation& invocation);
void AddImport(CLI::App& app, Invocation& invocation);
void AddProfile(CLI::App& app, Invocation& invocation);
void AddPlan(CLI::App& app, Invocation& invocation);
void AddRun(CLI::App& app, Invocation& invocation);
void AddValidate(CLI::App& app, Invocation& invocation);
void AddReproduce(CLI::App& app, Invocation& invocation);
void AddWhatIf(CLI::App& app, Invocation& invocation);
void AddCall(CLI::App& app, Invocation& invocation);
void AddToken(CLI::App& app, Invocation& invocation);
void AddServe(CLI::App& app, Invocation& invocation);
void AddLaunch(CLI::App& app, Invocation& invocation);
void AddLayout(CLI::App& app, Invocation& invocation);
void AddStep(CLI::App& app, Invocation& invocation);
void AddExport(CLI::App& app, Invocation& invocation);
void AddCheck(CLI::App& app, Invocation& invocation);
// The process of one rank; started by other commands, not shown.
void AddRankWorker(CLI::App& app, Invocation& invocation);

}  // namespace moeplan::cli
