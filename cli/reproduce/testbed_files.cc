#include <string>

#include "cli/reproduce/testbed.h"
#include "models/text.h"
#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "planner/shipped/files.h"
#include "proto/convert/simulated_cluster.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan::cli {
StatusOr<SimulatedCluster> FindTestbed(std::string_view name) {
  const std::string path = StrCat("testbeds/", name, ".json");
  ASSIGN_OR_RETURN(const std::string_view text, planner::ShippedText(path));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::SimulatedCluster>(text, path));
  return SimulatedClusterFromProto(message);
}

StatusOr<std::vector<Workload>> FindTestbedGrid(std::string_view name) {
  const std::string path = StrCat("testbeds/grids/", name, ".json");
  ASSIGN_OR_RETURN(const std::string_view text, planner::ShippedText(path));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::WorkloadGrid>(text, path));
  return WorkloadsFromProto(message);
}

}  // namespace moeplan::cli
