// HTTP over loopback: what is answered, and what happens to those who are slow, large or not who they seem.
#include "planner/service/http/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "models/text.h"
#include "planner/service/access/token.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/http/openapi.h"
#include "service_fixture.h"

namespace moeplan::service::http {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

// A byte stream to the server, to be used badly.
class RawSocket {
 public:
  explicit RawSocket(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  ~RawSocket() { Close(); }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  bool Send(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // All that comes until the other end closes.
  std::string Rest() {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = recv(fd_, buffer, sizeof buffer, 0)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

class HttpTest : public ServiceTest {
 protected:
  void Start(const Limits& limits = {}) {
    auto store = Store::Open(db());
    ASSERT_TRUE(store.ok());
    store_.emplace(*std::move(store));
    environment_ = std::make_unique<Environment>(
        Environment{.store = *store_, .puts = puts_, .sample_writer = writer_.emplace(*store_)});
    dispatcher_ = std::make_unique<Dispatcher>(Dispatcher::Uses{
        .environment = *environment_,
        .workers = workers_,
        .appenders = workers_,
        .access = access_,
        .cache = cache_,
        .refused = [this](std::string_view, const std::string&, const grpc::Status& why) { metrics_.Refused(why); },
        .answered = [this](const Call& call, const Answer& answer) { metrics_.Answered(call, answer); },
        .searched = [](double) {},
        .worked_out = [](const Method&, const google::protobuf::Message&) {}});
    auto endpoint = Endpoint::Start(
        {.host = "127.0.0.1"}, {},
        {.dispatcher = *dispatcher_, .access = access_, .metrics = metrics_, .grpc_address = grpc_address_}, limits);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status().message();
    endpoint_ = *std::move(endpoint);
  }

  int port() const { return endpoint_->address().port; }
  httplib::Client Client() const { return httplib::Client("127.0.0.1", port()); }

  // The status and body of a call as JSON.
  std::pair<int, json> Post(const std::string& path, const std::string& body,
                            const httplib::Headers& headers = {}) const {
    const auto response = Client().Post(path, headers, body, "application/json");
    if (!response) return {0, json()};
    return {response->status, json::parse(response->body, nullptr, /*allow_exceptions=*/false)};
  }

  const std::string grpc_address_ = "127.0.0.1:1";
  std::optional<Store> store_;
  Puts puts_;
  std::optional<SampleWriter> writer_;
  std::unique_ptr<Environment> environment_;
  Access access_;
  AnswerCache cache_{1 << 20};
  Metrics metrics_{[] { return Metrics::Now{}; }};
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Endpoint> endpoint_;
  WorkerPool workers_{2, 8};  // Last: what it still does uses all of the above.
};

const std::string kList = "/moeplan.v1.ProfileService/ListProfiles";
const std::string kPut = "/moeplan.v1.ProfileService/PutProfile";
const std::string kPlan = "/moeplan.v1.PlannerService/Plan";

TEST_F(HttpTest, MethodsTakeAndGiveJson) {
  Start();
  const auto [put, version] = Post(kPut, ToJson(ExamplePutProfile("a")));
  EXPECT_EQ(put, 200);
  EXPECT_EQ(version, json({{"profileName", "two-nodes-of-eight"}, {"profileVersion", 1}}));
  const auto [planned, plan] = Post(kPlan, ToJson(ExamplePlanRequest()));
  EXPECT_EQ(planned, 200);
  const auto expected = json::parse(ToJson(*Plan(*environment_, ExamplePlanRequest(), {}), JsonStyle::kCompact));
  EXPECT_EQ(plan, expected);
}

TEST_F(HttpTest, ACompressedBodyIsRefusedUnread) {
  Start();
  const auto [status, error] = Post(kPlan, "\x1f\x8b", {{"Content-Encoding", "gzip"}});
  EXPECT_EQ(status, 415);
  EXPECT_EQ(error["code"], "UNIMPLEMENTED");
  EXPECT_EQ(error["message"], "Content-Encoding: found 'gzip', expected none: bodies come unpacked");
}

// What is read already may be told of a moment later, and is not the end of the connection.
TEST_F(HttpTest, WhoeverWaitsIsNotTakenToHaveLeft) {
  Start();
  Post(kPut, ToJson(ExamplePutProfile("a")));
  const std::string question = ToJson(ExamplePlanRequest());
  for (int i = 0; i < 300; ++i) {
    cache_.Clear();
    ASSERT_EQ(Post(kPlan, question).first, 200) << i;
  }
}

TEST_F(HttpTest, WhoeverLeavesIsNotWorkedFor) {
  Start();
  std::promise<void> enough;
  const auto held = [end = enough.get_future().share()] { end.wait(); };
  ASSERT_TRUE(workers_.TrySubmit(held) && workers_.TrySubmit(held));  // Both workers: the question stays in the queue.
  RawSocket socket(port());
  socket.Send(StrCat("POST ", kPlan,
                     " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: 2\r\n\r\n{}"));
  const auto limit = std::chrono::steady_clock::now() + 30s;
  const auto soon = [&] {
    std::this_thread::sleep_for(1ms);
    return std::chrono::steady_clock::now() < limit;
  };
  while (workers_.in_progress() < 3 && soon()) continue;
  socket.Close();
  while (metrics_.Page().find("CANCELLED") == std::string::npos && soon()) continue;
  EXPECT_THAT(metrics_.Page(), HasSubstr("CANCELLED"));
  enough.set_value();
}

TEST_F(HttpTest, ErrorsSayWhichFieldIsWrong) {
  Start();
  const auto [status, body] = Post(kPlan, R"({"workload": {"layer": {"topk": 2}}})");
  EXPECT_EQ(status, 400);
  EXPECT_EQ(body.at("code"), "INVALID_ARGUMENT");
  // Though no call was made of it.
  EXPECT_THAT(Client().Get("/metrics")->body, HasSubstr("code=\"INVALID_ARGUMENT\",method=\"moeplan.v1."));
  EXPECT_EQ(body.at("reason"), "INVALID_INPUT");
  EXPECT_EQ(body.at("field"), "workload.layer.topk");
  EXPECT_EQ(Post(kPlan, "{").first, 400);
  EXPECT_EQ(Post("/moeplan.v1.ProfileService/GetProfile", "{}").first, 404);
  EXPECT_EQ(Post("/moeplan.v1.ProfileService/Nothing", "{}").second.at("reason"), "NO_METHOD");
  EXPECT_EQ(Client().Get(kPlan)->status, 404);
  EXPECT_EQ(Client().Put("/", "", "application/json")->status, 405);
}

TEST_F(HttpTest, ARequestIdComesBack) {
  Start();
  const auto own = Client().Post(kList, {{"X-Request-Id", "my-id"}}, "{}", "application/json");
  EXPECT_EQ(own->get_header_value("X-Request-Id"), "my-id");
  const auto made = Client().Post(kList, {{"X-Request-Id", "a b"}}, "{}", "application/json");
  EXPECT_EQ(made->get_header_value("X-Request-Id").size(), 12u);
  // With whatever is answered.
  const httplib::Headers id = {{"X-Request-Id", "my-id"}};
  EXPECT_EQ(Client().Get("/healthz", id)->get_header_value("X-Request-Id"), "my-id");
  EXPECT_EQ(Client().Get("/nothing", id)->get_header_value("X-Request-Id"), "my-id");
  EXPECT_EQ(Client().Post(kList, id, "{}", "text/plain")->get_header_value("X-Request-Id"), "my-id");
  EXPECT_EQ(Client().Get("/healthz")->get_header_value("X-Request-Id").size(), 12u);
}

TEST_F(HttpTest, TokensAreAskedForByRole) {
  Start();
  access_.Set({{.name = "r", .role = "read", .sha256 = HexDigestOf("reader")}});
  const auto [none, why] = Post(kList, "{}");
  EXPECT_EQ(none, 401);
  EXPECT_EQ(why.at("reason"), "NO_TOKEN");
  const httplib::Headers reader = {{"Authorization", "Bearer reader"}};
  EXPECT_EQ(Post(kList, "{}", reader).first, 200);
  EXPECT_EQ(Post(kPlan, "{}", reader).first, 403);
  EXPECT_EQ(Client().Get("/metrics")->status, 401);
  const auto page = Client().Get("/metrics", reader);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->body, HasSubstr("moeplan_auth_failures_total{reason=\"NO_TOKEN\"} 2"));
  EXPECT_EQ(Client().Get("/healthz")->status, 200) << "probes have no token";
}

// Without these a page on any site could have its visitors' browsers call a planner on their machines.
TEST_F(HttpTest, OtherSitesCannotMakeABrowserAsk) {
  Start();
  const auto form = Client().Post(kList, "{}", "text/plain");
  EXPECT_EQ(form->status, 415);
  const auto rebound = Client().Post(kList, {{"Host", StrCat("evil.example:", port())}}, "{}", "application/json");
  EXPECT_EQ(rebound->status, 421);
  const auto options = Client().Options(kList);
  EXPECT_EQ(options->status, 405);
  EXPECT_FALSE(options->has_header("Access-Control-Allow-Origin"));
  for (const char* name : {"localhost", "127.0.0.1", "[::1]"}) {
    EXPECT_EQ(Client().Get("/healthz", {{"Host", StrCat(name, ":", port())}})->status, 200) << name;
    EXPECT_EQ(Client().Get("/healthz", {{"Host", name}})->status, 200) << name;
  }
}

TEST_F(HttpTest, NothingThatCameInIsGivenBackAsMarkup) {
  Start();
  const auto response = Client().Get("/<img src=x onerror=alert(1)>");
  EXPECT_EQ(response->status, 404);
  EXPECT_EQ(response->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(response->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_THAT(response->get_header_value("Content-Security-Policy"), StartsWith("default-src 'none'"));
}

TEST_F(HttpTest, OneConnectionServesManyRequests) {
  Start();
  RawSocket socket(port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(socket.Send(
        StrCat("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", i == 2 ? "Connection: close\r\n" : "", "\r\n")));
  }
  const std::string text = socket.Rest();
  size_t answers = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 200 OK", at)) != std::string::npos; ++at) ++answers;
  EXPECT_EQ(answers, 3u);
}

TEST_F(HttpTest, ContinueIsSaidToThoseWhoAskBeforeTheySend) {
  Start();
  RawSocket socket(port());
  socket.Send(StrCat("POST ", kList,
                     " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"));
  std::this_thread::sleep_for(50ms);  // The interim answer comes before the body; both orders must work.
  socket.Send("{}");
  EXPECT_THAT(socket.Rest(), testing::AllOf(StartsWith("HTTP/1.1 100 Continue\r\n\r\n"), HasSubstr("HTTP/1.1 200 OK")));
}

TEST_F(HttpTest, HeadTellsTheLengthAlone) {
  Start();
  RawSocket socket(port());
  socket.Send("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string text = socket.Rest();
  EXPECT_THAT(text, HasSubstr("Content-Length: 39"));
  EXPECT_TRUE(text.ends_with("\r\n\r\n")) << text;
}

TEST_F(HttpTest, WhatIsTooLargeOrNonsenseIsRefused) {
  Start({.head_bytes = 2000, .body_bytes = 1000});
  const auto long_head = Client().Get("/healthz", {{"X-Long", std::string(4000, 'x')}});
  EXPECT_EQ(long_head->status, 431);
  EXPECT_EQ(json::parse(long_head->body).at("message"), "found a head of more bytes, expected at most 2000");
  EXPECT_EQ(long_head->get_header_value("X-Request-Id").size(), 12u);
  const auto long_body = Client().Post(kList, {{"X-Request-Id", "my-id"}}, std::string(2000, ' '), "application/json");
  EXPECT_EQ(long_body->status, 413);
  EXPECT_EQ(json::parse(long_body->body).at("reason"), "TOO_LARGE");
  EXPECT_EQ(long_body->get_header_value("X-Request-Id"), "my-id");
  RawSocket nonsense(port());
  nonsense.Send("no such thing\r\n\r\n");
  EXPECT_THAT(nonsense.Rest(), testing::AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("\"code\":\"INVALID_ARGUMENT\""),
                                              HasSubstr("x-request-id: ")));
  EXPECT_EQ(Client().Get("/healthz")->status, 200);
}

TEST_F(HttpTest, BodiesAreBoundedTogether) {
  Start({.all_bodies_bytes = 3000});
  const std::string head = StrCat("POST ", kList, " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
  const std::string part(1900, ' ');
  const auto limit = std::chrono::steady_clock::now() + 30s;
  const auto status = [&] { return Post(kList, "{}" + part).first; };
  RawSocket announced(port());
  announced.Send(head + "Content-Length: 16000000\r\n\r\n ");  // What has not come takes no room.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(status(), 200);        // What is answered takes none either.
  for (const std::string& framing :
       {std::string("Content-Length: 2000\r\n\r\n"), std::string("Transfer-Encoding: chunked\r\n\r\n7d0\r\n")}) {
    // Whoever comes first is held: that may be the question while the body that shall be held is still coming.
    std::optional<RawSocket> held;
    do {
      held.emplace(port());
      held->Send(head + framing + part);
      std::this_thread::sleep_for(20ms);
    } while ((status() != 503 || status() != 503) && std::chrono::steady_clock::now() < limit);
    const auto full = Client().Post(kList, "{}" + part, "application/json");
    ASSERT_EQ(full->status, 503);
    EXPECT_EQ(json::parse(full->body).at("code"), "RESOURCE_EXHAUSTED");
    EXPECT_EQ(full->get_header_value("Retry-After"), "1");
    EXPECT_EQ(Post(kList, "{}").first, 200) << "there is room for it";
    held.reset();
    while (status() != 200 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(status(), 200);
  }
}

TEST_F(HttpTest, BytesThatAreNoTextHideNoReason) {
  Start();
  RawSocket socket(port());
  socket.Send("POST /\xff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n");
  EXPECT_THAT(socket.Rest(),
              testing::AllOf(HasSubstr("\"reason\":\"NO_METHOD\""), HasSubstr("no method /\xEF\xBF\xBD;")));
}

// Slow-loris: many connections that each send a byte now and then hold up nobody, and are ended at their time however
// often they send.
TEST_F(HttpTest, ThoseWhoDripHoldUpNobodyAndAreEnded) {
  Start({.head = 1000ms, .body = 1000ms});
  std::vector<RawSocket> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(port());
    const bool in_body = i % 2 == 1;
    slow.back().Send(in_body ? StrCat("POST ", kList,
                                      " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                      "Content-Length: 1000\r\n\r\n")
                             : "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
  }
  const auto began = std::chrono::steady_clock::now();
  bool all_ended = false;
  while (!all_ended && std::chrono::steady_clock::now() - began < 60s) {
    EXPECT_EQ(Client().Get("/healthz")->status, 200);
    all_ended = true;
    for (RawSocket& socket : slow) all_ended &= !socket.Send(" ");
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(all_ended);
  EXPECT_GT(std::chrono::steady_clock::now() - began, 900ms) << "they were given their time";
}

TEST_F(HttpTest, ConnectionsBeyondTheLimitAreClosedAndThereIsRoomAgain) {
  Start({.connections = 3});
  std::vector<RawSocket> held;
  for (int i = 0; i < 3; ++i) {
    held.emplace_back(port());
    held.back().Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
  }
  // Whether there is room may be seen late, in both directions.
  const auto answered = [&] {
    const auto response = Client().Get("/healthz");
    return response && response->status == 200;
  };
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (answered() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(answered());
  held.clear();
  while (!answered() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(answered());
}

TEST_F(HttpTest, TheOpenApiDocumentHasEveryMethodAndEverythingItRefersTo) {
  const json document = json::parse(OpenApi());
  EXPECT_EQ(document.at("paths").size(), Methods().size());
  for (const Method& method : Methods()) {
    const json& operation = document.at("paths").at(method.path).at("post");
    EXPECT_GT(operation.at("description").get<std::string>().size(), 20u) << method.path;
  }
  const std::string text = OpenApi();
  const std::string prefix = "\"#/components/schemas/";
  size_t references = 0;
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1), ++references) {
    const size_t name = at + prefix.size();
    const std::string schema = text.substr(name, text.find('"', name) - name);
    EXPECT_TRUE(document.at("components").at("schemas").contains(schema)) << schema;
  }
  EXPECT_GT(references, 50u);
  const json& layer = document.at("components").at("schemas").at("Layer").at("properties");
  EXPECT_EQ(layer.at("topK").at("type"), "integer");
  EXPECT_EQ(layer.at("gate").at("enum").front(), "TOP_K");
  // What is no message of ours is any object, without the fields of the one that carries it.
  const json& foreign = document.at("components").at("schemas").at("Struct");
  EXPECT_EQ(foreign.at("additionalProperties"), true);
  EXPECT_FALSE(foreign.contains("properties"));
}

}  // namespace
}  // namespace moeplan::service::http
