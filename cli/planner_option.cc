#include "cli/planner_option.h"

#include <cstdio>
#include <cstdlib>

#include "models/text.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

std::string Trimmed(std::string text) {
  const size_t end = text.find_last_not_of(" \r\n\t");
  text.resize(end == text.npos ? 0 : end + 1);
  return text;
}

StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, "a token"));
  text = Trimmed(std::move(text));
  if (text.empty()) return InvalidInput(StrCat("--token-file: ", path, ": found nothing, expected a token"));
  return text;
}

}  // namespace

void PlannerOption::Add(CLI::App& where, CLI::App& command, const std::string& help) {
  where.add_option("--planner", options_.address, help);
  command.add_option("--tls-ca", options_.tls_authority, "Authority of the planner's certificate (PEM): use TLS");
  command.add_option("--tls-cert", options_.tls_certificate, "Own certificate (PEM), where the planner wants one");
  command.add_option("--tls-key", options_.tls_key, "Its key (PEM)");
  command.add_option("--token-file", token_file_, "File with a token (default: MOEPLAN_TOKEN of the environment)");
  command.add_flag("--insecure", options_.insecure, "Send the token to another machine without TLS");
}

StatusOr<client::ConnectOptions> PlannerOption::Connect(double deadline_s) const {
  client::ConnectOptions options = options_;
  if (options.address.empty()) options.address = kDefault;
  options.deadline_s = deadline_s;
  if (!token_file_.empty()) {
    ASSIGN_OR_RETURN(options.token, ReadToken(token_file_));
  } else if (const char* const token = std::getenv("MOEPLAN_TOKEN")) {
    options.token = Trimmed(token);
  }
  return options;
}

void WarnOfLeftOut(const client::AnswerPrinter& printer) {
  if (printer.left_out().ok()) return;
  std::fprintf(stderr,
               "moeplan: the planner is newer, and fields of its answer that are not known here were left out: %s\n",
               printer.left_out().message().c_str());
}

}  // namespace moeplan::cli
