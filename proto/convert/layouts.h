// Ranked layouts to messages. Pure.
#pragma once

#include "models/layout/layout_answer.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan {

// Every field set; `request` is what was answered.
v1::LayoutResult ToProto(const LayoutAnswer& answer, const LayoutRequest& request);

}  // namespace moeplan
