#include "executor/cuda/nccl_ras.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "executor/owned_fd.h"
#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxStatusBytes = size_t{256} << 10, kMaxFindings = 1000;
constexpr int kFirstLines = 4;

// The service's own limit for ranks that do not answer it; it waits for each longer than we do unless told so.
constexpr std::string_view kQuestion = "TIMEOUT 1\nVERBOSE STATUS\n";

bool AwaitEvents(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wanted = {.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

OwnedFd ConnectTo(const addrinfo& address, Clock::time_point deadline) {
  OwnedFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return {};
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  int error = errno;
  socklen_t length = sizeof error;
  const bool answered = error == EINPROGRESS && AwaitEvents(fd.get(), POLLOUT, deadline) &&
                        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0;
  return answered && error == 0 ? std::move(fd) : OwnedFd();
}

OwnedFd ConnectTo(const std::string& address, Clock::time_point deadline) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (OwnedFd fd = ConnectTo(*one, deadline); fd.get() >= 0) return fd;
  }
  return {};
}

// All that comes until the other end closes; none where that takes too long or is too much.
std::optional<std::string> ReadAll(int fd, Clock::time_point deadline) {
  std::string text;
  while (text.size() < kMaxStatusBytes && AwaitEvents(fd, POLLIN, deadline)) {
    char bytes[4096];
    const ssize_t count = recv(fd, bytes, sizeof bytes, 0);
    if (count == 0) return text;
    if (count < 0 && errno != EINTR && errno != EAGAIN) return std::nullopt;
    if (count > 0) text.append(bytes, count);
  }
  return std::nullopt;
}

// Lines that say something, without what surrounds them; what a terminal would obey becomes a blank.
std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line;
    for (const char one : text.substr(0, end)) line += one >= ' ' && one <= '~' ? one : ' ';
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos) lines.push_back(line.substr(first, line.find_last_not_of(' ') + 1 - first));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool IsRule(const std::string& line) { return line.find_first_not_of('=') == std::string::npos; }

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += StrCat(text.empty() ? "" : "; ", line);
  if (text.size() > kMaxFindings) text = text.substr(0, kMaxFindings - 3) + "...";
  return text;
}

}  // namespace

std::string RasAddress() {
  const char* const address = std::getenv("NCCL_RAS_ADDR");
  return address == nullptr || *address == '\0' ? "localhost:28028" : address;
}

std::string AskRas(const std::string& address, double limit_s) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  const OwnedFd fd = ConnectTo(address, deadline);
  if (fd.get() < 0) return "";
  if (send(fd.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(kQuestion.size()))
    return "";
  const std::optional<std::string> status = ReadAll(fd.get(), deadline);
  return status ? RasFindings(*status) : "";
}

std::string RasFindings(std::string_view status) {
  std::vector<std::string> lines = LinesOf(status);
  if (!lines.empty() && lines.front() == "OK") lines.erase(lines.begin());  // The answer to TIMEOUT.
  std::vector<std::string> findings;
  bool has_sections = false, wanted = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i + 1 < lines.size() && IsRule(lines[i + 1])) {  // The title of a section.
      wanted = lines[i] == "Errors" || lines[i] == "Warnings";
      has_sections |= wanted;
      ++i;
    } else if (wanted) {
      findings.push_back(lines[i]);
    }
  }
  if (!has_sections) findings.assign(lines.begin(), lines.begin() + std::min<size_t>(lines.size(), kFirstLines));
  return Joined(findings);
}

}  // namespace moeplan::executor::cuda
