#include "executor/host/host_rank.h"

#include <unistd.h>

#include <fstream>

#include "executor/host/gemm.h"
#include "executor/host/gloo_mesh.h"
#include "executor/host/host_kernels.h"
#include "executor/host/mesh_communicator.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

class HostJoin final : public RankJoin {
 public:
  HostJoin(std::unique_ptr<GlooJoin> join, double deadline_s) : join_(std::move(join)), deadline_s_(deadline_s) {}

  const std::string& address() const override { return join_->address(); }
  StatusOr<std::unique_ptr<Rank>> Connect(const std::vector<std::string>& addresses) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Mesh> mesh, std::move(*join_).Connect(addresses));
    return std::make_unique<HostRank>(std::move(mesh), deadline_s_);
  }

 private:
  const std::unique_ptr<GlooJoin> join_;
  const double deadline_s_;
};

class HostBackendOfProcesses final : public RankBackend {
 public:
  const char* name() const override { return "host"; }

  std::map<std::string, std::string> FactsAt(const RankPlace& /*place*/) const override {
    std::map<std::string, std::string> facts;
    std::ifstream processors("/proc/cpuinfo");
    for (std::string line; std::getline(processors, line);) {
      if (!line.starts_with("model name")) continue;
      facts["processor"] = line.substr(line.find(':') + 2);
      break;
    }
    facts["processors"] = StrCat(sysconf(_SC_NPROCESSORS_ONLN));
    return facts;
  }

  StatusOr<std::unique_ptr<RankJoin>> Join(const RankPlace& place) const override {
    RETURN_IF_ERROR(LoadGemm());  // Before others wait for this rank.
    ASSIGN_OR_RETURN(std::unique_ptr<GlooJoin> join, StartGlooJoin(place.rank, place.ranks, place.host_address));
    return std::make_unique<HostJoin>(std::move(join), place.deadline_s);
  }
};

}  // namespace

HostRank::HostRank(std::unique_ptr<Mesh> mesh, double deadline_s)
    : world_(MakeMeshCommunicator(std::move(mesh), deadline_s)),
      device_(MakeHostDevice()),
      runtime_(*device_, *world_, MakeHostKernels) {
  device_->OnFailure(
      [world = world_.get()](const Status& why) { world->Abort(why.Within(StrCat("on rank ", world->rank()))); });
}

Status HostRank::CoolCaches() {
  constexpr size_t kSweptBytes = size_t{4} << 20;  // More than a core has to itself.
  swept_.resize(kSweptBytes);
  for (size_t i = 0; i < kSweptBytes; i += 64) swept_[i] = static_cast<char>(swept_[i] + 1);
  return OkStatus();
}

const RankBackend& HostBackend() {
  static const HostBackendOfProcesses backend;
  return backend;
}

}  // namespace moeplan::executor
