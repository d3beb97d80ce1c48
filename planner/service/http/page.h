// A file that GET answers, as it stands in the program.
#pragma once

#include <span>
#include <string_view>

namespace moeplan::service::http {

// All views last as long as the program.
struct Page {
  std::string_view path;  // "/" or "/assets/NAME".
  std::string_view content_type;
  std::string_view etag;   // With its quotes.
  bool immutable = false;  // The name changes with the contents.
  std::string_view plain;
  std::string_view gzip;  // The same, compressed.
};

using Pages = std::span<const Page>;

}  // namespace moeplan::service::http
