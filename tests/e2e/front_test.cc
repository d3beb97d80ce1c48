// The front of deploy/front as it is shipped, before a planner that asks for tokens, on free ports of this machine:
// honest callers get through it, and what strangers do ends there.
#include <SQLiteCpp/SQLiteCpp.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "models/text.h"
#include "planner/client/plan_watch.h"
#include "planner/client/planner_client.h"
#include "proto/host_port.h"
#include "proto/json.h"
#include "tests/e2e/attacks.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/moeplan_process.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/usage.h"

namespace moeplan::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kMebibyte = 1 << 20;
constexpr std::chrono::seconds kSoon(30);

template <typename Condition>
bool Eventually(const Condition& condition) {
  for (const auto limit = steady_clock::now() + kSoon; steady_clock::now() < limit;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// A socket that listens on a free port and that a program started from here inherits, so that nobody else gets the port
// meanwhile.
class ListeningSocket {
 public:
  ListeningSocket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool listens = bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(fd_, 64) == 0 &&
                         getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    EXPECT_TRUE(listens);
    port_ = ntohs(address.sin_port);
  }
  ~ListeningSocket() { close(fd_); }
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  std::string address() const { return StrCat("fd@", fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

// While it lives, whatever wants to write to the database waits.
class HeldDatabase {
 public:
  explicit HeldDatabase(const std::string& path)
      : database_(path, SQLite::OPEN_READWRITE), transaction_(database_, SQLite::TransactionBehavior::IMMEDIATE) {}

 private:
  SQLite::Database database_;
  SQLite::Transaction transaction_;
};

// With TLS, as other machines reach it, and without, for a network that encrypts by itself.
class FrontTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (std::string(MOEPLAN_HAPROXY).empty()) GTEST_SKIP() << "haproxy is not here (Debian: haproxy)";
    const Outcome token = RunMoeplan({"token", "create", "--db", db(), "--name", "t", "--role", "admin"});
    ASSERT_EQ(token.exit_code, 0) << token.err;
    token_file_ = folder_.Write("token", token.out);
    token_ = token.out.substr(0, token.out.find('\n'));
    StartPlanner();
    StartFront();
  }

  std::string db() const { return folder_ / "m.db"; }
  bool encrypted() const { return GetParam(); }

  void StartPlanner() {
    planner_ = std::make_unique<Process>(Process::Start(
        {"serve", "--db", db(), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--agent-heartbeat", "200ms"}));
    ASSERT_FALSE(AwaitAddress(*planner_).empty()) << planner_->ErrorsSoFar();
  }

  void StartFront() {
    const ListeningSocket grpc, http;
    grpc_port_ = grpc.port();
    http_port_ = http.port();
    std::map<std::string, std::string> environment = {{"MOEPLAN_FRONT_GRPC", grpc.address()},
                                                      {"MOEPLAN_FRONT_HTTP", http.address()},
                                                      {"MOEPLAN_GRPC", AwaitAddress(*planner_)},
                                                      {"MOEPLAN_HTTP", AwaitHttpAddress(*planner_)}};
    environment["MOEPLAN_FRONT_CERTIFICATE"] = "";  // As a unit that has one is told to do without.
    if (encrypted()) {
      MakeAuthority(folder_, "ca");
      MakeCertificate(folder_, "front", "ca");
      environment["MOEPLAN_FRONT_CERTIFICATE"] = folder_ / "front.crt";
    }
    front_ = std::make_unique<Process>(
        Process::StartProgram(MOEPLAN_HAPROXY, {"-db", "-f", MOEPLAN_FRONT_CONFIGURATION}, environment));
    ASSERT_TRUE(Eventually([this] { return Client() != nullptr; })) << front_->ErrorsSoFar();
  }

  std::string address() const { return StrCat("127.0.0.1:", grpc_port_); }
  client::ConnectOptions Options(double deadline_s = 60) const {
    client::ConnectOptions options = {.address = address(), .deadline_s = deadline_s, .token = token_};
    if (encrypted()) options.tls_authority = folder_ / "ca.crt";
    return options;
  }
  // Null: there is no way to the planner.
  std::unique_ptr<client::PlannerClient> Client(double deadline_s = 60) const {
    auto client = client::PlannerClient::Connect(Options(deadline_s));
    if (!client.ok() || !(*client)->ListProfiles({}).ok()) return nullptr;
    return *std::move(client);
  }
  std::vector<std::string> With(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--planner", address(), "--token-file", token_file_});
    if (encrypted()) arguments.insert(arguments.end(), {"--tls-ca", folder_ / "ca.crt"});
    return arguments;
  }
  std::optional<TlsClient> Encryption() const {
    if (!encrypted()) return std::nullopt;
    return TlsClient{.authority = folder_ / "ca.crt"};
  }

  // The profile of the contract with all-to-alls that take `slower` times as long.
  static v1::PutProfileRequest ProfileOf(const std::string& request_id, double slower) {
    v1::PutProfileRequest request;
    request.set_request_id(request_id);
    *request.mutable_profile() =
        *ReadJsonFile<v1::Profile>(StrCat(MOEPLAN_TEST_DATA, "/contract/profile.example.json"));
    for (auto& entry : *request.mutable_profile()->mutable_collectives()) {
      const bool all_to_all = entry.collective() == v1::Collective::ALL_TO_ALL ||
                              entry.collective() == v1::Collective::ALL_TO_ALL_ALL_GATHER;
      if (!all_to_all) continue;
      if (entry.has_alpha_beta()) {
        entry.mutable_alpha_beta()->set_alpha_s(slower * entry.alpha_beta().alpha_s());
        entry.mutable_alpha_beta()->set_beta_s_per_byte(slower * entry.alpha_beta().beta_s_per_byte());
      }
      if (entry.has_efficiency()) {
        entry.mutable_efficiency()->set_peak_bytes_per_s(entry.efficiency().peak_bytes_per_s() / slower);
      }
      if (!entry.has_log_log()) continue;
      for (auto& point : *entry.mutable_log_log()->mutable_points()) point.set_time_s(slower * point.time_s());
    }
    return request;
  }
  static v1::PlanRequest Question() {
    v1::PlanRequest request;
    *request.mutable_workload() =
        *ReadJsonFile<v1::Workload>(StrCat(MOEPLAN_TEST_DATA, "/contract/workload.example.json"));
    return request;
  }

  const TemporaryFolder folder_;
  std::string token_, token_file_;
  std::unique_ptr<Process> planner_, front_;
  int grpc_port_ = 0, http_port_ = 0;
};

TEST_P(FrontTest, AttacksOnHttp2EndThere) {
  const std::optional<TlsClient> tls = Encryption();
  for (const Attack& attack : AttacksOnHeaders(/*bytes=*/size_t{16} << 20)) {
    const double planner_memory = PeakMemoryBytes(planner_->pid()), front_memory = PeakMemoryBytes(front_->pid());
    const double planner_time = ProcessorTimeS(planner_->pid()), front_time = ProcessorTimeS(front_->pid());
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(Play(attack, grpc_port_, tls ? &*tls : nullptr), AttackEnd::kCutOff) << attack.name;
    }
    EXPECT_TRUE(Client() != nullptr) << "an honest caller, after " << attack.name;
    EXPECT_LT(PeakMemoryBytes(planner_->pid()) - planner_memory, 4 * kMebibyte) << attack.name;
    EXPECT_LT(PeakMemoryBytes(front_->pid()) - front_memory, 16 * kMebibyte) << attack.name;
    EXPECT_LT(ProcessorTimeS(planner_->pid()) - planner_time, 0.5) << attack.name;
    EXPECT_LT(ProcessorTimeS(front_->pid()) - front_time, 0.5) << attack.name;
  }
}

TEST_P(FrontTest, CallsAndTheirErrorsGoThrough) {
  const auto client = Client();
  ASSERT_TRUE(client);
  // An error comes with the planner's trailers, or it would be taken for the transport's.
  const Status empty = client->GetProfile({}).status();
  EXPECT_EQ(empty.code(), StatusCode::kNotFound) << empty.message();
  ASSERT_TRUE(client->PutProfile(ProfileOf("a", 1)).ok());
  EXPECT_TRUE(client->Plan(Question()).ok());
  // Nearly as long a message as a planner takes, and a longer one.
  v1::PlanRequest request = Question();
  request.set_profile_name(std::string(size_t{63} << 20, 'x'));
  const Status unknown = client->Plan(request).status();
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound) << unknown.message();
  const Outcome called = RunMoeplan(With({"call", "ListProfiles", "{}"}));
  EXPECT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, HasSubstr("two-nodes-of-eight"));
}

// Without a token, as probes ask.
TEST_P(FrontTest, HealthIsAnsweredOverBoth) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (encrypted()) credentials = grpc::SslCredentials({.pem_root_certs = ReadFile(folder_ / "ca.crt")});
  grpc::GenericStub stub(grpc::CreateChannel(address(), credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kSoon);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  grpc::Status status;
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response, [&](grpc::Status ended) {
    const std::scoped_lock lock(mutex);
    status = std::move(ended);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.Length(), 2u);  // status: SERVING.
  const auto health = [&] {
    if (!encrypted()) return httplib::Client("127.0.0.1", http_port_).Get("/healthz");
    httplib::SSLClient http("127.0.0.1", http_port_);
    http.set_ca_cert_path((folder_ / "ca.crt").c_str());
    return http.Get("/healthz", {{"Host", "planner.example"}});
  }();
  ASSERT_TRUE(health) << httplib::to_string(health.error());
  EXPECT_EQ(health->status, 200) << health->body;
}

// By commands, as an administrator starts them.
TEST_P(FrontTest, AnAgentsStreamGoesThrough) {
  const Process agent = Process::Start(With({"agent", "--ranks", "2", "--name", "through"}));
  const auto attached = [&] {
    return RunMoeplan(With({"call", "ListAgents", "{}"})).out.find("\"through\"") != std::string::npos;
  };
  ASSERT_TRUE(Eventually(attached)) << agent.ErrorsSoFar();
  const Outcome calibrated =
      RunMoeplan(With({"calibrate", "--budget", "1s", "--profile-name", "west", "--wait", "30s", "--json"}));
  EXPECT_EQ(calibrated.exit_code, 0) << calibrated.err << agent.ErrorsSoFar();
  EXPECT_THAT(calibrated.out, HasSubstr("\"collectives\""));
}

TEST_P(FrontTest, AWatchIsToldOfABetterPlan) {
  const auto client = Client();
  ASSERT_TRUE(client);
  ASSERT_TRUE(client->PutProfile(ProfileOf("a", 1)).ok());
  std::mutex mutex;
  std::vector<int> versions;
  std::string away;
  v1::WatchPlanRequest request;
  *request.mutable_request() = Question();
  request.set_min_gain(0.01);
  const client::PlanWatch watch({.planner = Options(),
                                 .request = request,
                                 .changed =
                                     [&](const v1::WatchPlanResponse& response) {
                                       const std::scoped_lock lock(mutex);
                                       versions.push_back(response.plan().profile_version());
                                     },
                                 .away =
                                     [&](const Status& why) {
                                       const std::scoped_lock lock(mutex);
                                       away = why.message();
                                     }});
  const auto told = [&](size_t times) {
    return Eventually([&] {
      const std::scoped_lock lock(mutex);
      return versions.size() >= times;
    });
  };
  ASSERT_TRUE(told(1)) << away;
  // Another plan is the best one then (WatchTest.AWatcherIsToldOfABetterPlanAndWhy).
  ASSERT_TRUE(client->PutProfile(ProfileOf("b", 4)).ok());
  EXPECT_TRUE(told(2)) << away;
  EXPECT_EQ(away, "");
}

// A write waits for whoever holds the database, for five seconds; the caller leaves before.
TEST_P(FrontTest, ACallerThatLeavesIsNoticedAndNamedByItsAddress) {
  const auto client = Client(/*deadline_s=*/0.5);
  ASSERT_TRUE(client);
  {
    const HeldDatabase held(db());
    EXPECT_EQ(client->PutProfile(ProfileOf("a", 1)).status().code(), StatusCode::kDeadlineExceeded);
    const auto noticed = [&] { return planner_->ErrorsSoFar().find("code=\"CANCELLED\"") != std::string::npos; };
    const auto began = steady_clock::now();
    EXPECT_TRUE(Eventually(noticed)) << planner_->ErrorsSoFar();
    EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(3)) << "the planner heard of it from nobody";
  }
  // The front says whose call it is; what the caller says of itself does not arrive.
  EXPECT_THAT(planner_->ErrorsSoFar(), HasSubstr("127.0.0.1 through "));
}

// Rapid reset (CVE-2023-44487): streams that are begun and reset at once, ever new ones. Each is a connection to the
// planner for a moment, which takes 4,096 at a time (serve --max-grpc-connections). With a call each, callers who stay
// cost it 0.035 MiB a connection (900 of them, by VmRSS): 142 MiB. Resetting gains nothing beyond that.
TEST_P(FrontTest, StreamsThatAreResetAtOnceCostNoMoreThanConnectionsThatStay) {
  const std::optional<TlsClient> tls = Encryption();
  const double planner_memory = PeakMemoryBytes(planner_->pid()), planner_time = ProcessorTimeS(planner_->pid());
  constexpr std::uint32_t kStreams = 10'000;
  const std::string fields = CallFields("/moeplan.v1.ProfileService/ListProfiles");
  const auto connection = RawHttp2::Connect(grpc_port_, tls ? &*tls : nullptr);
  ASSERT_TRUE(connection);
  connection->Send(Http2Beginning());
  for (std::uint32_t stream = 1; stream < 2 * kStreams; stream += 2) {
    const std::string reset = Frame(FrameType::kReset, 0, stream, std::string("\0\0\0\x08", 4));
    if (!connection->Send(Frame(FrameType::kHeaders, kEndHeaders, stream, fields) + reset)) break;
  }
  EXPECT_TRUE(Client() != nullptr);
  std::printf("%.2f s of the planner\n", ProcessorTimeS(planner_->pid()) - planner_time);
  EXPECT_LT(PeakMemoryBytes(planner_->pid()) - planner_memory, 200 * kMebibyte);
  EXPECT_LT(ProcessorTimeS(planner_->pid()) - planner_time, 2);
}

// gRPC 1.51 aborts, or ends the connection, at these (CVE-2023-1428, CVE-2023-32732). In a planner's place stands a
// server that prints what arrives.
TEST(FrontConfigurationTest, HeadersThatGrpcStumblesOverDoNotArrive) {
  if (std::string_view(MOEPLAN_HAPROXY).empty() || std::string_view(MOEPLAN_NGHTTPD).empty()) {
    GTEST_SKIP() << "haproxy or nghttpd is not here (Debian: haproxy, nghttp2-server)";
  }
  const std::string backend = std::to_string(ListeningSocket().port());
  const Process printing =
      Process::StartProgram(MOEPLAN_NGHTTPD, {"--no-tls", "--verbose", "--address=127.0.0.1", backend});
  const ListeningSocket grpc, http;
  const Process front = Process::StartProgram(MOEPLAN_HAPROXY, {"-db", "-f", MOEPLAN_FRONT_CONFIGURATION},
                                              {{"MOEPLAN_FRONT_GRPC", grpc.address()},
                                               {"MOEPLAN_FRONT_HTTP", http.address()},
                                               {"MOEPLAN_GRPC", "127.0.0.1:" + backend},
                                               {"MOEPLAN_HTTP", "127.0.0.1:1"}});
  // HAProxy itself refuses a `te` of anything but trailers.
  const std::string fields = HeaderField(":method", "POST") + HeaderField(":scheme", "http") +
                             HeaderField(":path", "/any") + HeaderField(":authority", "localhost") +
                             HeaderField("grpclb_client_stats", "x") + HeaderField("own-bin", "not base64 ?") +
                             HeaderField("own", "arrives");
  const auto arrived = [&] {
    const auto connection = RawHttp2::Connect(grpc.port());
    if (connection) {
      connection->Send(Http2Beginning() + Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 1, fields));
      connection->Receive();
    }
    return printing.PrintedSoFar().find("own: arrives") != std::string::npos;
  };
  ASSERT_TRUE(Eventually(arrived)) << front.ErrorsSoFar() << printing.PrintedSoFar() << printing.ErrorsSoFar();
  EXPECT_THAT(printing.PrintedSoFar(), AllOf(HasSubstr("te: trailers"), HasSubstr("x-forwarded-for: 127.0.0.1"),
                                             Not(HasSubstr("grpclb_client_stats")), Not(HasSubstr("own-bin"))));
}

// Without TLS nobody can be asked for a certificate.
TEST(FrontConfigurationTest, AnAuthorityOfClientsWithoutACertificateIsRefused) {
  if (std::string_view(MOEPLAN_HAPROXY).empty()) GTEST_SKIP() << "haproxy is not installed";
  const Outcome checked = Process::StartProgram(MOEPLAN_HAPROXY, {"-c", "-f", MOEPLAN_FRONT_CONFIGURATION},
                                                {{"MOEPLAN_FRONT_GRPC", "127.0.0.1:7070"},
                                                 {"MOEPLAN_FRONT_HTTP", "127.0.0.1:7080"},
                                                 {"MOEPLAN_GRPC", "127.0.0.1:7071"},
                                                 {"MOEPLAN_HTTP", "127.0.0.1:7081"},
                                                 {"MOEPLAN_FRONT_CLIENT_CA", "/nowhere/ca.crt"}})
                              .Finish();
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.err, HasSubstr("MOEPLAN_FRONT_CLIENT_CA is set and MOEPLAN_FRONT_CERTIFICATE is not"));
}

INSTANTIATE_TEST_SUITE_P(Plain, FrontTest, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Encrypted, FrontTest, ::testing::Values(true));

}  // namespace
}  // namespace moeplan::testing
