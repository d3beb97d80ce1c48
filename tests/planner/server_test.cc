// A real server and real clients, over loopback.
#include "planner/service/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "models/text.h"
#include "planner/search/plan_layer.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"
#include "proto/host_port.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using ServerTest = ServiceTest;

// What the condition waits for is on its way; the limit is there for the day it is not.
template <typename Condition>
[[nodiscard]] bool Eventually(const Condition& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

template <typename Function>
auto Async(Function function) {
  return std::async(std::launch::async, std::move(function));
}

// ---- Plans.

TEST_F(ServerTest, AnswersWhatPlanLayerAnswersByteForByte) {
  const auto server = Started();
  const auto client = ClientOf(*server);
  const auto put = client->PutProfile(ExamplePutProfile("a"));
  ASSERT_TRUE(put.ok()) << put.status().message();
  EXPECT_EQ(put->profile_name(), "two-nodes-of-eight");
  EXPECT_EQ(put->profile_version(), 1);
  const auto answer = client->Plan(ExamplePlanRequest());
  ASSERT_TRUE(answer.ok()) << answer.status().message();

  Profile profile = *ProfileFromProto(ExamplePutProfile("a").profile());
  profile.version = 1;
  const auto direct = planner::PlanLayer(*WorkloadFromProto(ExamplePlanRequest().workload()), profile);
  ASSERT_TRUE(direct.ok());
  EXPECT_EQ(ToJson(*answer), ToJson(ToProto(*direct)));
  EXPECT_GT(answer->candidates_size(), 1);
}

TEST_F(ServerTest, ErrorsKeepTheirCodeAndTheirWords) {
  const auto server = Started();
  const auto client = ClientOf(*server);
  EXPECT_THAT(client->Plan(ExamplePlanRequest()),
              IsError(StatusCode::kNotFound, "holds no profile yet; `moeplan calib"));
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("a")).ok());
  v1::PlanRequest request = ExamplePlanRequest();
  request.mutable_workload()->mutable_layer()->set_top_k(9);
  EXPECT_THAT(client->Plan(request), IsError(StatusCode::kInvalidInput, "layer.topK: found 9"));
  request = ExamplePlanRequest();
  request.set_profile_name("nobody's");
  EXPECT_THAT(client->Plan(request), IsError(StatusCode::kNotFound, "no profile named 'nobody's'"));
  EXPECT_THAT(client->Plan({}), IsError(StatusCode::kInvalidInput, "workload: found nothing"));
}

TEST_F(ServerTest, AnErrorThatQuotesAVeryLongTextStillArrives) {
  const auto server = Started();
  const auto client = ClientOf(*server);
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("a")).ok());
  v1::PlanRequest request = ExamplePlanRequest();
  request.set_profile_name(std::string(1 << 20, '%'));
  EXPECT_THAT(client->Plan(request), IsError(StatusCode::kNotFound, "no profile named '%%"));
  request.set_profile_name(std::string(65 << 20, 'x'));
  EXPECT_THAT(client->Plan(request), IsError(StatusCode::kInvalidInput, "expected at most 67108864"));
}

TEST_F(ServerTest, ProfilesAreListedAndRead) {
  const auto server = Started();
  const auto client = ClientOf(*server);
  EXPECT_THAT(client->GetProfile({}), IsError(StatusCode::kNotFound, "holds no profile yet"));
  ASSERT_TRUE(client->PutSamples(GateSamples("a", 1e-3)).ok());
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("b")).ok());
  const auto list = client->ListProfiles({});
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->profiles_size(), 2);
  EXPECT_EQ(list->profiles(0).name(), "two-nodes-of-eight");
  EXPECT_EQ(list->profiles(1).name(), "gates");
  v1::GetProfileRequest request;
  request.set_profile_name("gates");
  const auto got = client->GetProfile(request);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->profile().kernels_size(), 1);
}

