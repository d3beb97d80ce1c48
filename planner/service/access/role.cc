#include "planner/service/access/role.h"

#include <utility>

namespace moeplan::service {
namespace {

constexpr std::pair<Role, std::string_view> kNames[] = {
    {Role::kRead, "read"}, {Role::kPlan, "plan"}, {Role::kReport, "report"}, {Role::kAdmin, "admin"}};

}  // namespace

std::string_view Name(Role role) {
  for (const auto& [known, name] : kNames) {
    if (known == role) return name;
  }
  return "";
}

std::optional<Role> RoleNamed(std::string_view name) {
  for (const auto& [role, known] : kNames) {
    if (known == name) return role;
  }
  return std::nullopt;
}

}  // namespace moeplan::service
