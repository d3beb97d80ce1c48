// What a stranger, who reaches the planner's port and has no token, can do to it.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/host_port.h"
#include "tests/e2e/attacks.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/moeplan_process.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/usage.h"

namespace moeplan::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kMebibyte = 1 << 20;

// A planner that asks for tokens.
class StrangerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string db = folder_ / "m.db";
    ASSERT_EQ(RunMoeplan({"token", "create", "--db", db, "--name", "honest"}).exit_code, 0);
    server_ = std::make_unique<Process>(
        Process::Start({"serve", "--db", db, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"}));
    address_ = AwaitAddress(*server_);
    ASSERT_FALSE(address_.empty());
  }

  const TemporaryFolder folder_;
  std::unique_ptr<Process> server_;
  std::string address_;
};

// A message of that many mebibytes, all zero, which take one of memory here.
grpc::ByteBuffer Zeros(int mebibytes) {
  const std::vector<grpc::Slice> slices(static_cast<size_t>(mebibytes), grpc::Slice(std::string(1 << 20, '\0')));
  return {slices.data(), slices.size()};
}

// The end of a call of any kind whose first message travels compressed.
grpc::Status CallCompressed(const std::string& address, const std::string& path, grpc_compression_algorithm algorithm,
                            const grpc::ByteBuffer& message) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_compression_algorithm(algorithm);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, path, &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok) && ok; };
  call->StartCall(nullptr);
  next();
  call->WriteLast(message, {}, nullptr);
  next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) continue;
  return status;
}

TEST_F(StrangerTest, CompressedMessagesAreRefusedAndNotUnpacked) {
  // A quarter of a mebibyte on the wire, 256 where it is unpacked, ten times.
  const grpc::ByteBuffer bomb = Zeros(256);
  const double before = PeakMemoryBytes(server_->pid());
  for (const char* path :
       {"/moeplan.v1.PlannerService/Plan", "/moeplan.v1.PlannerService/WatchPlan", "/moeplan.v1.AgentService/Attach",
        "/grpc.health.v1.Health/Check", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    for (const auto& [algorithm, name] : {std::pair(GRPC_COMPRESS_GZIP, "gzip"), {GRPC_COMPRESS_DEFLATE, "deflate"}}) {
      const grpc::Status status = CallCompressed(address_, path, algorithm, bomb);
      EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED) << path << ' ' << name << ": " << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr(name)) << path;
    }
  }
  const double grown = PeakMemoryBytes(server_->pid()) - before;
  std::printf("ten compressed messages of 256 MiB took %.1f MiB of the planner's memory\n", grown / kMebibyte);
  EXPECT_LT(grown, 32 * kMebibyte);
}

// With mutual TLS whoever has no certificate of the authority never gets to speak HTTP/2.
TEST_F(StrangerTest, WithoutACertificateThereIsNoHttp2) {
  for (const char* name : {"planners", "clients", "strangers"}) MakeAuthority(folder_, name);
  MakeCertificate(folder_, "planner", "planners");
  MakeCertificate(folder_, "client", "clients");
  MakeCertificate(folder_, "stranger", "strangers");
  const Process server = Process::Start({"serve", "--db", folder_ / "m.db", "--grpc", "127.0.0.1:0", "--http",
                                         "127.0.0.1:0", "--tls-cert", folder_ / "planner.crt", "--tls-key",
                                         folder_ / "planner.key", "--tls-client-ca", folder_ / "clients.crt"});
  const std::string address = AwaitAddress(server);
  ASSERT_FALSE(address.empty()) << server.ErrorsSoFar();
  const int port = ParseHostPort(address, "planner")->port;
  const TlsClient honest = {folder_ / "planners.crt", folder_ / "client.crt", folder_ / "client.key"};
  const TlsClient nobody = {.authority = folder_ / "planners.crt"};
  const TlsClient stranger = {folder_ / "planners.crt", folder_ / "stranger.crt", folder_ / "stranger.key"};
  const double memory = PeakMemoryBytes(server.pid()), time = ProcessorTimeS(server.pid());
  for (const TlsClient& tls : {nobody, stranger}) {
    for (const Attack& attack : AttacksOnHeaders(/*bytes=*/size_t{16} << 20)) {
      EXPECT_NE(Play(attack, port, &tls), AttackEnd::kTaken) << attack.name;
    }
  }
  EXPECT_LT(PeakMemoryBytes(server.pid()) - memory, 8 * kMebibyte);
  EXPECT_LT(ProcessorTimeS(server.pid()) - time, 1);
  const auto connection = RawHttp2::Connect(port, &honest);
  ASSERT_TRUE(connection);
  EXPECT_TRUE(connection->Send(Http2Beginning()));
  EXPECT_FALSE(connection->Receive().empty()) << "the planner's settings";
}

}  // namespace
}  // namespace moeplan::testing
