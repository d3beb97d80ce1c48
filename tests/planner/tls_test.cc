// Certificates of an authority made for the test, a server that has one, and clients that do or do not.
#include "planner/service/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>

#include "models/text.h"
#include "planner/client/agent_connection.h"
#include "planner/service/access/token.h"
#include "proto/host_port.h"
#include "proto/json.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

// Keys and certificates by `openssl`, as an administrator makes them.
class TlsTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    MakeAuthority("ca");
    MakeCertificate("server", "ca");
  }

  std::string File(const std::string& name) const { return (db().parent_path() / name).string(); }

  void Run(const std::string& command) const {
    ASSERT_EQ(std::system((command + " 2> " + File("openssl.log")).c_str()), 0) << command;
  }
  void MakeAuthority(const std::string& name) const {
    Run(StrCat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=", name,
               " -keyout ", File(name + ".key"), " -out ", File(name + ".pem")));
  }
  void MakeCertificate(const std::string& name, const std::string& authority) const {
    std::ofstream(File("names")) << "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
    Run(StrCat("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=", name, " -keyout ",
               File(name + ".key"), " -out ", File(name + ".csr")));
    Run(StrCat("openssl x509 -req -days 2 -in ", File(name + ".csr"), " -CA ", File(authority + ".pem"), " -CAkey ",
               File(authority + ".key"), " -CAcreateserial -extfile ", File("names"), " -out ", File(name + ".pem")));
  }

  TlsFiles Files() const { return {.certificate = File("server.pem"), .key = File("server.key")}; }
  std::unique_ptr<Server> StartedWith(const TlsFiles& tls) const {
    ServerOptions options = Options();
    options.tls = tls;
    return Started(options);
  }
  client::ConnectOptions Connect(const Server& server, const std::string& authority = "ca",
                                 const std::string& identity = "") const {
    client::ConnectOptions options = {.address = server.grpc_address(), .deadline_s = 5};
    if (!authority.empty()) options.tls_authority = File(authority + ".pem");
    if (!identity.empty()) {
      options.tls_certificate = File(identity + ".pem");
      options.tls_key = File(identity + ".key");
    }
    return options;
  }
  // Whether a call is answered.
  static bool Answers(const client::ConnectOptions& options) {
    const auto client = client::PlannerClient::Connect(options);
    return client.ok() && (*client)->ListProfiles({}).ok();
  }
};

TEST_F(TlsTest, OnlyWhoTrustsTheAuthorityAndEncryptsIsAnswered) {
  MakeAuthority("other");
  const auto server = StartedWith(Files());
  EXPECT_TRUE(Answers(Connect(*server)));
  EXPECT_FALSE(Answers(Connect(*server, "other")));
  EXPECT_FALSE(Answers(Connect(*server, "")));
  httplib::SSLClient http("127.0.0.1", ParseHostPort(server->http_address(), "")->port);
  http.set_ca_cert_path(File("ca.pem").c_str());
  http.enable_server_certificate_verification(true);
  const auto health = http.Get("/healthz");
  ASSERT_TRUE(health) << httplib::to_string(health.error());
  EXPECT_EQ(health->status, 200);
  const auto bare = httplib::Client("http://" + server->http_address()).Get("/healthz");
  EXPECT_FALSE(bare);
}

TEST_F(TlsTest, WithAClientAuthorityOthersAreNotLetIn) {
  MakeAuthority("clients");
  MakeCertificate("trainer", "clients");
  MakeCertificate("stranger", "ca");
  TlsFiles files = Files();
  files.client_authority = File("clients.pem");
  const auto server = StartedWith(files);
  EXPECT_TRUE(Answers(Connect(*server, "ca", "trainer")));
  EXPECT_FALSE(Answers(Connect(*server, "ca", "stranger")));
  EXPECT_FALSE(Answers(Connect(*server, "ca")));
  const auto get = [&](const std::string& identity) {
    const int port = ParseHostPort(server->http_address(), "")->port;
    httplib::SSLClient http =
        identity.empty() ? httplib::SSLClient("127.0.0.1", port)
                         : httplib::SSLClient("127.0.0.1", port, File(identity + ".pem"), File(identity + ".key"));
    http.set_ca_cert_path(File("ca.pem").c_str());
    const auto response = http.Get("/healthz");
    return response ? response->status : 0;
  };
  EXPECT_EQ(get("trainer"), 200);
  EXPECT_EQ(get("stranger"), 0);
  EXPECT_EQ(get(""), 0);
}

