#include "web/pages.h"

#include <cstddef>
#include <vector>

// pages_data.cc.
extern const char moeplan_web_pages[];

namespace moeplan::web {
namespace {

// Where pack.mjs put a file.
struct Packed {
  std::string_view path, content_type, etag;
  bool immutable;
  size_t plain, plain_size, gzip, gzip_size;
};

constexpr Packed kPacked[] = {
#include "web_pages.inc"
};

std::vector<service::http::Page> Unpack() {
  std::vector<service::http::Page> pages;
  for (const Packed& file : kPacked) {
    pages.push_back({.path = file.path,
                     .content_type = file.content_type,
                     .etag = file.etag,
                     .immutable = file.immutable,
                     .plain = {moeplan_web_pages + file.plain, file.plain_size},
                     .gzip = {moeplan_web_pages + file.gzip, file.gzip_size}});
  }
  return pages;
}

}  // namespace

service::http::Pages DashboardPages() {
  static const std::vector<service::http::Page> pages = Unpack();
  return pages;
}

}  // namespace moeplan::web
