// What a rank of a job runs on, and how a process becomes one: the seam between who drives ranks (agent/) and the
// backends.
//
// Joining takes two steps, because everyone must know everyone's address: Join gives one to hand to all ranks by
// whatever means, Connect takes those of all of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/communicator.h"
#include "executor/device.h"
#include "executor/runtime/rank_runtime.h"
#include "models/cost/operation.h"

namespace moeplan::executor {

// A connected rank. After an error of the network it is spent: everything queued answers the first error. One thread,
// but for what Device and Communicator say.
class Rank {
 public:
  virtual ~Rank() = default;

  virtual Device& device() = 0;
  // All ranks of the job.
  virtual Communicator& world() = 0;
  virtual RankRuntime& runtime() = 0;
  // Whether kernels compute. Else time alone passes: no value that memory holds means anything, kernels take weights
  // whose vectors are empty, and of routings the counts alone are right.
  virtual bool computes() const { return true; }
  // Whether the same work takes the same time, always: then one run tells as much as many.
  virtual bool repeats_times() const { return false; }

  // What is known now that it is connected, beside RankBackend::FactsAt.
  virtual std::map<std::string, std::string> facts() const { return {}; }

  // Stops the device with `why`, as if work had failed; peers that wait for this rank learn of it.
  virtual void Fail(const Status& why) = 0;
  // Queues one kernel of the rest of a step (models/cost/operation.h) on the stream that it is given. Null where such
  // kernels are not this rank's: a job runs those of its own libraries (agent/libraries). A simulated GPU has them.
  virtual std::function<void(Stream&)> StepKernel(const KernelKey& /*key*/, double /*size*/) { return nullptr; }

  // Queues work that computes for so long alone. Null where nothing but real work takes time.
  virtual std::function<void(Stream&)> TimedKernel(double /*time_s*/) { return nullptr; }

  // Before something is timed: leaves nothing of earlier work in caches, as inside a layer a kernel finds its weights
  // and rows in memory. Blocks.
  virtual Status CoolCaches() = 0;
  // Before a series of timings: works until the clocks are those of long work. Blocks, a second at most.
  virtual Status SettleClocks() { return OkStatus(); }
};

struct RankPlace {
  int rank = 0, ranks = 1, ranks_per_node = 1;
  std::string host_address;  // Of this machine, where the other ranks can reach it.
  double deadline_s = 30;    // Of each collective.
  // Where there are cards, the rank has the one that the calling thread has chosen, as jobs do. Else the ranks of a
  // node take its cards in turn.
  bool takes_current_card = false;
};

class RankJoin {
 public:
  virtual ~RankJoin() = default;
  // Printable, without spaces.
  virtual const std::string& address() const = 0;
  // addresses[i] is rank i's. Collective; blocks. The join must outlive the rank, and can make no other.
  virtual StatusOr<std::unique_ptr<Rank>> Connect(const std::vector<std::string>& addresses) = 0;
};

class RankBackend {
 public:
  virtual ~RankBackend() = default;
  // Such as "host".
  virtual const char* name() const = 0;
  // What samples taken at this place should say of it: processor or card, driver, libraries.
  virtual std::map<std::string, std::string> FactsAt(const RankPlace& place) const = 0;
  // Of the rank's device; 0: not known.
  virtual double DeviceMemoryBytesAt(const RankPlace& /*place*/) const { return 0; }
  // The most that a rank can send one way: over the links inside its node, and over its share of the node's network
  // cards. 0: not known for sure.
  struct LinkRates {
    double node_link_bytes_per_s = 0, network_bytes_per_s = 0;
  };
  virtual LinkRates LinkRatesAt(const RankPlace& /*place*/) const { return {}; }
  // The device at this place, as PyTorch names it.
  virtual std::string LibraryDeviceAt(const RankPlace& /*place*/) const { return "cpu"; }
  virtual StatusOr<std::unique_ptr<RankJoin>> Join(const RankPlace& place) const = 0;
};

}  // namespace moeplan::executor
