// What our clients take from whoever poses as a planner.
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "models/text.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

constexpr double kMebibyte = 1 << 20;

// Answers every call with a compressed message of 256 MiB, all zero.
class Impostor final : public grpc::CallbackGenericService {
 public:
  Impostor() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return StrCat("127.0.0.1:", port_); }

 private:
  class Answer final : public grpc::ServerGenericBidiReactor {
   public:
    Answer() {
      const std::vector<grpc::Slice> slices(256, grpc::Slice(std::string(1 << 20, '\0')));
      message_ = grpc::ByteBuffer(slices.data(), slices.size());
      StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer message_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    return new Answer;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

void ForgetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

double PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

TEST(CompressedAnswerTest, AnAnswerIsNotUnpacked) {
  const Impostor impostor;
  const auto client = client::PlannerClient::Connect({.address = impostor.address(), .deadline_s = 60});
  ASSERT_TRUE(client.ok()) << client.status().message();
  ForgetPeakMemory();
  const double before = PeakMemoryBytes();
  ASSERT_GT(before, 0);
  EXPECT_THAT((*client)->ListProfiles({}), IsError(StatusCode::kUnimplemented, "gzip"));
  const double grown = PeakMemoryBytes() - before;
  std::printf("a compressed answer of 256 MiB took %.1f MiB\n", grown / kMebibyte);
  EXPECT_LT(grown, 64 * kMebibyte);
}

}  // namespace
}  // namespace moeplan::service