TEST_F(ServerTest, SamplesPutAgainAfterARestartAnswerTheSame) {
  v1::PutSamplesResponse first;
  {
    const auto server = Started();
    const auto client = ClientOf(*server);
    first = *client->PutSamples(GateSamples("a", 1e-3));
    ASSERT_EQ(client->PutSamples(GateSamples("b", 2e-3))->profile_version(), 2);
  }
  const auto server = Started();
  const auto client = ClientOf(*server);
  EXPECT_EQ(ToJson(*client->PutSamples(GateSamples("a", 1e-3))), ToJson(first));
  EXPECT_EQ(client->ListProfiles({})->profiles_size(), 2);
}

TEST_F(ServerTest, ManyClientsAtOnceGetTheSamePlanAndLoseNoSamples) {
  const auto server = Started();
  ASSERT_TRUE(ClientOf(*server)->PutProfile(ExamplePutProfile("a")).ok());
  v1::PlanRequest request = ExamplePlanRequest();
  request.set_profile_name("two-nodes-of-eight");
  const std::string expected = ToJson(*ClientOf(*server)->Plan(request));
  constexpr int kClients = 8, kCalls = 5;
  std::mutex mutex;
  std::set<int> versions;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        const auto client = ClientOf(*server);
        for (int call = 0; call < kCalls; ++call) {
          const auto plan = client->Plan(request);
          ASSERT_TRUE(plan.ok()) << plan.status().message();
          EXPECT_EQ(ToJson(*plan), expected);
          const auto put = client->PutSamples(GateSamples(StrCat(i, " ", call), 1e-3 * (1 + i) + 1e-5 * call));
          ASSERT_TRUE(put.ok()) << put.status().message();
          const std::scoped_lock lock(mutex);
          versions.insert(put->profile_version());
        }
      });
    }
  }
  EXPECT_THAT(versions, SizeIs(kClients * kCalls));
  EXPECT_EQ(*versions.rbegin(), kClients * kCalls);
  v1::GetProfileRequest newest;
  newest.set_profile_name("gates");
  // The last of them saw the samples of all: 3 repeats of each put at either size, none of them lost.
  const auto store = Store::OpenReadOnly(db());
  EXPECT_THAT(*store->SamplesOf({.profile_name = "gates"}), SizeIs(kClients * kCalls));
  EXPECT_EQ(ClientOf(*server)->GetProfile(newest)->profile().version(), kClients * kCalls);
}

// ---- Keeping answered plans.

TEST_F(ServerTest, AnAnsweredPlanIsInTheStoreOnce) {
  auto server = Started();
  const auto client = ClientOf(*server);
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("a")).ok());
  const auto answer = client->Plan(ExamplePlanRequest());
  ASSERT_TRUE(answer.ok());
  ASSERT_TRUE(client->Plan(ExamplePlanRequest()).ok());
  server->Shutdown();
  const auto store = Store::OpenReadOnly(db());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->LoadPlan({1})->answer, ToJson(*answer, JsonStyle::kCompact));
  EXPECT_EQ(store->LoadPlan({2}).status().code(), StatusCode::kNotFound);
}

TEST_F(ServerTest, APlanThatCannotBeKeptIsAnsweredAndLogged) {
  ServerOptions options = Options();
  std::mutex mutex;
  std::vector<std::string> lines;
  options.log = [&](const LogRecord& record) {
    const std::scoped_lock lock(mutex);
    lines.push_back(ToTextLine(record, {}));
  };
  auto server = Started(options);
  const auto client = ClientOf(*server);
  ASSERT_TRUE(client->PutProfile(ExamplePutProfile("a")).ok());
  const HeldStore held(db());
  EXPECT_TRUE(client->Plan(ExamplePlanRequest()).ok());
  server->Shutdown();
  EXPECT_THAT(lines, testing::ElementsAre(HasSubstr("warning an answered plan was not kept reason=")));
}

// ---- Deadlines, cancellation, load.

TEST_F(ServerTest, ACallThatTakesTooLongIsGivenUpAtItsDeadline) {
  ServerOptions options = Options();
  options.store_busy_timeout = std::chrono::minutes(2);
  const auto server = Started(options);
  {
    const HeldStore held(db());
    EXPECT_THAT(ClientOf(*server, 0.2)->PutProfile(ExamplePutProfile("a")),
                IsError(StatusCode::kDeadlineExceeded, "did not answer within 0.2 s"));
  }
  EXPECT_TRUE(ClientOf(*server)->PutProfile(ExamplePutProfile("a")).ok());
}

