// What /metrics shows, against the list that the dashboard and the alerts are held to.
#include "planner/service/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>

#include "models/text.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using testing::HasSubstr;

struct Listed {
  std::string type, labels;
};

// deploy/monitoring/metrics.txt: NAME TYPE LABELS HELP.
std::map<std::string, Listed> ReadList() {
  std::map<std::string, Listed> list;
  std::ifstream file(MOEPLAN_METRICS_LIST);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name;
    Listed listed;
    words >> name >> listed.type >> listed.labels;
    list[name] = listed;
  }
  return list;
}

class MetricsTest : public ServiceTest {
 protected:
  static std::string PageOf(const Server& server) {
    const auto page = httplib::Client("http://" + server.http_address()).Get("/metrics");
    return page ? page->body : "no answer";
  }
};

TEST_F(MetricsTest, ThePageAndTheListHaveTheSameMetrics) {
  const std::map<std::string, Listed> list = ReadList();
  ASSERT_GT(list.size(), 15u);
  const auto server = Started();
  const auto client = ClientOf(*server);
  ASSERT_TRUE(client->PutSamples(GateSamples("a", 1e-3)).ok());
  const std::string page = PageOf(*server);
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    std::istringstream words(line.substr(7));
    std::string name, type;
    words >> name >> type;
    const auto listed = list.find(name);
    ASSERT_NE(listed, list.end()) << name << " is not in the list";
    EXPECT_EQ(type, listed->second.type) << name;
  }
  for (const auto& [name, listed] : list) {
    // A family with labels shows once something happened to one of them.
    if (listed.labels != "-") continue;
    EXPECT_THAT(page, HasSubstr(StrCat("# TYPE ", name, " "))) << "listed and not shown";
  }
}

TEST_F(MetricsTest, CallsPlansAndSamplesAreCounted) {
  // By a planner before: one that comes to know of a new profile, a moment later, forgets its answers.
  {
    const auto before = Started();
    ASSERT_TRUE(ClientOf(*before)->PutProfile(ExamplePutProfile("a")).ok());
  }
  const auto server = Started();
  const auto client = ClientOf(*server);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->Plan(ExamplePlanRequest()).ok());
  ASSERT_TRUE(client->PutSamples(GateSamples("b", 1e-3)).ok());
  v1::PlanRequest wrong;
  EXPECT_FALSE(client->Plan(wrong).ok());
  // The answer is given before what is counted on a worker.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::string page;
  do {
    page = PageOf(*server);
  } while (page.find("moeplan_samples_stored_total 2") == std::string::npos &&
           std::chrono::steady_clock::now() < until);
  for (const char* line :
       {"moeplan_requests_total{code=\"OK\",method=\"moeplan.v1.PlannerService/Plan\",transport=\"grpc\"} 3",
        "moeplan_requests_total{code=\"INVALID_ARGUMENT\",method=\"moeplan.v1.PlannerService/"
        "Plan\",transport=\"grpc\"} 1",
        "moeplan_request_duration_seconds_count{method=\"moeplan.v1.PlannerService/Plan\"} 4",
        "moeplan_plan_cache_hits_total 2", "moeplan_plan_cache_misses_total 2", "moeplan_samples_stored_total 2",
        "moeplan_samples_rejected_total 0", "moeplan_agents{state=\"attached\"} 0"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

}  // namespace
}  // namespace moeplan::service
