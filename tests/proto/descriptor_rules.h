// The rules that our .proto files keep (style.md, contract): a lint, and a list of what may not change.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace moeplan {

// One sentence for each breach in `file`, which must have been parsed with its comments.
std::vector<std::string> LintComplaints(const google::protobuf::FileDescriptor& file);

// One line for each field, enum value and RPC: all that readers of files and peers rely on.
//   field moeplan.v1.Layer.batch 1 int32 singular batch
//   value moeplan.v1.Gate.Kind.TOP_K 0
//   rpc moeplan.v1.PlannerService.Plan moeplan.v1.PlanRequest moeplan.v1.PlanResponse
std::vector<std::string> Snapshot(const std::vector<const google::protobuf::FileDescriptor*>& files);

// The lines of `before` that no longer hold, but for fields and enum values whose number and name are now reserved.
std::vector<std::string> BreakingChanges(const std::vector<std::string>& before,
                                         const std::vector<const google::protobuf::FileDescriptor*>& files);

}  // namespace moeplan