TEST_F(ServerTest, ACallWhoseDeadlinePassedInTheQueueIsNotCarriedOut) {
  ServerOptions options = Options();
  options.workers = 1;
  options.store_busy_timeout = std::chrono::minutes(2);
  const auto server = Started(options);
  auto held = std::make_unique<HeldStore>(db());
  const auto patient = ClientOf(*server);
  auto first = Async([&] { return patient->PutSamples(GateSamples("first", 1e-3)); });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 1; }));
  EXPECT_THAT(ClientOf(*server, 0.2)->PutSamples(GateSamples("late", 2e-3)),
              IsError(StatusCode::kDeadlineExceeded, ""));
  // By the time that this one's deadline has passed, the server has long heard of the one before.
  EXPECT_THAT(ClientOf(*server, 1)->PutSamples(GateSamples("later", 3e-3)), IsError(StatusCode::kDeadlineExceeded, ""));
  held.reset();
  EXPECT_EQ(first.get()->profile_version(), 1);
  server->Shutdown();
  const auto calibrations = Store::OpenReadOnly(db())->SamplesOf({});
  ASSERT_TRUE(calibrations.ok());
  for (const Calibration& calibration : *calibrations) EXPECT_NE(calibration.calibration, "late");
}

// Over HTTP, where no client of ours looks at the clock by itself.
TEST_F(ServerTest, AWorkerThatDoesNotLookHoldsUpNoCallerPastItsDeadline) {
  ServerOptions options = Options();
  options.store_busy_timeout = std::chrono::minutes(2);
  const auto server = Started(options);
  const HeldStore held(db());
  httplib::Client client("http://" + server->http_address());
  client.set_read_timeout(std::chrono::minutes(1));
  const auto began = std::chrono::steady_clock::now();
  const auto response = client.Post("/moeplan.v1.ProfileService/PutProfile", {{"X-Timeout-Ms", "200"}},
                                    ToJson(ExamplePutProfile("a")), "application/json");
  ASSERT_TRUE(response) << httplib::to_string(response.error());
  EXPECT_EQ(response->status, 504) << response->body;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  const auto work = server->work_in_progress();  // It goes on, and whoever ends the planner can say what it is.
  ASSERT_THAT(work, SizeIs(1));
  EXPECT_EQ(work.front().method, "/moeplan.v1.ProfileService/PutProfile");
  EXPECT_EQ(work.front().request_id, response->get_header_value("x-request-id"));
}

TEST_F(ServerTest, AFullQueueIsSaidAtOnce) {
  ServerOptions options = Options();
  options.workers = 1;
  options.queue_capacity = 1;
  options.store_busy_timeout = std::chrono::minutes(2);
  const auto server = Started(options);
  auto held = std::make_unique<HeldStore>(db());
  const auto client = ClientOf(*server);
  auto runs = Async([&] { return client->PutSamples(GateSamples("a", 1e-3)); });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 1; }));
  auto waits = Async([&] { return client->PutSamples(GateSamples("b", 1e-3)); });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 2; }));
  EXPECT_THAT(client->ListProfiles({}), IsError(StatusCode::kUnavailable, "too many calls waiting; try again later"));
  held.reset();
  EXPECT_TRUE(runs.get().ok());
  EXPECT_TRUE(waits.get().ok());
}

// ---- Starting.

TEST_F(ServerTest, APortInUseIsNamedAndNothingIsLeftBehind) {
  const auto server = Started();
  ServerOptions second = Options();
  second.store = db().string() + ".second";
  second.grpc_address = server->grpc_address();
  EXPECT_THAT(Server::Start(second),
              IsError(StatusCode::kUnavailable, StrCat("--grpc: ", server->grpc_address(), " is in use; stop")));
  second = Options();
  second.store = db().string() + ".second";
  second.http_address = server->http_address();
  EXPECT_THAT(Server::Start(second),
              IsError(StatusCode::kUnavailable, StrCat("--http: ", server->http_address(), " is in use; stop")));
  EXPECT_FALSE(std::filesystem::exists(second.store));
}

