// `moeplan` beside a planner that is newer: its messages have fields that this program was built without.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "moeplan/rpc/reflection.pb.h"
#include "moeplan/v1/plan.pb.h"
#include "proto/json.h"
#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::Message;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

const std::string kContract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
const std::string kWorkload = kContract + "workload.example.json";

// The messages of moeplan.v1 in a later version.
class NewerMessages {
 public:
  NewerMessages() {
    Collect(*v1::PlanResponse::descriptor()->file());
    for (FileDescriptorProto& file : files_) {
      AddField(file, "PlanResponse", "newer_note", 901, FieldDescriptorProto::TYPE_STRING);
      AddField(file, "Plan", "newer_time_s", 902, FieldDescriptorProto::TYPE_DOUBLE);
      database_.Add(file);
    }
  }

  const std::vector<FileDescriptorProto>& files() const { return files_; }

  // The answer as a newer planner gives it.
  std::string Newer(const v1::PlanResponse& answer) {
    const auto* const type = pool_.FindMessageTypeByName("moeplan.v1.PlanResponse");
    const std::unique_ptr<Message> newer(factory_.GetPrototype(type)->New());
    EXPECT_TRUE(newer->ParseFromString(answer.SerializeAsString()));
    newer->GetReflection()->SetString(newer.get(), type->FindFieldByName("newer_note"), "known to the planner");
    Message* const best = newer->GetReflection()->MutableMessage(newer.get(), type->FindFieldByName("best"));
    best->GetReflection()->SetDouble(best, best->GetDescriptor()->FindFieldByName("newer_time_s"), 0.25);
    return newer->SerializeAsString();
  }

 private:
  void Collect(const FileDescriptor& file) {
    if (!names_.insert(file.name()).second) return;
    for (int i = 0; i < file.dependency_count(); ++i) Collect(*file.dependency(i));
    file.CopyTo(&files_.emplace_back());
  }
  static void AddField(FileDescriptorProto& file, const std::string& message, const std::string& name, int number,
                       FieldDescriptorProto::Type type) {
    for (auto& one : *file.mutable_message_type()) {
      if (file.package() != "moeplan.v1" || one.name() != message) continue;
      FieldDescriptorProto& field = *one.add_field();
      field.set_name(name);
      field.set_number(number);
      field.set_label(FieldDescriptorProto::LABEL_OPTIONAL);
      field.set_type(type);
    }
  }

  std::set<std::string> names_;
  std::vector<FileDescriptorProto> files_;
  google::protobuf::SimpleDescriptorDatabase database_;
  google::protobuf::DescriptorPool pool_{&database_};
  google::protobuf::DynamicMessageFactory factory_{&pool_};
};

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

// Answers the first message of a call, and ends it.
class OneAnswer final : public grpc::ServerGenericBidiReactor {
 public:
  explicit OneAnswer(const std::string& answer) : answer_(Bytes(answer)) { StartRead(&request_); }

  void OnReadDone(bool /*ok*/) override { StartWriteAndFinish(&answer_, {}, grpc::Status::OK); }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  const grpc::ByteBuffer answer_;
};

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  Refusal() { Finish(grpc::Status(grpc::UNIMPLEMENTED, "not served here")); }
  void OnDone() override { delete this; }
};

// Plans everything alike, and tells its descriptors or does not.
class NewerPlanner final : private grpc::CallbackGenericService {
 public:
  NewerPlanner(const v1::PlanResponse& answer, bool reflects) : answer_(messages_.Newer(answer)), reflects_(reflects) {
    for (const FileDescriptorProto& file : messages_.files()) {
      reflection_.mutable_files()->add_descriptors(file.SerializeAsString());
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~NewerPlanner() override { server_->Shutdown(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() == "/moeplan.v1.PlannerService/Plan") return new OneAnswer(answer_);
    const bool asks = context->method() == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
    if (asks && reflects_) return new OneAnswer(reflection_.SerializeAsString());
    return new Refusal;
  }

  NewerMessages messages_;
  const std::string answer_;
  const bool reflects_;
  rpc::ReflectionResponse reflection_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class NewerPlannerTest : public ::testing::Test {
 protected:
  NewerPlannerTest()
      : known_(
            RunMoeplan({"plan", "--profile", kContract + "profile.example.json", "--workload", kWorkload, "--json"})) {
    EXPECT_EQ(known_.exit_code, 0) << known_.err;
    auto answer = FromJson<v1::PlanResponse>(known_.out, "answer");
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    answer_ = *answer;
  }

  const Outcome known_;
  v1::PlanResponse answer_;
};

TEST_F(NewerPlannerTest, FieldsThatThisProgramDoesNotKnowArePrinted) {
  const NewerPlanner planner(answer_, /*reflects=*/true);
  Json expected = Json::parse(known_.out);
  expected["newerNote"] = "known to the planner";
  expected["best"]["newerTimeS"] = 0.25;
  for (Json& candidate : expected["candidates"]) candidate["newerTimeS"] = 0.0;  // Not set: the default, as always.
  const Outcome planned = RunMoeplan({"plan", "--planner", planner.address(), "--workload", kWorkload, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(Json::parse(planned.out), expected);
  EXPECT_THAT(planned.err, IsEmpty());
  const std::string request = "{\"workload\": " + ReadFile(kWorkload) + "}";
  const Outcome called = RunMoeplan({"call", "Plan", request, "--planner", planner.address()});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_EQ(Json::parse(called.out), expected);
}

TEST_F(NewerPlannerTest, WhereThePlannerDoesNotTellWhatTheyAreTheRestIsPrintedAndSaidToBe) {
  const NewerPlanner planner(answer_, /*reflects=*/false);
  const Outcome planned = RunMoeplan({"plan", "--planner", planner.address(), "--workload", kWorkload, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.out, known_.out);
  EXPECT_THAT(planned.err, HasSubstr("the planner is newer, and fields of its answer that are not known here were left "
                                     "out: not served here"));
}

}  // namespace
}  // namespace moeplan::testing
