// What a connection over HTTP brings, up to the bytes that go back: the planner's own limits, routes and dispatcher,
// and every method with its messages and role. Behind the methods is no store: each answers out of its request.
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "moeplan/v1/agent_service.pb.h"
#include "moeplan/v1/planner_service.pb.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/access/token.h"
#include "planner/service/calls/method.h"
#include "planner/service/calls/record.h"
#include "planner/service/http/wire.h"
#include "tests/fuzz/fuzzed.h"

namespace moeplan::service {
namespace {

using google::protobuf::Message;

// An error of any kind that methods have, in words of the caller's, or whatever answer the request's bytes make.
StatusOr<std::unique_ptr<Message>> AnswerOutOf(const Message& request, const Message& response) {
  const std::string bytes = request.SerializeAsString();
  switch (bytes.size() % 4) {
    case 1: return InvalidInput("field[0].name: found '" + request.ShortDebugString() + "', expected something else");
    case 2: return NotFound(bytes);
    case 3: return Unavailable(request.ShortDebugString());
    default: break;
  }
  std::unique_ptr<Message> answer(response.New());
  if (!answer->ParseFromString(bytes)) answer->Clear();
  return answer;
}

Method MethodOf(std::string path, Role role, const Message& request, const Message& response) {
  return {.path = std::move(path),
          .role = role,
          .request = &request,
          .response = &response,
          .handle = [&response](const Environment&, const Message& asked, std::stop_token) {
            return AnswerOutOf(asked, response);
          }};
}

// Every method of a service that takes one message, the roles in turn.
void AddMethods(const google::protobuf::FileDescriptor& file, std::vector<Method>& methods) {
  auto& factory = *google::protobuf::MessageFactory::generated_factory();
  for (int s = 0; s < file.service_count(); ++s) {
    const google::protobuf::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      const google::protobuf::MethodDescriptor& method = *service.method(m);
      if (method.client_streaming() || method.server_streaming()) continue;
      constexpr Role kRoles[] = {Role::kRead, Role::kPlan, Role::kReport, Role::kAdmin};
      methods.push_back(MethodOf("/" + service.full_name() + "/" + method.name(), kRoles[m % 4],
                                 *factory.GetPrototype(method.input_type()),
                                 *factory.GetPrototype(method.output_type())));
    }
  }
}

std::vector<Method> MakeMethods() {
  std::vector<Method> methods;
  AddMethods(*v1::PlanRequest::descriptor()->file(), methods);
  AddMethods(*v1::ListProfilesRequest::descriptor()->file(), methods);
  AddMethods(*v1::ListAgentsRequest::descriptor()->file(), methods);
  for (Method& method : methods) {
    if (method.path.ends_with("/Plan")) method.may_repeat = [](const Message&) { return true; };
  }
  return methods;
}

}  // namespace

// In the place of calls/methods.cc.
std::span<const Method> Methods() {
  static const std::vector<Method> methods = MakeMethods();
  return methods;
}

const Method* FindMethod(std::string_view path) {
  for (const Method& method : Methods()) {
    if (method.path == path) return &method;
  }
  return nullptr;
}

namespace http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Error = boost::system::error_code;

// Never made; stands where the methods here do not look.
template <typename Thing>
union Unmade {
  Unmade() {}
  ~Unmade() {}
  Thing thing;
};

// One end of a connection: what comes in, in pieces, and then its end; what goes out.
class Connection {
 public:
  explicit Connection(std::string_view incoming) : incoming_(incoming) {}

  template <typename Buffers>
  size_t read_some(const Buffers& buffers, Error& problem) {
    const size_t most = 1 + incoming_.size() % 1400;
    const size_t read = asio::buffer_copy(buffers, asio::buffer(incoming_.data(), std::min(incoming_.size(), most)));
    incoming_.remove_prefix(read);
    problem = read == 0 ? Error(asio::error::eof) : Error();
    return read;
  }
  template <typename Buffers>
  size_t write_some(const Buffers& buffers, Error& problem) {
    const std::string text = beast::buffers_to_string(buffers);
    outgoing_ += text;
    problem = {};
    return text.size();
  }

  // Beast asks for these two, and calls the others.
  template <typename Buffers>
  size_t read_some(const Buffers& buffers) {
    Error problem;
    return read_some(buffers, problem);
  }
  template <typename Buffers>
  size_t write_some(const Buffers& buffers) {
    Error problem;
    return write_some(buffers, problem);
  }

  const std::string& outgoing() const { return outgoing_; }
  bool drained() const { return incoming_.empty(); }

 private:
  std::string_view incoming_;
  std::string outgoing_;
};

class Planner {
 public:
  Planner(const std::vector<TokenRecord>& tokens, bool loopback)
      : routes_({.dispatcher = dispatcher_,
                 .access = access_,
                 .metrics = metrics_,
                 .grpc_address = grpc_address_,
                 .loopback = loopback}) {
    access_.Set(tokens);
  }

  // As session.cc, but for the waiting.
  void Serve(std::string_view bytes) {
    Connection connection(bytes);
    beast::flat_buffer buffer;
    for (bool goes_on = true; goes_on;) {
      RequestParser parser;
      SetLimits(parser, kLimits);
      Error problem;
      beast::http::read_header(connection, buffer, parser, problem);
      if (problem) return Refuse(problem, HeadOf(parser, "").request_id);
      const Request head = HeadOf(parser, "127.0.0.1:1");
      CheckHead(head);
      if (auto refused = routes_.Refuse(head)) {
        Write(*std::move(refused), head, /*keep_alive=*/false);
        return;
      }
      beast::http::read(connection, buffer, parser, problem);
      if (problem) return Refuse(problem, head.request_id);
      auto request = std::make_shared<Request>(head);
      request->body = std::move(parser.get().body());
      goes_on = parser.get().keep_alive();
      Write(Answer(std::move(request)), head, goes_on);
    }
  }

