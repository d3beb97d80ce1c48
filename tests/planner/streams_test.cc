// WatchPlan and Attach as calls: asked for a token as long as they last, counted, and found in the log.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "models/text.h"
#include "models/time_text.h"
#include "moeplan/v1/agent_service.grpc.pb.h"
#include "moeplan/v1/planner_service.grpc.pb.h"
#include "planner/client/agent_connection.h"
#include "planner/service/access/open_streams.h"
#include "planner/service/access/token.h"
#include "proto/grpc_status.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr seconds kSoon(30);

class StreamsTest : public ServiceTest {
 protected:
  // A planner with a profile.
  void Start() {
    ServerOptions options = Options();
    options.log_level = LogLevel::kDebug;
    options.log = [this](const LogRecord& record) {
      const std::scoped_lock lock(mutex_);
      records_.push_back(record);
    };
    server_ = Started(std::move(options));
    ASSERT_TRUE(ClientOf(*server_)->PutProfile(ExamplePutProfile("a")).ok());
  }

  // The token's text is its name.
  void AddToken(const std::string& name, const std::string& role, const std::string& expires_at = "") {
    auto store = Store::Open(db());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(
        store->AddToken({.name = name, .role = role, .sha256 = HexDigestOf(name), .expires_at = expires_at}).ok());
  }
  // Until a call is refused without a token and not with this one. Refusals on the way are counted as any.
  void AwaitAccepted(const std::string& token) const {
    const auto client =
        client::PlannerClient::Connect({.address = server_->grpc_address(), .deadline_s = 30, .token = token});
    ASSERT_TRUE(client.ok()) << client.status().message();
    const auto nobody = ClientOf(*server_);
    Status refused;
    for (const auto limit = steady_clock::now() + kSoon; steady_clock::now() < limit;) {
      refused = (*client)->ListProfiles({}).status();
      if (refused.ok() && !nobody->ListProfiles({}).ok() && (*client)->ListProfiles({}).ok()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << refused.message();
  }
  void Revoke(const std::string& name) {
    auto store = Store::Open(db());
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(store->RevokeToken(name).ok());
  }

  std::string Page() const {
    const auto page =
        httplib::Client("http://" + server_->http_address()).Get("/metrics", {{"Authorization", bearer_}});
    return page ? page->body : "no answer";
  }
  int UnknownTokens() const {
    const std::string page = Page(), line = "moeplan_auth_failures_total{reason=\"UNKNOWN_TOKEN\"} ";
    const size_t at = page.find(line);
    return at == std::string::npos ? 0 : std::stoi(page.substr(at + line.size()));
  }
  // The page once it has the line.
  std::string PageWith(const std::string& line) const {
    std::string page = Page();
    for (const auto limit = steady_clock::now() + kSoon;
         page.find(line + "\n") == std::string::npos && steady_clock::now() < limit; page = Page()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return page;
  }
  // The facts of the stream's end.
  std::optional<LogRecord> Ended(const std::string& request_id) {
    const std::scoped_lock lock(mutex_);
    for (const LogRecord& record : records_) {
      if (record.event == "ended" && record.facts.front() == std::pair(std::string("requestId"), request_id)) {
        return record;
      }
    }
    return std::nullopt;
  }

  std::mutex mutex_;
  std::vector<LogRecord> records_;  // Guarded by mutex_.
  std::string bearer_;
  std::unique_ptr<Server> server_;
};

// A watch without PlanWatch, which would hide what gRPC says.
class RawWatch {
 public:
  RawWatch(const Server& server, const std::string& token, const std::string& request_id,
           const v1::PlanRequest& asked = ExamplePlanRequest())
      : stub_(v1::PlannerService::NewStub(
            grpc::CreateChannel(server.grpc_address(), grpc::InsecureChannelCredentials()))) {
    if (!token.empty()) context_.AddMetadata("authorization", "Bearer " + token);
    if (!request_id.empty()) context_.AddMetadata("x-request-id", request_id);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    v1::WatchPlanRequest request;
    *request.mutable_request() = asked;
    stream_ = stub_->WatchPlan(&context_, request);
  }
  ~RawWatch() {
    if (stream_) Leave();
  }

  bool Next() {
    v1::WatchPlanResponse response;
    return stream_->Read(&response);
  }
  grpc::Status Leave() {
    context_.TryCancel();
    return AwaitEnd();
  }
  grpc::Status AwaitEnd() {
    while (Next()) continue;
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }
  static std::string In(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
    const auto found = metadata.find("x-request-id");
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }
  std::string FirstId() const { return In(context_.GetServerInitialMetadata()); }
  std::string LastId() const { return In(context_.GetServerTrailingMetadata()); }

 private:
  const std::unique_ptr<v1::PlannerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchPlanResponse>> stream_;
};

std::string Counted(const std::string& code, const std::string& method, int times) {
  return StrCat("moeplan_requests_total{code=\"", code, "\",method=\"moeplan.v1.", method, "\",transport=\"grpc\"} ",
                times);
}

TEST_F(StreamsTest, ARevokedTokenEndsItsWatchesAndNoOthers) {
  Start();
  AddToken("stays", "read");
  bearer_ = "Bearer stays";
  AddToken("goes", "plan");
  AddToken("other", "plan");
  AwaitAccepted("other");  // The last of them.
  const int unknown_before = UnknownTokens();
  RawWatch first(*server_, "goes", "first"), second(*server_, "goes", "second"), other(*server_, "other", "other");
  for (RawWatch* watch : {&first, &second, &other}) ASSERT_TRUE(watch->Next());
  Revoke("goes");
  const auto began = steady_clock::now();
  for (RawWatch* watch : {&first, &second}) {
    const grpc::Status end = watch->AwaitEnd();
    EXPECT_EQ(end.error_code(), grpc::UNAUTHENTICATED);
    EXPECT_EQ(DetailOf(end).reason, "UNKNOWN_TOKEN");
    EXPECT_THAT(end.error_message(), HasSubstr("has been revoked"));
  }
  EXPECT_LT(steady_clock::now() - began, seconds(10));  // A tenth of a second on a machine with nothing else to do.
  const std::string page = PageWith("moeplan_watchers 1");
  EXPECT_THAT(page, HasSubstr("moeplan_watchers 1\n"));
  EXPECT_THAT(page, HasSubstr(Counted("UNAUTHENTICATED", "PlannerService/WatchPlan", 2)));
  EXPECT_EQ(UnknownTokens(), unknown_before + 2);
  EXPECT_EQ(other.Leave().error_code(), grpc::CANCELLED) << "it was not there any more";
}

TEST_F(StreamsTest, ATokenThatExpiresEndsItsWatch) {
  Start();
  AddToken("brief", "plan", Rfc3339(std::chrono::system_clock::now() + seconds(4)));
  AwaitAccepted("brief");
  RawWatch watch(*server_, "brief", "");
  ASSERT_TRUE(watch.Next());
  const grpc::Status end = watch.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::UNAUTHENTICATED);
  EXPECT_EQ(DetailOf(end).reason, "TOKEN_EXPIRED");
}

TEST_F(StreamsTest, ATokenThatExpiresEndsItsWatchAlthoughTheStoreCannotBeRead) {
  Start();
  AddToken("brief", "plan", Rfc3339(std::chrono::system_clock::now() + seconds(4)));
  AwaitAccepted("brief");
  RawWatch watch(*server_, "brief", "");
  ASSERT_TRUE(watch.Next());
  SQLite::Database(db().string(), SQLite::OPEN_READWRITE).exec("ALTER TABLE token RENAME TO hidden");
  EXPECT_EQ(DetailOf(watch.AwaitEnd()).reason, "TOKEN_EXPIRED");
  const std::scoped_lock lock(mutex_);
  EXPECT_THAT(records_, Contains(testing::Field(&LogRecord::event, "the store cannot be watched")));
}

TEST_F(StreamsTest, WhoeverWatchesWithoutATokenIsEndedWhenTokensAreAskedFor) {
  Start();
  RawWatch watch(*server_, "", "");
  ASSERT_TRUE(watch.Next());
  AddToken("first", "plan");
  EXPECT_EQ(DetailOf(watch.AwaitEnd()).reason, "NO_TOKEN");
}

v1::AgentRegistration Registration() {
  v1::AgentRegistration registration;
  registration.set_name("alone");
  registration.set_version(MOEPLAN_VERSION);
  registration.set_instance("i");
  registration.set_cluster("one");
  registration.set_nodes(1);
  registration.set_held_nodes(1);
  registration.set_ranks_per_node(1);
  registration.set_backend("light");
  return registration;
}

TEST_F(StreamsTest, AnAgentWhoseTokenIsRevokedIsAttachedNoMore) {
  Start();
  AddToken("stays", "read");
  bearer_ = "Bearer stays";
  AddToken("agents", "report");
  AwaitAccepted("stays");
  AwaitAccepted("agents");
  std::promise<void> welcomed;
  std::promise<Status> ended;
  const auto agent = client::ConnectAgentWith({.address = server_->grpc_address(), .token = "agents"})(
      Registration(), {.received =
                           [&](const v1::AttachResponse& message) {
                             if (message.has_welcome()) welcomed.set_value();
                           },
                       .ended = [&](const Status& why) { ended.set_value(why); }});
  ASSERT_TRUE(agent.ok());
  ASSERT_EQ(welcomed.get_future().wait_for(kSoon), std::future_status::ready);
  EXPECT_THAT(Page(), HasSubstr("moeplan_agents{state=\"attached\"} 1"));
  Revoke("agents");
  auto end = ended.get_future();
  ASSERT_EQ(end.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_THAT(end.get(), IsError(StatusCode::kPermissionDenied, "has been revoked"));
  const std::string page = PageWith("moeplan_agents{state=\"attached\"} 0");
  EXPECT_THAT(page, HasSubstr("moeplan_agents{state=\"attached\"} 0"));
  EXPECT_THAT(page, HasSubstr(Counted("UNAUTHENTICATED", "AgentService/Attach", 1)));
  // The log of the fleet says why, too.
  const std::scoped_lock lock(mutex_);
  EXPECT_THAT(records_, Contains(testing::Field(&LogRecord::event, AllOf(HasSubstr("agent alone"), HasSubstr("is lost"),
                                                                         HasSubstr("has been revoked")))));
}

// An agent's connection and what became of it.
class Attached {
 public:
  Attached(const Server& server, const std::string& token, const v1::AgentRegistration& registration) {
    auto opened = client::ConnectAgentWith({.address = server.grpc_address(), .token = token})(
        registration, {.received =
                           [this](const v1::AttachResponse& message) {
                             if (message.has_welcome()) Settle(OkStatus());
                           },
                       .ended = [this](const Status& why) { Settle(why); }});
    if (opened.ok()) {
      connection_ = *std::move(opened);
    } else {
      Settle(opened.status());
    }
  }

  // OK: it was welcomed.
  Status Outcome() { return outcome_.get_future().get(); }

 private:
  void Settle(const Status& status) {
    if (!std::exchange(settled_, true)) outcome_.set_value(status);
  }

  std::promise<Status> outcome_;
  bool settled_ = false;  // Callbacks come one at a time.
  std::unique_ptr<AgentConnection> connection_;
};

class TakeoverTest : public StreamsTest {
 protected:
  // A planner with two tokens that may report, and an agent "alone" of the token "west".
  void SetUp() override {
    StreamsTest::SetUp();
    Start();
    AddToken("west", "report");
    AddToken("thief", "report");
    AwaitAccepted("thief");
    victim_.emplace(*server_, "west", Registration());
    ASSERT_EQ(victim_->Outcome(), OkStatus());
  }
  void TearDown() override {
    victim_.reset();
    server_.reset();
    StreamsTest::TearDown();
  }

  std::unique_ptr<client::PlannerClient> Client(const std::string& token) const {
    auto client =
        client::PlannerClient::Connect({.address = server_->grpc_address(), .deadline_s = 30, .token = token});
    EXPECT_TRUE(client.ok()) << client.status().message();
    return *std::move(client);
  }
  v1::AgentStatus Listed() const {
    const auto listed = Client("thief")->ListAgents({});
    EXPECT_TRUE(listed.ok()) << listed.status().message();
    return listed.ok() && listed->agents_size() == 1 ? listed->agents(0) : v1::AgentStatus();
  }
  // How many of two samples that name the agent are set aside.
  int RejectedOf(const std::string& token, const std::string& id) const {
    v1::PutSamplesRequest request = GateSamples(id, 1e-3);
    for (v1::Sample& sample : *request.mutable_samples()->mutable_samples()) {
      (*sample.mutable_provenance())["agent"] = "alone";
    }
    const auto put = Client(token)->PutSamples(request);
    EXPECT_TRUE(put.ok()) << put.status().message();
    return put.ok() ? put->rejected_samples() : -1;
  }

  std::optional<Attached> victim_;
};

TEST_F(TakeoverTest, AnotherTokenTakesNoAgentOverWhateverItKnows) {
  EXPECT_EQ(Listed().registration().name(), "alone");
  EXPECT_EQ(Listed().registration().instance(), "") << "whoever lists agents learns what proves who they are";
  // The thief knows the name and the instance, as ListAgents once published them.
  Attached thief(*server_, "thief", Registration());
  EXPECT_THAT(thief.Outcome(), IsError(StatusCode::kPermissionDenied, "attached with another token"));
  // This one knows the instance and the place alone.
  v1::AgentRegistration renamed = Registration();
  renamed.set_name("somebody");
  Attached disguised(*server_, "thief", renamed);
  EXPECT_THAT(disguised.Outcome(), IsError(StatusCode::kUnavailable, "beside agent alone (node 0), which is live"));
  EXPECT_EQ(Listed().state(), v1::AgentStatus::LIVE);
  EXPECT_EQ(Listed().registration().name(), "alone");
}

TEST_F(TakeoverTest, AnAgentKeepsItsNameAcrossRestartsOfThePlannerAndOfItself) {
  victim_.reset();
  server_.reset();
  server_ = Started();
  Attached thief(*server_, "thief", Registration());
  EXPECT_THAT(thief.Outcome(), IsError(StatusCode::kPermissionDenied, "attached with another token"));
  v1::AgentRegistration restarted = Registration();
  restarted.set_instance("another");
  victim_.emplace(*server_, "west", restarted);
  EXPECT_EQ(victim_->Outcome(), OkStatus());
}

TEST_F(TakeoverTest, SamplesThatNameAnothersAgentAreSetAside) {
  EXPECT_EQ(RejectedOf("thief", "forged"), 2);
  EXPECT_EQ(RejectedOf("west", "true"), 0);
  victim_.reset();
  server_.reset();
  server_ = Started();  // Where nobody is attached.
  EXPECT_EQ(RejectedOf("thief", "forged again"), 2);
  EXPECT_EQ(RejectedOf("west", "true again"), 0);
}

TEST_F(TakeoverTest, ARevokedTokensAgentsMayHaveNewOnes) {
  Revoke("west");
  AddToken("east", "report");
  AwaitAccepted("east");
  Attached heir(*server_, "east", [] {
    v1::AgentRegistration registration = Registration();
    registration.set_cluster("two");  // The old connection may still be about to end.
    return registration;
  }());
  EXPECT_EQ(heir.Outcome(), OkStatus());
  EXPECT_EQ(RejectedOf("east", "heir's"), 0);
}

TEST_F(StreamsTest, AWatchIsCountedWhenItEndsAndFoundByItsRequestId) {
  Start();
  RawWatch watch(*server_, "", "my-watch");
  ASSERT_TRUE(watch.Next());
  EXPECT_EQ(watch.FirstId(), "my-watch");
  EXPECT_THAT(Page(), Not(HasSubstr("PlannerService/WatchPlan")));
  EXPECT_FALSE(Ended("my-watch"));
  watch.Leave();
  const std::string left = Counted("CANCELLED", "PlannerService/WatchPlan", 1);
  const std::string page = PageWith(left);
  EXPECT_THAT(page, HasSubstr(left));
  EXPECT_THAT(page,
              Not(HasSubstr("moeplan_request_duration_seconds_count{method=\"moeplan.v1.PlannerService/WatchPlan")))
      << "it lasts as long as it is wanted";
  const auto record = Ended("my-watch");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->level, LogLevel::kDebug);
  EXPECT_THAT(record->facts, Contains(Pair("method", "/moeplan.v1.PlannerService/WatchPlan")));
  EXPECT_THAT(record->facts, Contains(Pair("code", "CANCELLED")));

  // One that is refused: it is given an id.
  RawWatch wrong(*server_, "", "two words", {});
  EXPECT_EQ(wrong.AwaitEnd().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(wrong.LastId().size(), 12u) << wrong.LastId();
  EXPECT_THAT(PageWith(left), HasSubstr(Counted("INVALID_ARGUMENT", "PlannerService/WatchPlan", 1)));
  const auto refused = Ended(wrong.LastId());
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->level, LogLevel::kInfo);
  EXPECT_THAT(refused->facts, Contains(Pair("message", HasSubstr("request.workload"))));
}

TEST_F(StreamsTest, AnAgentsConnectionIsCountedWhenItEnds) {
  Start();
  std::promise<Status> ended;
  v1::AgentRegistration other = Registration();
  other.set_version("0.0.0-other");
  const auto agent = client::ConnectAgentWith({.address = server_->grpc_address()})(
      other, {.received = [](const v1::AttachResponse&) {}, .ended = [&](const Status& why) { ended.set_value(why); }});
  ASSERT_TRUE(agent.ok());
  EXPECT_THAT(ended.get_future().get(), IsError(StatusCode::kInfeasible, "0.0.0-other"));
  EXPECT_THAT(Page(), HasSubstr(Counted("FAILED_PRECONDITION", "AgentService/Attach", 1)));
}

class ToldStream : public RevocableStream {
 public:
  void Revoke(const grpc::Status& why) override { told.push_back(why); }
  std::vector<grpc::Status> told;
};

TEST(OpenStreamsTest, AStreamIsToldUntilItIsGone) {
  Access access;
  access.Set({{.name = "t", .role = "plan", .sha256 = HexDigestOf("secret")}});
  OpenStreams streams(access);
  const auto plans = std::make_shared<ToldStream>();
  auto reports = std::make_shared<ToldStream>();
  streams.Add("secret", Role::kPlan, plans);
  streams.Add("secret", Role::kReport, reports);
  streams.EndRefused();
  streams.EndRefused();
  EXPECT_TRUE(plans->told.empty());
  ASSERT_EQ(reports->told.size(), 2u);
  EXPECT_EQ(reports->told[0].error_code(), grpc::PERMISSION_DENIED);
  reports.reset();
  streams.EndRefused();
  EXPECT_TRUE(plans->told.empty());
}

}  // namespace
}  // namespace moeplan::service