// Whether a server that is willing to share the port, as gRPC's and cpp-httplib's are unless told otherwise, gets it.
bool CanBeShared(const std::string& address) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(socket_fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  const sockaddr_in name = {.sin_family = AF_INET,
                            .sin_port = htons(static_cast<uint16_t>(ParseHostPort(address, "")->port)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const bool bound = bind(socket_fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  close(socket_fd);
  return bound;
}

TEST_F(ServerTest, NobodyCanShareThePorts) {
  const auto server = Started();
  EXPECT_FALSE(CanBeShared(server->grpc_address()));
  EXPECT_FALSE(CanBeShared(server->http_address()));
}

TEST_F(ServerTest, OneAddressForBothIsRefusedAndFreedAgain) {
  std::string address;
  {
    const auto server = Started();
    address = server->grpc_address();
  }
  ServerOptions options = Options();
  options.grpc_address = options.http_address = address;
  EXPECT_THAT(Server::Start(options), IsError(StatusCode::kUnavailable, StrCat("--http: ", address)));
  options.http_address = "127.0.0.1:0";
  EXPECT_EQ(Started(options)->grpc_address(), address);
}

TEST_F(ServerTest, OnlyAddressesOfThisMachineAreListenedOn) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:7070"}) {
    ServerOptions options = Options();
    options.grpc_address = address;
    EXPECT_THAT(Server::Start(options), IsError(StatusCode::kInvalidInput, StrCat("--grpc: found ", address)));
    options = Options();
    options.http_address = address;
    EXPECT_THAT(Server::Start(options), IsError(StatusCode::kInvalidInput, StrCat("--http: found ", address)));
  }
  ServerOptions options = Options();
  options.http_address = "7080";
  EXPECT_THAT(Server::Start(options), IsError(StatusCode::kInvalidInput, "--http: found '7080', expected HOST:PORT"));
  EXPECT_FALSE(std::filesystem::exists(db()));
}

TEST_F(ServerTest, AStoreThatCannotBeOpenedIsTheStoresError) {
  ServerOptions options = Options();
  options.store = db() / "no" / "such" / "folder.db";
  const auto server = Server::Start(options);
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("folder.db"));
}

// ---- Ending.

TEST_F(ServerTest, ShutdownLetsCallsInProgressEnd) {
  ServerOptions options = Options();
  options.store_busy_timeout = std::chrono::minutes(2);
  auto server = Started(options);
  const auto client = ClientOf(*server);
  auto held = std::make_unique<HeldStore>(db());
  auto put = Async([&] { return client->PutProfile(ExamplePutProfile("a")); });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 1; }));
  auto ended = Async([&] { server->Shutdown(std::chrono::minutes(2)); });
  const auto nobody_answers = [&] {
    return !client::PlannerClient::Connect({.address = server->grpc_address(), .deadline_s = 5}).ok();
  };
  ASSERT_TRUE(Eventually(nobody_answers));  // So the shutdown has begun.
  held.reset();
  const auto response = put.get();
  EXPECT_TRUE(response.ok()) << response.status().message();
  ended.get();
  server->Wait();  // Returns at once.
  EXPECT_EQ(Store::OpenReadOnly(db())->LoadProfile()->version, 1);
}

TEST_F(ServerTest, WhileCallsOverHttpEndOthersHearThatItIsNotServing) {
  ServerOptions options = Options();
  options.store_busy_timeout = std::chrono::minutes(2);
  auto server = Started(options);
  const std::string address = "http://" + server->http_address();
  auto held = std::make_unique<HeldStore>(db());
  auto put = Async([&] {
    httplib::Client client(address);
    client.set_read_timeout(std::chrono::minutes(2));
    const auto response =
        client.Post("/moeplan.v1.ProfileService/PutProfile", ToJson(ExamplePutProfile("a")), "application/json");
    return response ? response->status : 0;
  });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 1; }));
  auto ended = Async([&] { server->Shutdown(std::chrono::minutes(2)); });
  const auto health = [&] {
    const auto response = httplib::Client(address).Get("/healthz");
    return response ? response->status : 0;
  };
  EXPECT_TRUE(Eventually([&] { return health() == 503; }));
  EXPECT_TRUE(Eventually(
      [&] { return !client::PlannerClient::Connect({.address = server->grpc_address(), .deadline_s = 5}).ok(); }));
  EXPECT_EQ(health(), 503);  // Over HTTP, with nothing left of gRPC.
  held.reset();
  EXPECT_EQ(put.get(), 200);
  ended.get();
  EXPECT_EQ(health(), 0);
}

