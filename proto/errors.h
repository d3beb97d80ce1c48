// How this room words what is wrong with a message: the field's JSON path, what was found, what was expected.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"
#include "models/text.h"

namespace moeplan {

// "layer" and "batch" to "layer.batch"; an empty path is the root.
inline std::string FieldPath(std::string_view path, std::string_view field) {
  return path.empty() ? std::string(field) : StrCat(path, ".", field);
}
// "layers" and 2 to "layers[2]".
inline std::string ItemPath(std::string_view path, size_t index) { return StrCat(path, "[", index, "]"); }

// "a, b, c".
std::string CommaList(const std::vector<std::string>& names);

namespace error {

// "path: found x, expected y"; the root has no path.
Status Mismatch(std::string_view path, std::string_view found, std::string_view expected);

// "layer.topk: found an unknown field (did you mean topK?), expected one of batch, ..."
Status UnknownField(std::string_view path, std::string_view name, const google::protobuf::Descriptor& type);

// "dispatchCodec: found FP9, expected one of NONE, ..."
Status UnknownEnum(std::string_view path, std::string_view found, const google::protobuf::EnumDescriptor& type);

}  // namespace error
}  // namespace moeplan
