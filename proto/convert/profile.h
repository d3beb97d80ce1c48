// Profiles to and from messages.
//
// Reading checks everything that ValidateProfile checks, that an entry has exactly one form that plans and says its
// sizes in the unit of its operation, and the numbers of `fit`. Of an alphaBeta beside another form the other plans.
// The measured range is that of the curve's points. Pure.
#pragma once

#include <vector>

#include "models/cost/profile.h"
#include "models/status.h"
#include "moeplan/v1/profile.pb.h"

namespace moeplan {

StatusOr<Profile> ProfileFromProto(const v1::Profile& message);

v1::Profile ToProto(const Profile& profile);

}  // namespace moeplan
