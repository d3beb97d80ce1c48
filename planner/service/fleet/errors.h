// Every error of the fleet, worded once.
#pragma once

#include <string>
#include <string_view>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"

namespace moeplan::service::error {

// Registrations.
Status BadName(std::string_view field, const std::string& found);
Status OutOfRange(std::string_view field, double found, double lowest, double highest);
Status TooMuchHardware(int entries, int most);
Status LongHardware(const std::string& name, size_t most_bytes);
Status OtherVersion(const v1::AgentRegistration& agent, std::string_view planner);
Status NodeIsHeld(const v1::AgentRegistration& found, const v1::AgentRegistration& holder);
Status NameOfAnother(const std::string& name);
Status TooManyNames(const std::string& name, int most);
Status OtherShape(const v1::AgentRegistration& found, const v1::AgentRegistration& earlier);
Status TooManyAgents(int most);

// Connections.
Status SilentAgent(double lost_after_s);
Status TakenOver();
Status NotRegistered();
Status RegisteredTwice();
Status QueueOverflow();
Status MessageTooLarge(size_t found_bytes, size_t most_bytes);
Status ShuttingDown();

// Calibrations.
Status NoDriver();
Status TooManyCalibrations(int most);
Status AgentsMissing(const std::string& missing, double wait_limit_s);
Status ClusterIsBusy(const std::string& cluster);
Status NothingMeasured();
Status NothingCounts(int set_aside);
Status KeepsFailing(int times, const Status& last);
Status NoClusterOf(const std::string& profile_name);
Status StoredMeanwhile(const std::string& profile_name, int drifted_version, int newest_version);

}  // namespace moeplan::service::error
