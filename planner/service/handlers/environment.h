// What the handlers work with. Borrowed; whoever calls a handler owns it and keeps it alive.
//
// A handler is one RPC without its transport: it converts, calls and converts. Any thread may call any handler.
#pragma once

#include "db/store.h"
#include "planner/service/handlers/puts.h"

namespace moeplan::service {

class AgentHub;
class Calibrations;

struct Environment {
  Store& store;
  Puts& puts;
  AgentHub* agents = nullptr;            // Null: there is no fleet.
  Calibrations* calibrations = nullptr;  // Likewise.
};

}  // namespace moeplan::service
