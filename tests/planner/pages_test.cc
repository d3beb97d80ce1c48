// The dashboard's files over HTTP: who gets them, how they are kept, and what they may do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "planner/service/http/page.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

constexpr http::Page kPages[] = {
    {.path = "/", .content_type = "text/html", .etag = "\"1\"", .plain = "<p>page</p>", .gzip = "zipped page"},
    {.path = "/assets/a.js",
     .content_type = "text/javascript",
     .etag = "\"2\"",
     .immutable = true,
     .plain = "let a",
     .gzip = "zipped a"},
};

class PagesTest : public ServiceTest {
 protected:
  PagesTest() {
    ServerOptions options = Options();
    options.pages = kPages;
    server_ = Started(options);
  }

  httplib::Result Get(const std::string& path, const httplib::Headers& headers = {}) const {
    httplib::Client client("http://" + server_->http_address());
    client.set_decompress(false);
    return client.Get(path, headers);
  }

  std::unique_ptr<Server> server_;
};

TEST_F(PagesTest, WhoAcceptsHtmlGetsTheDashboardAtTheRootAndOthersGetJson) {
  const auto page = Get("/", {{"Accept", "application/xml;q=0.9, text/html"}});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->body, "<p>page</p>");
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html");
  EXPECT_EQ(page->get_header_value("Cache-Control"), "no-cache");
  for (const char* accepts : {"*/*", "application/json", "text/html;q=0"}) {
    EXPECT_EQ(nlohmann::json::parse(Get("/", {{"Accept", accepts}})->body).at("name"), "moeplan") << accepts;
  }
}

TEST_F(PagesTest, APageMayLoadOnlyWhatComesWithIt) {
  const auto page = Get("/assets/a.js");
  ASSERT_TRUE(page);
  const std::string policy = page->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, testing::StartsWith("default-src 'none'; script-src 'self'; style-src 'self'"));
  EXPECT_THAT(policy, testing::Not(testing::HasSubstr("unsafe")));
  EXPECT_THAT(policy, testing::HasSubstr("frame-ancestors 'none'"));
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page->get_header_value_count("Content-Security-Policy"), 1u);
  EXPECT_EQ(page->get_header_value_count("Cache-Control"), 1u);
}

TEST_F(PagesTest, FilesAreCompressedForWhoTakesItAndKeptByName) {
  const auto zipped = Get("/assets/a.js", {{"Accept-Encoding", "br, gzip;q=0.8"}});
  ASSERT_TRUE(zipped);
  EXPECT_EQ(zipped->get_header_value("Content-Encoding"), "gzip");
  EXPECT_THAT(zipped->get_header_value("Cache-Control"), testing::HasSubstr("immutable"));
  EXPECT_EQ(Get("/assets/a.js", {{"Accept-Encoding", "gzip;q=0"}})->body, "let a");
  const auto known = Get("/assets/a.js", {{"If-None-Match", "\"1\", \"2\""}});
  EXPECT_EQ(known->status, 304);
  EXPECT_EQ(known->body, "");
  EXPECT_EQ(Get("/assets/a.js", {{"If-None-Match", "\"1\""}})->status, 200);
}

TEST_F(PagesTest, NothingButItsOwnFilesIsFound) {
  for (const char* path :
       {"/assets/", "/assets/../assets/a.js", "/assets/%2e%2e/a.js", "/assets/b.js", "//", "/index.html"}) {
    EXPECT_EQ(Get(path)->status, 404) << path;
  }
}

}  // namespace
}  // namespace moeplan::service
