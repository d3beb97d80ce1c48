#include "web/pages.h"

namespace moeplan::web {

service::http::Pages DashboardPages() { return {}; }

}  // namespace moeplan::web