TEST_F(ServerTest, ShutdownCancelsWhatOutlivesTheGrace) {
  ServerOptions options = Options();
  options.store_busy_timeout = std::chrono::minutes(2);
  auto server = Started(options);
  const auto client = ClientOf(*server);
  auto held = std::make_unique<HeldStore>(db());
  auto put = Async([&] { return client->PutProfile(ExamplePutProfile("a")); });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 1; }));
  auto ended = Async([&] { server->Shutdown(std::chrono::milliseconds(50)); });
  EXPECT_FALSE(put.get().ok());  // Answered while the store is still held.
  held.reset();
  ended.get();
}

TEST_F(ServerTest, WaitReturnsWhenAnotherThreadShutsDown) {
  auto server = Started();
  auto waiting = Async([&] { server->Wait(); });
  server->Shutdown();
  waiting.get();
  EXPECT_THAT(client::PlannerClient::Connect({.address = server->grpc_address(), .deadline_s = 5}),
              IsError(StatusCode::kUnavailable, "no planner"));
  EXPECT_FALSE(httplib::Client("http://" + server->http_address()).Get("/healthz"));
}

// ---- The client.

TEST_F(ServerTest, NoPlannerIsSaidWithWhatToDo) {
  std::string address;
  {
    const auto server = Started();
    address = server->grpc_address();
  }
  EXPECT_THAT(
      client::PlannerClient::Connect({.address = address, .deadline_s = 60}),
      IsError(StatusCode::kUnavailable, StrCat("no planner answers at ", address, "; start one with `moeplan serve ")));
  EXPECT_THAT(client::PlannerClient::Connect({.address = "planner", .deadline_s = 1}),
              IsError(StatusCode::kInvalidInput, "planner: found 'planner'"));
  for (const double deadline_s : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(client::PlannerClient::Connect({.address = address, .deadline_s = deadline_s}),
                IsError(StatusCode::kInvalidInput, "deadline: found"));
  }
}

TEST_F(ServerTest, AClientOutlivesItsPlannerAndFindsTheNextOne) {
  auto server = Started();
  ServerOptions options = Options();
  options.grpc_address = server->grpc_address();
  const auto client = ClientOf(*server);
  ASSERT_TRUE(client->ListProfiles({}).ok());
  server.reset();
  EXPECT_THAT(client->ListProfiles({}), IsError(StatusCode::kUnavailable, "no planner answers at "));
  server = Started(options);
  EXPECT_TRUE(Eventually([&] { return client->ListProfiles({}).ok(); }));
}

// ---- What any gRPC tool may ask. The messages are small enough to be written by hand.

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

class RawCalls {
 public:
  explicit RawCalls(const Server& server)
      : stub_(grpc::CreateChannel(server.grpc_address(), grpc::InsecureChannelCredentials())) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  }
  ~RawCalls() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  std::string Unary(const std::string& method, const std::string& request) {
    grpc::ByteBuffer response;
    grpc::Status status;
    const auto call = stub_.PrepareUnaryCall(&context_, method, Bytes(request), &queue_);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    Next();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return status.ok() ? Text(response) : "";
  }

  // The first answer of a stream to one request.
  std::string Streamed(const std::string& method, const std::string& request) {
    const auto call = stub_.PrepareCall(&context_, method, &queue_);
    call->StartCall(nullptr);
    Next();
    call->Write(Bytes(request), nullptr);
    Next();
    grpc::ByteBuffer response;
    call->Read(&response, nullptr);
    if (!Next()) return "";
    context_.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    Next();
    return Text(response);
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
};

