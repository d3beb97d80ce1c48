// Workloads to and from messages.
//
// Absent fields get the contract's defaults. An explicit zero stays one, so that ResolveWorkload refuses it; a zero
// that the domain type would read as "absent" is refused here. `path` is where the message stands in its file and
// begins every error ("workloads[3]"). Pure.
#pragma once

#include <string_view>
#include <vector>

#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/workload.pb.h"

namespace moeplan {

StatusOr<Layer> LayerFromProto(const v1::Layer& message, std::string_view path = {});
StatusOr<Layout> LayoutFromProto(const v1::Layout& message, std::string_view path = {});
StatusOr<Workload> WorkloadFromProto(const v1::Workload& message, std::string_view path = {});

// GRID.json. At least one workload; one without name is called by its place, "workloads[3]".
StatusOr<std::vector<Workload>> WorkloadsFromProto(const v1::WorkloadGrid& message);

// Every field set; data_parallel absent where it is 0.
v1::Layer ToProto(const Layer& layer);
v1::Layout ToProto(const Layout& layout);
v1::Workload ToProto(const Workload& workload);
v1::WorkloadGrid ToProto(const std::vector<Workload>& workloads);

}  // namespace moeplan
