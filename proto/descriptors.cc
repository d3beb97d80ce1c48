#include "proto/descriptors.h"

#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <memory>

#include "models/check.h"

// descriptors_data.cc.
extern const char moeplan_proto_descriptors[];
extern const char moeplan_proto_descriptors_end[];

namespace moeplan {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;

struct Files {
  DescriptorPool pool;
  std::vector<const FileDescriptor*> files;
};

const Files& AllFiles() {
  static const std::unique_ptr<const Files> all = [] {
    auto made = std::make_unique<Files>();
    google::protobuf::FileDescriptorSet set;
    MOEPLAN_CHECK(set.ParseFromArray(moeplan_proto_descriptors,
                                     static_cast<int>(moeplan_proto_descriptors_end - moeplan_proto_descriptors)));
    for (const google::protobuf::FileDescriptorProto& file : set.file()) {
      made->files.push_back(made->pool.BuildFile(file));
      MOEPLAN_CHECK(made->files.back() != nullptr);
    }
    return made;
  }();
  return *all;
}

}  // namespace

const DescriptorPool& ProtoFiles() { return AllFiles().pool; }

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const FileDescriptor* const file : AllFiles().files) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) methods.push_back(file->service(i)->method(j));
    }
  }
  std::sort(methods.begin(), methods.end(), [](const MethodDescriptor* one, const MethodDescriptor* other) {
    return one->full_name() < other->full_name();
  });
  return methods;
}

}  // namespace moeplan