 private:
  static constexpr Limits kLimits = {.head_bytes = 2048, .body_bytes = 8192};

  Response Answer(std::shared_ptr<const Request> request) {
    std::promise<Response> answer;
    MOEPLAN_CHECK(CallLimitS(*request) > 0 && CallLimitS(*request) <= kLongestCallS);
    (void)routes_.Serve(std::move(request), [&](Response response) { answer.set_value(std::move(response)); });
    return answer.get_future().get();
  }

  static void CheckHead(const Request& head) {
    MOEPLAN_CHECK(!head.request_id.empty() && head.request_id.size() <= 128);
    for (const std::string* text :
         {&head.target, &head.host, &head.authorization, &head.content_type, &head.timeout_ms, &head.request_id}) {
      MOEPLAN_CHECK(text->find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    }
  }

  static void Refuse(const Error& problem, const std::string& request_id) {
    if (auto response = ErrorAfter(problem, kLimits)) {
      Write(*std::move(response), {.verb = "GET", .request_id = request_id}, /*keep_alive=*/false);
    }
  }

  // The answer as the other end reads it.
  static void Write(Response response, const Request& head, bool keep_alive) {
    static const std::set<int> kStatuses = {200, 400, 401, 403, 404, 405, 413, 415, 421, 429, 431, 503};
    MOEPLAN_CHECK(kStatuses.contains(response.status));
    if (response.content_type == "application/json") {
      const auto body = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
      MOEPLAN_CHECK(body.is_object());
      for (const char* key : {"code", "message", "reason"}) {
        MOEPLAN_CHECK(response.status == 200 || !body.at(key).get_ref<const std::string&>().empty());
      }
    }
    const Response expected = response;
    Connection written({});
    Error problem;
    const bool head_only = head.verb == "HEAD";
    ResponseMessage message = MessageOf(std::move(response), head.request_id, keep_alive, head_only);
    beast::http::response_serializer<beast::http::string_body> serializer(message);
    head_only ? beast::http::write_header(written, serializer, problem)
              : beast::http::write(written, serializer, problem);
    MOEPLAN_CHECK(!problem);

    Connection read(written.outgoing());
    beast::flat_buffer buffer;
    beast::http::response_parser<beast::http::string_body> parser;
    parser.body_limit(boost::none);
    parser.skip(head_only);
    beast::http::read(read, buffer, parser, problem);
    MOEPLAN_CHECK(!problem);
    MOEPLAN_CHECK(buffer.size() == 0 && read.drained());
    const ResponseMessage& seen = parser.get();
    MOEPLAN_CHECK(seen.result_int() == static_cast<unsigned>(expected.status));
    MOEPLAN_CHECK(seen.keep_alive() == keep_alive);
    MOEPLAN_CHECK(head_only ? seen.body().empty() : seen.body() == expected.body);
    MOEPLAN_CHECK(seen["x-request-id"] == head.request_id);
    // Those that every answer has, its own, and what tells that the connection ends: nothing slipped in between.
    const auto fields = std::distance(seen.begin(), seen.end());
    MOEPLAN_CHECK(fields == 7 + std::ssize(expected.headers) + (keep_alive ? 0 : 1));
  }

  const std::string grpc_address_ = "127.0.0.1:2";
  Unmade<Store> store_;
  Unmade<SampleWriter> sample_writer_;
  Puts puts_;
  const Environment environment_ = {.store = store_.thing, .puts = puts_, .sample_writer = sample_writer_.thing};
  Access access_;
  AnswerCache cache_{1 << 16};
  Metrics metrics_{[] { return Metrics::Now{}; }};
  WorkerPool workers_{1, 4};
  const Dispatcher dispatcher_{
      {.environment = environment_,
       .workers = workers_,
       .appenders = workers_,
       .access = access_,
       .cache = cache_,
       .answered_quietly = nullptr,
       .refused = [this](std::string_view, const std::string&, const grpc::Status& why) { metrics_.Refused(why); },
       .answered =
           [this](const Call& call, const service::Answer& answer) {
             metrics_.Answered(call, answer);
             (void)RecordOf(call, answer);
           },
       .searched = [](double) {},
       .worked_out = [](const Method&, const Message&) {}}};
  const Routes routes_;
};

std::vector<TokenRecord> Tokens() {
  std::vector<TokenRecord> tokens;
  for (const char* role : {"read", "plan", "report", "admin"}) {
    tokens.push_back({.name = role, .role = role, .sha256 = HexDigestOf(role)});
  }
  return tokens;
}

}  // namespace
}  // namespace http
}  // namespace moeplan::service

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moeplan::service::http::Planner;
  // Never ended: their threads would outlive what ends with the process.
  static Planner& local = *new Planner({}, /*loopback=*/true);
  static Planner& guarded = *new Planner(moeplan::service::http::Tokens(), /*loopback=*/false);
  local.Serve(moeplan::TextOf(data, size));
  guarded.Serve(moeplan::TextOf(data, size));
  return 0;
}
