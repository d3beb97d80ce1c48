#include "planner/service/handlers/links.h"

#include "models/links/fitted_links.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/cluster.h"

namespace moeplan::service {
namespace {

v1::FittedLink ToProto(const FittedLink& link) {
  v1::FittedLink message;
  message.set_stream(link.link == LinkClass::kIntraNode ? v1::Stream::INTRA_NODE : v1::Stream::INTER_NODE);
  message.set_alpha_s(link.alpha_s);
  if (link.bytes_per_s) message.set_bytes_per_s(*link.bytes_per_s);
  for (const CollectiveKey& key : link.crossed_by) message.add_costs(Describe(key));
  return message;
}

}  // namespace

StatusOr<v1::GetLinksResponse> GetLinks(const Environment& environment, const v1::GetLinksRequest& request,
                                        std::stop_token /*cancelled*/) {
  ASSIGN_OR_RETURN(const Profile profile, environment.listings().LoadProfile(SelectionOf(request)));
  const FittedLinks fitted = FitLinks(profile);
  v1::GetLinksResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  *response.mutable_cluster() = moeplan::ToProto(profile.cluster);
  for (const FittedLink& link : fitted.links) *response.add_links() = ToProto(link);
  if (fitted.relative_error_p50) response.set_relative_error_p50(*fitted.relative_error_p50);
  return response;
}

}  // namespace moeplan::service