// Whatever carries them: what one certificate attached, another may not name.
TEST_F(TlsTest, AnAgentsNameIsItsCertificates) {
  TlsFiles files = Files();
  files.client_authority = File("ca.pem");
  for (const char* name : {"one", "two"}) MakeCertificate(name, "ca");
  const auto server = StartedWith(files);
  v1::AgentRegistration registration;
  registration.set_name("alone");
  registration.set_version(MOEPLAN_VERSION);
  registration.set_instance("i");
  registration.set_cluster("c");
  registration.set_nodes(1);
  registration.set_held_nodes(1);
  registration.set_ranks_per_node(1);
  registration.set_backend("light");
  const auto outcome_of = [&](const std::string& identity) {
    std::promise<Status> outcome;
    std::once_flag once;
    const auto settle = [&](const Status& status) { std::call_once(once, [&] { outcome.set_value(status); }); };
    const auto agent = client::ConnectAgentWith(Connect(*server, "ca", identity))(
        registration, {.received = [&](const v1::AttachResponse&) { settle(OkStatus()); }, .ended = settle});
    return agent.ok() ? outcome.get_future().get() : agent.status();
  };
  EXPECT_EQ(outcome_of("one"), OkStatus());
  EXPECT_THAT(outcome_of("two"), IsError(StatusCode::kPermissionDenied, "another token or certificate"));

  const auto request = [](const std::string& id) {
    v1::PutSamplesRequest samples = GateSamples(id, 1e-3);
    for (v1::Sample& sample : *samples.mutable_samples()->mutable_samples()) {
      (*sample.mutable_provenance())["agent"] = "alone";
    }
    return samples;
  };
  const HostPort http = *ParseHostPort(server->http_address(), "http");
  for (const auto& [identity, rejected] : {std::pair("one", 0), std::pair("two", 2)}) {
    const auto put = (*client::PlannerClient::Connect(Connect(*server, "ca", identity)))->PutSamples(request(identity));
    ASSERT_TRUE(put.ok()) << put.status().message();
    EXPECT_EQ(put->rejected_samples(), rejected) << identity;
    httplib::SSLClient client(http.host, http.port, File(StrCat(identity, ".pem")), File(StrCat(identity, ".key")));
    client.set_ca_cert_path(File("ca.pem").c_str());
    const auto posted =
        client.Post("/moeplan.v1.ProfileService/PutSamples",
                    ToJson(request(StrCat("http ", identity)), JsonStyle::kCompact), "application/json");
    ASSERT_TRUE(posted);
    EXPECT_THAT(posted->body, testing::ContainsRegex(StrCat("\"rejectedSamples\": ?", rejected))) << identity;
  }
}

TEST_F(TlsTest, WithTlsOtherMachinesMayReachItAndWithoutOnlyWhenToldSo) {
  ServerOptions options = Options();
  options.grpc_address = "0.0.0.0:0";
  EXPECT_THAT(Server::Start(options),
              IsError(StatusCode::kInvalidInput, "--grpc: found 0.0.0.0:0, which other machines"));
  std::vector<std::string> lines;
  options.log = [&](const LogRecord& record) { lines.push_back(record.event); };
  options.insecure = options.exposed_http2 = true;
  Started(options);
  EXPECT_THAT(lines, testing::Contains(testing::HasSubstr("whoever reaches the planner may do everything")));
  options.insecure = false;
  options.tls = Files();
  Started(options);
}

// Its own address says nothing of who reaches it there.
TEST_F(TlsTest, AFrontInFrontOfAPlannerWithoutTokensIsWarnedOfOnce) {
  ServerOptions options = Options();
  options.tls = {};
  std::mutex mutex;
  std::vector<std::string> lines;
  options.log = [&](const LogRecord& record) {
    const std::scoped_lock lock(mutex);
    lines.push_back(record.event);
  };
  const auto server = Started(options);
  const auto post = [&](const httplib::Headers& headers) {
    const auto posted = httplib::Client("http://" + server->http_address())
                            .Post("/moeplan.v1.ProfileService/ListProfiles", headers, "{}", "application/json");
    return posted ? posted->status : 0;
  };
  const auto warned = testing::Contains(testing::HasSubstr("a front passes calls on"));
  EXPECT_EQ(post({}), 200);
  EXPECT_THAT(lines, testing::Not(warned));
  EXPECT_EQ(post({{"X-Forwarded-For", "10.1.2.3"}}), 200);
  EXPECT_EQ(post({{"X-Forwarded-For", "10.1.2.3"}}), 200);
  EXPECT_THAT(lines, warned.Times(1));
}

