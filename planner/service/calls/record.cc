#include "planner/service/calls/record.h"

#include "models/text.h"
#include "proto/grpc_status.h"

namespace moeplan::service {

namespace {

std::string_view EventOf(const Method& method, const Answer& answer) {
  if (method.streams) return "ended";
  return answer.status.ok() ? "answered" : "refused";
}

}  // namespace

LogLevel LevelOf(const Method& method, const Answer& answer) {
  switch (answer.status.error_code()) {
    case grpc::OK: return LogLevel::kDebug;
    case grpc::CANCELLED: return method.streams ? LogLevel::kDebug : LogLevel::kInfo;
    case grpc::UNKNOWN:
    case grpc::INTERNAL:
    case grpc::DATA_LOSS: return LogLevel::kError;
    default: return LogLevel::kInfo;
  }
}

LogRecord RecordOf(const Call& call, const Answer& answer) {
  const std::chrono::duration<double, std::milli> took = Call::Clock::now() - call.began();
  LogRecord record = {.level = LevelOf(call.method(), answer),
                      .event = std::string(EventOf(call.method(), answer)),
                      .facts = {{"requestId", call.origin().request_id()},
                                {"method", call.method().path},
                                {"transport", std::string(call.transport())},
                                {"peer", call.origin().address()},
                                {"ms", StrCat(took.count())}}};
  if (answer.status.ok()) return record;
  record.facts.emplace_back("code", CodeName(answer.status.error_code()));
  record.facts.emplace_back("reason", DetailOf(answer.status).reason);
  record.facts.emplace_back("message", answer.status.error_message());
  return record;
}

}  // namespace moeplan::service
