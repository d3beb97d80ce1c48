// A hostfile of Open MPI's, and that its hosts, written down, are the same hosts.
#include "executor/launch/launch.h"
#include "models/text.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  using executor::Host;
  using executor::ParseHostfile;
  const StatusOr<std::vector<Host>> hosts = ParseHostfile(std::string(TextOf(data, size)), "hosts");
  if (!hosts.ok()) {
    CheckRefusal(hosts.status());
    return 0;
  }
  MOEPLAN_CHECK(!hosts->empty());
  std::string written;
  for (const Host& host : *hosts) {
    // It becomes an argument of ssh.
    MOEPLAN_CHECK(!host.name.empty() && host.name.front() != '-');
    MOEPLAN_CHECK(host.slots >= 1 && host.slots == hosts->front().slots);
    written += StrCat(host.name, " slots=", host.slots, "\n");
  }
  const StatusOr<std::vector<Host>> again = ParseHostfile(written, "written");
  MOEPLAN_CHECK(again.ok() && again->size() == hosts->size());
  for (std::size_t i = 0; i < hosts->size(); ++i) MOEPLAN_CHECK((*again)[i].name == (*hosts)[i].name);
  return 0;
}