TEST_F(TlsTest, StrangersSpeakHttp2WithGrpcOnlyWhereThatIsAskedFor) {
  MakeAuthority("clients");
  const auto refused =
      IsError(StatusCode::kInvalidInput, "--grpc: found 0.0.0.0:0, where strangers reach gRPC's HTTP/2");
  ServerOptions options = Options();
  options.grpc_address = "0.0.0.0:0";
  options.insecure = true;
  EXPECT_THAT(Server::Start(options), refused);
  options.insecure = false;
  options.tls = Files();
  EXPECT_THAT(Server::Start(options), refused);
  std::vector<std::string> lines;
  options.log = [&](const LogRecord& record) { lines.push_back(record.event); };
  const auto warned = testing::Contains(testing::HasSubstr("strangers may speak HTTP/2 with gRPC"));
  options.exposed_http2 = true;
  Started(options);
  EXPECT_THAT(lines, warned);
  lines.clear();
  options.exposed_http2 = false;
  options.tls.client_authority = File("clients.pem");
  Started(options);
  EXPECT_THAT(lines, testing::Not(warned));
  // HTTP/1 is not gRPC's.
  options = Options();
  options.http_address = "0.0.0.0:0";
  options.tls = Files();
  Started(options);
}

TEST_F(TlsTest, ATokenIsNotSentToOthersInTheClear) {
  EXPECT_THAT(client::PlannerClient::Connect({.address = "planner.example:7070", .token = "secret"}),
              IsError(StatusCode::kInvalidInput, "without TLS"));
}

TEST_F(TlsTest, ATokenWithALineBreakIsRefusedBeforeGrpcSeesIt) {
  EXPECT_THAT(client::PlannerClient::Connect({.address = "127.0.0.1:1", .token = "secret\n"}),
              IsError(StatusCode::kInvalidInput, "token: found a space, line break"));
}

TEST_F(TlsTest, ANewAndARevokedTokenCountWithoutARestart) {
  const auto server = StartedWith(Files());
  client::ConnectOptions options = Connect(*server);
  EXPECT_TRUE(Answers(options));
  Store store = *Store::Open(db());
  ASSERT_TRUE(store.AddToken({.name = "t", .role = "read", .sha256 = HexDigestOf("secret")}).ok());
  const auto eventually = [&](bool wanted) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (Answers(options) != wanted && std::chrono::steady_clock::now() < limit) continue;
    return Answers(options) == wanted;
  };
  EXPECT_TRUE(eventually(false));
  options.token = "secret";
  EXPECT_TRUE(Answers(options));
  const auto client = client::PlannerClient::Connect(options);
  EXPECT_THAT((*client)->PutProfile(ExamplePutProfile("a")),
              IsError(StatusCode::kPermissionDenied, "needs the role admin"));
  ASSERT_TRUE(store.RevokeToken("t").ok());
  EXPECT_TRUE(eventually(false));
  EXPECT_THAT((*client)->ListProfiles({}), IsError(StatusCode::kPermissionDenied, "has been revoked"));
}

TEST_F(TlsTest, WrongFilesAreNamed) {
  const auto error = [&](const TlsFiles& files) { return ReadTls(files).status().message(); };
  EXPECT_TRUE(ReadTls({}).ok());
  EXPECT_THAT(error({.key = File("server.key")}), testing::HasSubstr("--tls-cert: found none"));
  EXPECT_THAT(error({.certificate = File("server.pem")}), testing::HasSubstr("--tls-key: found none"));
  EXPECT_THAT(error({.certificate = File("absent.pem"), .key = File("server.key")}),
              testing::AllOf(testing::HasSubstr("--tls-cert: "), testing::HasSubstr("No such file")));
  EXPECT_THAT(error({.certificate = File("server.key"), .key = File("server.key")}),
              testing::HasSubstr("found no certificate"));
  EXPECT_THAT(error({.certificate = File("server.pem"), .key = File("server.pem")}),
              testing::HasSubstr("found no key"));
  EXPECT_THAT(error({.certificate = File("server.pem"), .key = File("ca.key")}),
              testing::HasSubstr("found the key of another certificate"));
  TlsFiles files = Files();
  files.client_authority = File("names");
  EXPECT_THAT(error(files), testing::HasSubstr("--tls-client-ca: "));
  // A folder, on either side, and what is no certificate by its length.
  std::filesystem::create_directory(File("folder"));
  EXPECT_THAT(error({.certificate = File("folder"), .key = File("server.key")}),
              testing::AllOf(testing::HasSubstr("--tls-cert: "), testing::HasSubstr("found Is a directory")));
  std::ofstream(File("long")) << std::string((1 << 20) + 1, 'x');
  EXPECT_THAT(error({.certificate = File("long"), .key = File("server.key")}),
              testing::HasSubstr("found more than 1 MiB, expected a PEM file of less"));
  const auto client = client::PlannerClient::Connect({.address = "127.0.0.1:1", .tls_authority = File("folder")});
  EXPECT_THAT(client, IsError(StatusCode::kInvalidInput, "found no PEM that can be read"));
}

}  // namespace
}  // namespace moeplan::service
