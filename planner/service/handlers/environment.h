// What the handlers work with. Borrowed; whoever calls a handler owns it and keeps it alive.
//
// A handler is one RPC without its transport: it converts, calls and converts. Any thread may call any handler.
#pragma once

#include <functional>
#include <string>

#include "db/store.h"
#include "planner/service/puts.h"
#include "planner/service/sample_writer.h"

namespace moeplan::v1 {
class ReproducedSteps;
}  // namespace moeplan::v1

namespace moeplan::service {

class AgentHub;
class Calibrations;
class DriftDesk;
class OutlierMemory;
class PlanLog;

struct Environment {
  Store& store;
  Puts& puts;
  SampleWriter& sample_writer;  // Of the same file.
  // Whether that caller may bring samples of the agent of that name (provenance "agent"). Default: all may. Any thread.
  std::function<bool(const std::string& agent, const std::string& caller)> may_name_agent = nullptr;
  std::string caller = {};               // Who calls (access/caller.h); empty: nobody is told from anybody.
  AgentHub* agents = nullptr;            // Null: there is no fleet.
  Calibrations* calibrations = nullptr;  // Likewise.
  DriftDesk* drift = nullptr;            // Likewise.
  PlanLog* plan_log = nullptr;           // Null: the store may only be read.
  OutlierMemory* outliers = nullptr;     // Null: curves' samples are screened each time.
  const v1::ReproducedSteps* measured_steps = nullptr;  // Null: it was given none.
  const Store* listing_store = nullptr;                 // Of the same file, only read; null: there is none.

  // For what a dashboard asks, which may read many rows: whoever wants a profile does not wait for it.
  const Store& listings() const { return listing_store != nullptr ? *listing_store : store; }
};

}  // namespace moeplan::service
