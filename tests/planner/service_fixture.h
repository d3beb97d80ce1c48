// A store in a folder of its own, requests made of the contract's examples, and a writer that holds the store up.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "db/store.h"
#include "models/text.h"
#include "planner/client/planner_client.h"
#include "planner/service/server.h"
#include "proto/convert/profile.h"
#include "proto/json.h"

namespace moeplan {

inline Status StatusIn(const Status& status) { return status; }
template <typename Value>
Status StatusIn(const StatusOr<Value>& value) {
  return value.status();
}

// Of a Status or a StatusOr.
MATCHER_P2(IsError, code, message, "") {
  const Status status = StatusIn(arg);
  *result_listener << Name(status.code()) << ": " << status.message();
  return status.code() == code && testing::Matches(testing::HasSubstr(message))(status.message());
}

template <typename Message>
Message ContractMessage(const std::string& name) {
  auto message = ReadJsonFile<Message>(StrCat(MOEPLAN_TEST_DATA, "/contract/", name));
  EXPECT_TRUE(message.ok()) << message.status().message();
  return message.ok() ? *message : Message();
}

inline v1::PlanRequest ExamplePlanRequest() {
  v1::PlanRequest request;
  *request.mutable_workload() = ContractMessage<v1::Workload>("workload.example.json");
  return request;
}

inline v1::PutProfileRequest ExamplePutProfile(const std::string& request_id) {
  v1::PutProfileRequest request;
  request.set_request_id(request_id);
  *request.mutable_profile() = ContractMessage<v1::Profile>("profile.example.json");
  return request;
}

// Gate times of two sizes, `second_s` for the larger, on one node with one GPU.
inline v1::PutSamplesRequest GateSamples(const std::string& request_id, double second_s,
                                         const std::string& name = "gates") {
  v1::PutSamplesRequest request;
  request.set_request_id(request_id);
  request.mutable_samples()->set_name(name);
  request.mutable_samples()->mutable_cluster()->set_nodes(1);
  request.mutable_samples()->mutable_cluster()->set_gpus_per_node(1);
  for (const auto& [bytes, time_s] : {std::pair(1024.0, 1e-5), std::pair(1048576.0, second_s)}) {
    v1::Sample& sample = *request.mutable_samples()->add_samples();
    sample.set_kernel(v1::Kernel::GATE);
    sample.set_bytes(bytes);
    for (const double repeat : {1.0, 1.01, 1.02}) sample.add_time_s(time_s * repeat);
  }
  return request;
}

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "moeplan_service_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path db() const { return folder_ / "moeplan.db"; }

  // On free ports.
  service::ServerOptions Options() const {
    return {.store = db(), .grpc_address = "127.0.0.1:0", .http_address = "127.0.0.1:0"};
  }

  static std::unique_ptr<service::Server> Started(service::ServerOptions options) {
    auto server = service::Server::Start(std::move(options));
    if (!server.ok()) {
      ADD_FAILURE() << server.status().message();
      std::abort();  // Nothing after this would mean anything.
    }
    return *std::move(server);
  }
  std::unique_ptr<service::Server> Started() const { return Started(Options()); }

  static std::unique_ptr<client::PlannerClient> ClientOf(const service::Server& server, double deadline_s = 120) {
    auto client = client::PlannerClient::Connect({.address = server.grpc_address(), .deadline_s = deadline_s});
    if (!client.ok()) {
      ADD_FAILURE() << client.status().message();
      std::abort();
    }
    return *std::move(client);
  }

  // While it lives, whatever wants to write to the store waits.
  class HeldStore {
   public:
    explicit HeldStore(const std::filesystem::path& path)
        : database_(path.string(), SQLite::OPEN_READWRITE),
          transaction_(database_, SQLite::TransactionBehavior::IMMEDIATE) {}

   private:
    SQLite::Database database_;
    SQLite::Transaction transaction_;
  };

 private:
  std::filesystem::path folder_;
};

}  // namespace moeplan
