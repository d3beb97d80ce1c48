// The files of deploy/testbeds, as the build found them.
#include "cli/reproduce/testbed_files.h"

#include <algorithm>
#include <string>

#include "cli/reproduce/testbed.h"
#include "models/text.h"
#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "proto/convert/simulated_cluster.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

StatusOr<std::string_view> TextOf(const std::string& path) {
  const auto found = std::ranges::find(kTestbedFiles, path, &TestbedFile::path);
  if (found == kTestbedFiles.end()) return NotFound(StrCat("deploy/testbeds has no ", path));
  return found->text;
}

}  // namespace

StatusOr<SimulatedCluster> FindTestbed(std::string_view name) {
  const std::string path = StrCat(name, ".json");
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(path));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::SimulatedCluster>(text, path));
  return SimulatedClusterFromProto(message);
}

StatusOr<std::vector<Workload>> FindTestbedGrid(std::string_view name) {
  const std::string path = StrCat("grids/", name, ".json");
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(path));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::WorkloadGrid>(text, path));
  return WorkloadsFromProto(message);
}

}  // namespace moeplan::cli
