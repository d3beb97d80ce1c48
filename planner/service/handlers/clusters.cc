#include "planner/service/handlers/clusters.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/cost/operation.h"
#include "models/fit/statistics.h"
#include "planner/service/handlers/page_of.h"
#include "proto/convert/cluster.h"

namespace moeplan::service {
namespace {

// What is not finite cannot be said.
void SetErrors(const std::vector<CostErrors>& errors, v1::ClusterOverview& message) {
  if (errors.empty()) return;
  std::vector<double> medians;
  for (const CostErrors& one : errors) medians.push_back(one.relative_error_p50);
  const double p50 = Median(std::move(medians));
  if (std::isfinite(p50)) message.set_relative_error_p50(p50);
  const CostErrors& worst = *std::ranges::max_element(errors, {}, &CostErrors::relative_error_p95);
  message.set_worst_cost(Describe(worst.key));
  if (std::isfinite(worst.relative_error_p95)) message.set_worst_relative_error_p95(worst.relative_error_p95);
}

v1::ClusterOverview ToProto(const ProfileOverview& overview) {
  v1::ClusterOverview message;
  message.set_profile_name(overview.newest.name);
  message.set_profile_version(overview.newest.version);
  message.set_created_at(overview.newest.created_at);
  message.set_versions(overview.versions);
  *message.mutable_cluster() = moeplan::ToProto(overview.cluster);
  message.set_collectives(overview.collectives);
  message.set_kernels(overview.kernels);
  message.set_samples(overview.samples);
  message.set_rejected_samples(overview.rejected_samples);
  message.set_last_sample_at(overview.last_sample_at);
  SetErrors(overview.errors, message);
  return message;
}

}  // namespace

StatusOr<v1::ListClustersResponse> ListClusters(const Environment& environment, const v1::ListClustersRequest& request,
                                                std::stop_token /*cancelled*/) {
  ASSIGN_OR_RETURN(const OverviewPage page, environment.listings().ListOverviews(PageOf(request)));
  v1::ListClustersResponse response;
  for (const ProfileOverview& overview : page.profiles) *response.add_clusters() = ToProto(overview);
  response.set_next_page_token(page.next_token);
  return response;
}

}  // namespace moeplan::service
