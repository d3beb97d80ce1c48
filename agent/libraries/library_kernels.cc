#include "agent/libraries/library_kernels.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "agent/libraries/step_kernels_text.h"
#include "models/text.h"

namespace moeplan::agent {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr size_t kMostAnswerBytes = 1 << 20;
// Reads the program that its first line counts the bytes of, and runs it; requests follow on the same stream. Modules
// are not looked for in the folder that the agent happens to run in.
constexpr const char* kLoader =
    "import sys; sys.path[:] = [p for p in sys.path if p]; i = sys.stdin.buffer; "
    "exec(compile(i.read(int(i.readline())), 'step_kernels.py', 'exec'))";

std::string Python() {
  const char* const given = std::getenv(kPythonVariable);
  return given != nullptr && *given != '\0' ? given : "python3";
}

Status NoLibraries(const std::string& why) {
  return Unimplemented(
      StrCat("no PyTorch at ", Python(), ": ", why, "; give the job's Python with --python or in $", kPythonVariable));
}

std::string RequestText(const LibraryRequest& request) {
  json shape = json::object();
  for (const KernelShapeField& field : KernelShapeFields()) {
    if (request.key.shape.*field.value != 0) shape[std::string(field.name)] = request.key.shape.*field.value;
  }
  json text = {{"kernel", Name(request.key.kernel)},
               {"shape", std::move(shape)},
               {"size", request.size},
               {"warmUps", request.warm_ups},
               {"repeats", request.repeats}};
  if (request.key.bytes_per_element) text["bytesPerElement"] = *request.key.bytes_per_element;
  return text.dump() + "\n";
}

// Absent where the line is no JSON object.
std::optional<json> ObjectOf(const std::string& line) {
  json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
  return answer.is_object() ? std::optional(std::move(answer)) : std::nullopt;
}

std::string TextOf(const json& answer, const char* field) {
  const auto found = answer.find(field);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : "";
}

StatusOr<LibraryTimes> TimesOf(const std::string& line, int repeats) {
  const std::optional<json> answer = ObjectOf(line);
  LibraryTimes times;
  if (answer) {
    times.left_out = TextOf(*answer, "leftOut");
    times.library = TextOf(*answer, "library");
    if (const auto found = answer->find("timesS"); found != answer->end() && found->is_array()) {
      for (const json& time_s : *found) times.times_s.push_back(time_s.is_number() ? time_s.get<double>() : -1);
    }
  }
  if (!times.left_out.empty() || static_cast<int>(times.times_s.size()) == repeats) return times;
  return Unavailable(StrCat(Python(), ": found '", line.substr(0, 200), "', expected ", repeats, " times"));
}

}  // namespace

StatusOr<std::unique_ptr<LibraryKernels>> LibraryKernels::Start(const std::string& device, double run_within_s) {
  ASSIGN_OR_RETURN(executor::Child child,
                   executor::Child::Start({Python(), "-c", kLoader, device}, {.leads_group = true}));
  std::unique_ptr<LibraryKernels> kernels(new LibraryKernels(std::move(child), run_within_s));
  const std::string program(kStepKernelsText);
  const Status sent = kernels->Send(StrCat(program.size(), "\n", program));
  // One that ended before it had read all may have said why.
  StatusOr<std::string> first = kernels->ReadLine(kLibrariesStartWithinS);
  if (!sent.ok() && !first.ok()) first = sent;
  if (!first.ok()) {
    return first.status().code() == StatusCode::kDeadlineExceeded ? first.status()
                                                                  : NoLibraries(first.status().message());
  }
  const std::optional<json> answer = ObjectOf(*first);
  if (!answer || TextOf(*answer, "ready").empty()) {
    return NoLibraries(answer ? TextOf(*answer, "failed") : StrCat("found '", first->substr(0, 200), "'"));
  }
  return kernels;
}

StatusOr<LibraryTimes> LibraryKernels::Time(const LibraryRequest& request) {
  RETURN_IF_ERROR(Send(RequestText(request)));
  ASSIGN_OR_RETURN(const std::string line,
                   ReadLine(LibraryAnswersWithinS(request.warm_ups + request.repeats, run_within_s_)));
  return TimesOf(line, request.repeats);
}

Status LibraryKernels::Send(const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = write(child_.write_fd(), text.data() + sent, text.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return HasEnded();
    sent += static_cast<size_t>(count);
  }
  return OkStatus();
}

StatusOr<std::string> LibraryKernels::ReadLine(double within_s) {
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(within_s));
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return DeadlineExceeded(StrCat(Python(), ": no answer within ", within_s, " s"));
    pollfd readable = {.fd = child_.read_fd(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, static_cast<int>(std::min<int64_t>(left, 60000))) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(child_.read_fd(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return HasEnded();
    unread_.append(buffer, static_cast<size_t>(count));
    if (unread_.size() > kMostAnswerBytes) return Unavailable(StrCat(Python(), ": an answer without end"));
  }
}

Status LibraryKernels::HasEnded() {
  std::string how = child_.End();
  for (int i = 0; how.empty() && i < 100; ++i) {  // Its stream ends a moment before it does.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    how = child_.End();
  }
  if (how == "exited with code 127") return Unavailable("there is no such program");
  return Unavailable(StrCat(Python(), how.empty() ? " closed its stream" : StrCat(" ", how)));
}

}  // namespace moeplan::agent
