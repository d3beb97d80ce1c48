#include "tests/proto/sources.h"

#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "moeplan/v1/advice.pb.h"
#include "moeplan/v1/agent_service.pb.h"
#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/planner_service.pb.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/profile_service.pb.h"
#include "moeplan/v1/rank_control.pb.h"
#include "moeplan/v1/report.pb.h"
#include "moeplan/v1/reproduced_steps.pb.h"
#include "moeplan/v1/samples.pb.h"
#include "moeplan/v1/step.pb.h"
#include "moeplan/v1/target.pb.h"
#include "moeplan/v1/timeline.pb.h"
#include "moeplan/v1/training_graph.pb.h"
#include "moeplan/v1/workload.pb.h"

namespace moeplan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;
namespace compiler = google::protobuf::compiler;

class FailingCollector : public compiler::MultiFileErrorCollector {
 public:
  void AddError(const std::string& file, int line, int column, const std::string& message) override {
    ADD_FAILURE() << file << ":" << line + 1 << ":" << column + 1 << ": " << message;
  }
};

class TextTree : public compiler::SourceTree {
 public:
  explicit TextTree(std::map<std::string, std::string> texts) : texts_(std::move(texts)) {}

  google::protobuf::io::ZeroCopyInputStream* Open(const std::string& name) override {
    const auto text = texts_.find(name);
    if (text == texts_.end()) return nullptr;
    return new google::protobuf::io::ArrayInputStream(text->second.data(), static_cast<int>(text->second.size()));
  }

 private:
  const std::map<std::string, std::string> texts_;
};

void AddMessages(const Descriptor& message, std::vector<const Descriptor*>& all) {
  if (message.options().map_entry()) return;
  all.push_back(&message);
  for (int i = 0; i < message.nested_type_count(); ++i) AddMessages(*message.nested_type(i), all);
}

}  // namespace

std::string SourcePath(const std::string& relative) { return std::string(MOEPLAN_SOURCE_DIR "/") + relative; }

std::vector<std::string> ProtoFileNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("proto/moeplan/v1"))) {
    if (entry.path().extension() == ".proto") names.push_back("moeplan/v1/" + entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<const FileDescriptor*> GeneratedFiles() {
  return {v1::Advice::descriptor()->file(),
          v1::AttachRequest::descriptor()->file(),
          v1::Cluster::descriptor()->file(),
          v1::PlanResponse::descriptor()->file(),
          v1::KeptPlan::descriptor()->file(),
          v1::Profile::descriptor()->file(),
          v1::GetProfileRequest::descriptor()->file(),
          v1::RankCommand::descriptor()->file(),
          v1::RunReport::descriptor()->file(),
          v1::ReproducedSteps::descriptor()->file(),
          v1::Samples::descriptor()->file(),
          v1::StepResult::descriptor()->file(),
          v1::ExportedLayout::descriptor()->file(),
          v1::TaskTiming::descriptor()->file(),
          v1::TrainingGraph::descriptor()->file(),
          v1::Workload::descriptor()->file()};
}

std::vector<const Descriptor*> AllMessages(const std::vector<const FileDescriptor*>& files) {
  std::vector<const Descriptor*> all;
  for (const FileDescriptor* file : files) {
    for (int i = 0; i < file->message_type_count(); ++i) AddMessages(*file->message_type(i), all);
  }
  return all;
}

ParsedProtos::ParsedProtos() {
  auto tree = std::make_unique<compiler::DiskSourceTree>();
  tree->MapPath("", SourcePath("proto"));
  tree->MapPath("", MOEPLAN_PROTOBUF_INCLUDE_DIR);
  tree_ = std::move(tree);
  Import(ProtoFileNames());
}

ParsedProtos::ParsedProtos(const std::map<std::string, std::string>& texts) {
  tree_ = std::make_unique<TextTree>(texts);
  std::vector<std::string> names;
  for (const auto& [name, text] : texts) names.push_back(name);
  Import(names);
}

ParsedProtos::~ParsedProtos() = default;

void ParsedProtos::Import(const std::vector<std::string>& names) {
  errors_ = std::make_unique<FailingCollector>();
  importer_ = std::make_unique<compiler::Importer>(tree_.get(), errors_.get());
  for (const std::string& name : names) {
    if (const FileDescriptor* file = importer_->Import(name)) files_.push_back(file);
  }
}

}  // namespace moeplan
