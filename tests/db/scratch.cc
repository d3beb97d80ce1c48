#include "tests/db/scratch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace moeplan {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "moeplan_db_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::permissions(path_, fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(path_, ignored);
}

std::string ReadBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

pid_t Fork(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) _exit(body());
  return child;
}

int WaitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void BecomeNobody() {
  constexpr uid_t kNobody = 65534;
  if (geteuid() == 0 && seteuid(kNobody) != 0) _exit(99);
}

Store MustOpen(const fs::path& path, StoreOptions options) {
  StatusOr<Store> store = Store::Open(path, std::move(options));
  if (!store.ok()) {
    std::fprintf(stderr, "cannot open: %s\n", store.status().message().c_str());
    std::abort();
  }
  return *std::move(store);
}

Profile SmallProfile(const std::string& name) {
  Profile profile = {.name = name, .cluster = {.nodes = 2, .gpus_per_node = 4}};
  profile.collectives.push_back(
      {{.group = {.size = 8, .ranks_per_node = 4}}, MakeCostModel(LogLog{{{1024, 1e-5}, {1 << 20, 2e-4}}})});
  profile.kernels.push_back({{.kernel = Kernel::kExpertGemm}, MakeCostModel(AlphaBeta{1e-6, 1e-12})});
  return profile;
}

SampleBatch SmallBatch(const std::string& request_id, double time_s) {
  SampleBatch batch = {.request_id = request_id, .calibration = "monday"};
  batch.samples = {.name = "cluster a", .cluster = {.nodes = 2, .gpus_per_node = 4}};
  batch.samples.samples.push_back({.key = CollectiveKey{.group = {.size = 8, .ranks_per_node = 4}},
                                   .size = 1 << 20,
                                   .times_s = {time_s, 2 * time_s},
                                   .provenance = {{"hostname", request_id}}});
  return batch;
}

}  // namespace moeplan
