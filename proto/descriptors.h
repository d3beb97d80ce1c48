// The .proto files as data: the services, their messages and their comments, which linked messages do not know.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

namespace moeplan {

// Of all services and what they use. Any thread.
const google::protobuf::DescriptorPool& ProtoFiles();

// Every method of every service, in the order of their full names.
std::vector<const google::protobuf::MethodDescriptor*> AllMethods();

}  // namespace moeplan
