// This option is --planner, with how it is reached: certificates and the token.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "models/status.h"
#include "planner/client/answer_printer.h"
#include "planner/client/connect_options.h"

namespace moeplan::cli {

class PlannerOption {
 public:
  // Adds --planner to `where`, and what belongs to it to `command`.
  void Add(CLI::App& where, CLI::App& command, const std::string& help = "HOST:PORT of a planner");
  bool given() const { return !options_.address.empty(); }
  // The default address is kDefault. Reads the token from --token-file, else from MOEPLAN_TOKEN.
  StatusOr<client::ConnectOptions> Connect(double deadline_s) const;

  static constexpr char kDefault[] = "127.0.0.1:7070";

 private:
  client::ConnectOptions options_;
  std::string token_file_;
};

// Says on standard error when answers were printed without some of their fields.
void WarnOfLeftOut(const client::AnswerPrinter& printer);

}  // namespace moeplan::cli
