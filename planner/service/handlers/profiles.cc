#include "planner/service/handlers/profiles.h"

#include <utility>

#include "planner/service/errors.h"
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

PageRequest FirstPageOf(const v1::ListProfilesRequest& request) {
  PageRequest page = {.token = request.page_token()};
  if (request.page_size() != 0) page.size = request.page_size();
  return page;
}

}  // namespace

StatusOr<v1::ListProfilesResponse> ListProfiles(const Environment& environment, const v1::ListProfilesRequest& request,
                                                std::stop_token cancelled) {
  v1::ListProfilesResponse response;
  PageRequest next = FirstPageOf(request);
  // The store pages over all names, so pages without one of this name are passed over.
  do {
    if (cancelled.stop_requested()) return error::CallerLeft();
    ASSIGN_OR_RETURN(ProfilePage page, environment.store.ListProfiles(next));
    for (const ProfileVersion& profile : page.profiles) {
      const bool wanted = request.profile_name().empty() || profile.name == request.profile_name();
      if (wanted) *response.add_profiles() = ToProto(profile);
    }
    next.token = std::move(page.next_token);
  } while (response.profiles().empty() && !next.token.empty());
  response.set_next_page_token(next.token);
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
