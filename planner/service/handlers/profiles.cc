#include "planner/service/handlers/profiles.h"

#include "planner/service/handlers/page_of.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/profile.h"

namespace moeplan::service {
namespace {

v1::ProfileSummary ToProto(const ProfileVersion& profile) {
  v1::ProfileSummary summary;
  summary.set_name(profile.name);
  summary.set_version(profile.version);
  summary.set_created_at(profile.created_at);
  return summary;
}

}  // namespace

StatusOr<v1::ListProfilesResponse> ListProfiles(const Environment& environment, const v1::ListProfilesRequest& request,
                                                std::stop_token /*cancelled*/) {
  ProfileFilter filter = {.newest = request.newest()};
  if (!request.profile_name().empty()) filter.name = request.profile_name();
  ASSIGN_OR_RETURN(const ProfilePage page, environment.listings().ListProfiles(PageOf(request), filter));
  v1::ListProfilesResponse response;
  for (const ProfileVersion& profile : page.profiles) *response.add_profiles() = ToProto(profile);
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<v1::GetProfileResponse> GetProfile(const Environment& environment, const v1::GetProfileRequest& request,
                                            std::stop_token /*cancelled*/) {
  ASSIGN_OR_RETURN(const Profile profile, environment.store.LoadProfile(SelectionOf(request)));
  v1::GetProfileResponse response;
  *response.mutable_profile() = moeplan::ToProto(profile);
  return response;
}

}  // namespace moeplan::service
