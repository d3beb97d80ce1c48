#include "executor/host/host_rank.h"

#include "executor/host/host_kernels.h"
#include "executor/host/mesh_communicator.h"
#include "models/text.h"

namespace moeplan {

HostRank::HostRank(std::unique_ptr<Mesh> mesh, double deadline_s)
    : world_(MakeMeshCommunicator(std::move(mesh), deadline_s)),
      device_(MakeHostDevice()),
      runtime_(*device_, *world_, MakeHostKernels) {
  device_->OnFailure(
      [world = world_.get()](const Status& why) { world->Abort(why.Within(StrCat("on rank ", world->rank()))); });
}

}  // namespace moeplan