// Field 1, a string.
std::string StringField1(const std::string& text) { return StrCat("\x0a", std::string(1, char(text.size())), text); }

TEST_F(ServerTest, HealthChecksAnswerServing) {
  const auto server = Started();
  const std::string serving = {0x08, 0x01};  // status = SERVING.
  for (const std::string service : {"", "moeplan.v1.PlannerService", "moeplan.v1.ProfileService"}) {
    EXPECT_EQ(RawCalls(*server).Unary("/grpc.health.v1.Health/Check", StringField1(service)), serving) << service;
  }
}

TEST_F(ServerTest, ReflectionListsTheServices) {
  const auto server = Started();
  const std::string list_services = {0x3a, 0x00};  // Field 7, an empty string.
  EXPECT_THAT(
      RawCalls(*server).Streamed("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services),
      AllOf(HasSubstr("moeplan.v1.PlannerService"), HasSubstr("moeplan.v1.ProfileService"),
            HasSubstr("grpc.health.v1.Health")));
}

TEST_F(ServerTest, AMessageAboveTheLimitIsRefusedAndTheServerStands) {
  const auto server = Started();
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(server->grpc_address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, "/moeplan.v1.PlannerService/Plan",
                                          Bytes(std::string((64 << 20) + 1, '\0')), &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(ClientOf(*server)->ListProfiles({}).ok());
}

TEST_F(ServerTest, ACallThatEndsWithoutAMessageIsRefusedAndTheServerStands) {
  const auto server = Started();
  for (const char* method : {"/moeplan.v1.PlannerService/Plan", "/moeplan.v1.ProfileService/ListProfiles"}) {
    grpc::GenericStub stub(grpc::CreateChannel(server->grpc_address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    call->WritesDone(nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    call->Finish(&status, nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_FALSE(status.ok()) << method;
  }
  EXPECT_TRUE(ClientOf(*server)->ListProfiles({}).ok());
}

// ---- HTTP.

TEST_F(ServerTest, HealthzSaysThatItServesAndWhichVersion) {
  const auto server = Started();
  httplib::Client client("http://" + server->http_address());
  const auto response = client.Get("/healthz");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->get_header_value("Content-Type"), "application/json");
  const auto body = nlohmann::json::parse(response->body);
  EXPECT_EQ(body, nlohmann::json({{"status", "SERVING"}, {"version", MOEPLAN_VERSION}}));
}

TEST_F(ServerTest, TheRootSaysWhereGrpcListensAndLetsABrowserRunNothing) {
  const auto server = Started();
  httplib::Client client("http://" + server->http_address());
  const auto response = client.Get("/");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(nlohmann::json::parse(response->body).at("grpcAddress"), server->grpc_address());
  EXPECT_THAT(response->get_header_value("Content-Security-Policy"), testing::StartsWith("default-src 'none'"));
  EXPECT_EQ(response->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(client.Get("/elsewhere")->status, 404);
  EXPECT_EQ(client.Post("/healthz", "", "text/plain")->status, 404);
}

TEST_F(ServerTest, HealthzSaysWhenServingEnds) {
  ServerOptions options = Options();
  options.store_busy_timeout = std::chrono::minutes(2);
  auto server = Started(options);
  const auto client = ClientOf(*server);
  auto held = std::make_unique<HeldStore>(db());
  auto put = Async([&] { return client->PutProfile(ExamplePutProfile("a")); });
  ASSERT_TRUE(Eventually([&] { return server->calls_in_progress() == 1; }));
  auto ended = Async([&] { server->Shutdown(std::chrono::minutes(2)); });
  httplib::Client http("http://" + server->http_address());
  EXPECT_TRUE(Eventually([&] {
    const auto response = http.Get("/healthz");
    return response && response->status == 503 && response->body.find("NOT_SERVING") != std::string::npos;
  }));
  held.reset();
  EXPECT_TRUE(put.get().ok());
  ended.get();
}

}  // namespace
}  // namespace moeplan::service
