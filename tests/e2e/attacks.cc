#include "tests/e2e/attacks.h"

namespace moeplan::testing {
namespace {

constexpr size_t kFrameBytes = 16384;  // The most that every receiver takes.
constexpr const char* kPath = "/moeplan.v1.PlannerService/Plan";

// A head whose frames repeat `payload`.
Attack Endless(std::string name, const std::string& begun, const std::string& payload, size_t bytes) {
  return {.name = std::move(name),
          .beginning = Http2Beginning() + Frame(FrameType::kHeaders, 0, 1, CallFields(kPath) + begun),
          .again = Frame(FrameType::kContinuation, 0, 1, payload),
          .times = static_cast<int>(bytes / payload.size())};
}

std::string ManyFields() {
  std::string fields;
  while (fields.size() + 128 < kFrameBytes) fields += HeaderField("a", std::string(100, 'x'));
  return fields;
}

}  // namespace

std::vector<Attack> AttacksOnHeaders(size_t bytes) {
  // A field without index: its name, then the length of its value in 7 bits, all set where more bytes of it follow.
  const std::string field = std::string("\0\1a\x7f", 4);
  return {Endless("a value of a gibibyte", field + "\xff\xff\xff\xff\x03", std::string(kFrameBytes, 'x'), bytes),
          Endless("fields without an end", "", ManyFields(), bytes),
          Endless("a number without an end", field, std::string(1024, '\x80'), bytes / 8)};
}

AttackEnd Play(const Attack& attack, int port, const TlsClient* tls) {
  const auto connection = RawHttp2::Connect(port, tls);
  if (!connection) return AttackEnd::kNotLetIn;
  bool taken = connection->Send(attack.beginning);
  for (int i = 0; taken && i < attack.times; ++i) taken = connection->Send(attack.again);
  if (!taken) return AttackEnd::kCutOff;
  // Settings come first; whoever closes the connection says why before.
  while (!connection->Receive().empty()) continue;
  return connection->ended() ? AttackEnd::kCutOff : AttackEnd::kTaken;
}

}  // namespace moeplan::testing
