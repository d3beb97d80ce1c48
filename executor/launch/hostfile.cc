#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "executor/launch/launch.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

constexpr int kMostSlots = 1024;  // As of an agent.

// A name for ssh must not look like an option or hold anything but what host names and addresses do.
bool IsHostName(const std::string& name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '@';
  };
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, allowed);
}

Status ParseWord(const std::string& word, Host& host, const std::string& where) {
  constexpr std::string_view kSlots = "slots=", kMaxSlots = "max_slots=", kMaxSlotsDash = "max-slots=";
  if (word.starts_with(kMaxSlots) || word.starts_with(kMaxSlotsDash)) return OkStatus();
  if (!word.starts_with(kSlots)) return InvalidInput(StrCat(where, ": found '", word, "', expected slots=N"));
  const std::string number = word.substr(kSlots.size());
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), host.slots);
  if (error != std::errc() || end != number.data() + number.size() || host.slots < 1 || host.slots > kMostSlots) {
    return InvalidInput(StrCat(where, ": found '", word, "', expected slots=N with N of 1 to ", kMostSlots));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<Host>> ParseHostfile(const std::string& text, const std::string& file_name) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = StrCat(file_name, ":", number);
    std::istringstream words(line.substr(0, line.find('#')));
    Host host;
    if (!(words >> host.name)) continue;
    if (!IsHostName(host.name)) return InvalidInput(StrCat(where, ": found '", host.name, "', expected a host name"));
    for (std::string word; words >> word;) RETURN_IF_ERROR(ParseWord(word, host, where));
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return InvalidInput(StrCat(file_name, ": found no host, expected lines of 'host slots=N'"));
  for (const Host& host : hosts) {
    if (host.slots != hosts.front().slots) {
      return InvalidInput(StrCat(file_name, ": found slots=", host.slots, " for ", host.name, ", expected ",
                                 hosts.front().slots, " as for ", hosts.front().name, " (nodes must be alike)"));
    }
  }
  return hosts;
}

}  // namespace moeplan::executor
