#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_option.h"
#include "planner/client/answer_printer.h"
#include "planner/client/call_method.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct CallOptions {
  std::string method, json = "{}";
  PlannerOption planner;
  std::string deadline = "60s";
  bool as_json = false;  // Changes nothing: what it prints is JSON anyway.
};

// Reads what is named by "@FILE", by "-" (standard input), or else the text itself.
StatusOr<std::string> TextOf(const std::string& json) {
  if (json.starts_with('@')) return ReadTextFile(json.substr(1));
  if (json == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  return json;
}

Status Run(const CallOptions& options) {
  ASSIGN_OR_RETURN(const double deadline_s, ParseSeconds("--deadline", options.deadline));
  ASSIGN_OR_RETURN(const std::string json, TextOf(options.json));
  ASSIGN_OR_RETURN(const client::ConnectOptions connect, options.planner.Connect(deadline_s));
  client::AnswerPrinter printer(connect);
  const Status called =
      client::CallMethod(connect, options.method, json, [&](const google::protobuf::Message& answer, bool streamed) {
        Print(printer.Json(answer, streamed ? JsonStyle::kCompact : JsonStyle::kPretty));
        if (streamed) Print("\n");
        return FlushOutput().ok();
      });
  WarnOfLeftOut(printer);
  return called;
}

}  // namespace

void AddCall(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<CallOptions>();
  CLI::App* command = AddCommand(app, invocation, "call", "Call a planner's method with JSON",
                                 "moeplan call ListProfiles '{\"pageSize\": 10}' --planner 127.0.0.1:7070",
                                 [options] { return Run(*options); });
  command->add_option("METHOD", options->method, "Such as Plan or PlannerService/Plan")->required();
  command->add_option("JSON", options->json, "Its request: JSON, @FILE, or - for standard input")
      ->capture_default_str();
  options->planner.Add(*command, *command);
  command->add_option("--deadline", options->deadline, "How long the answer may take")->capture_default_str();
  command->add_flag("--json", options->as_json, "Print JSON (it always does)");
}

}  // namespace moeplan::cli
