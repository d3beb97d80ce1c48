#include "proto/host_port.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstdint>
#include <optional>

#include "models/text.h"

namespace moeplan {
namespace {

constexpr int kLargestPort = 65535;

std::optional<int> PortOf(std::string_view digits) {
  int port = -1;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool whole = problem == std::errc() && end == digits.data() + digits.size();
  if (!whole || port < 0 || port > kLargestPort) return std::nullopt;
  return port;
}

// Without brackets; nothing when a colon stands outside them or a character has no business in a host's name.
std::optional<std::string> HostOf(std::string_view text) {
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (bracketed) text = text.substr(1, text.size() - 2);
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  const std::string allowed = bracketed ? StrCat(kName, ":%") : std::string(kName);
  if (text.empty() || text.find_first_not_of(allowed) != std::string_view::npos) return std::nullopt;
  return std::string(text);
}

}  // namespace

StatusOr<HostPort> ParseHostPort(std::string_view text, std::string_view field) {
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    const auto host = HostOf(text.substr(0, colon));
    const auto port = PortOf(text.substr(colon + 1));
    if (host && port) return HostPort{.host = *host, .port = *port};
  }
  return InvalidInput(StrCat(field, ": found '", text, "', expected HOST:PORT such as 127.0.0.1:7070"));
}

std::string ToString(const HostPort& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? StrCat("[", address.host, "]:", address.port) : StrCat(address.host, ":", address.port);
}

bool IsLoopback(const HostPort& address) {
  if (address.host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace moeplan
