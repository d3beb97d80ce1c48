// Foreign JSON that came inside a message, as text again for whoever reads that format. Pure.
#pragma once

#include <google/protobuf/struct.pb.h>

#include <string>

namespace moeplan {

// Whole numbers up to 2^53 without a point, so that they read as such.
std::string JsonTextOf(const google::protobuf::Struct& object);

}  // namespace moeplan
