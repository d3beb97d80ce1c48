// The dashboard as files, for the planner to serve.
#pragma once

#include "planner/service/http/page.h"

namespace moeplan::web {

// "/" first; empty in a build without the dashboard. Any thread.
service::http::Pages DashboardPages();

}  // namespace moeplan::web
