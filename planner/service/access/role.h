// What a caller may do. Each role may what the ones before it may.
#pragma once

#include <optional>
#include <string_view>

namespace moeplan::service {

enum class Role {
  kRead,    // See profiles, samples, agents and metrics.
  kPlan,    // Ask for plans.
  kReport,  // Bring samples and measured runs; be an agent.
  kAdmin,   // Store profiles, start calibrations.
};

// "read", "plan", "report", "admin".
std::string_view Name(Role role);
std::optional<Role> RoleNamed(std::string_view name);

}  // namespace moeplan::service
