// Stored samples to messages. Pure.
#pragma once

#include "models/cost/samples.h"
#include "moeplan/v1/profile_service.pb.h"

namespace moeplan {

v1::StoredSample ToProto(const StoredSample& stored);

}  // namespace moeplan
