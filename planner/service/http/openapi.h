// The methods as an OpenAPI 3.0 document, made of the .proto files and their comments.
#pragma once

#include <string>

namespace moeplan::service::http {

// As JSON. Any thread.
const std::string& OpenApi();

}  // namespace moeplan::service::http
