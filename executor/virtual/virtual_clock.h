// The virtual-clock backend: all ranks of a job in one thread, on one discrete-event clock.
//
// Data is really computed and moved; only time is made up. Streams are HostStreams, so the kernels of executor/host run
// on them unchanged, and the result is the same bits as on any other host backend. The same calls give the same
// timeline, always.
//
// Time. The first thing queued after a Device::Label lasts what `task_time` says for the label, further work under the
// same label lasts 0, and so does work without a label. Work takes effect when it ends. Counts of irregular rows are
// read when the stream gets there. A collective starts when every member's stream has reached it, lasts the longest of
// its members' times, moves its data at the end, and lets all members go on at that instant. AllToAllAllGather is that
// over its own group, and then waits for the members of `gather` without lasting longer. There are no deadlines.
//
// Driving. Nothing happens until somebody plays the clock: Device::Synchronize plays all ranks until its own streams
// are idle, Run until all streams of all ranks are. So queue the work of every rank before synchronizing with any: when
// nothing is left to happen and streams still wait, that is a deadlock, which fails every device with a waiting stream,
// with an error that names rank, stream, task and what each waits for.
//
// Communicator::Split cannot block in one thread. It returns at once, and the new communicator accepts work, but its
// rank() and size() may be asked only when all ranks of the parent have made the same call.
//
// Errors. Work that fails stops its device, and with it, at once, each group operation that the device is part of: the
// other members fail with kPeerLost, and so on through the groups of those. Members that call different operations, or
// disagree on sizes, fail with kInternal. Communicator::Abort also ends the communicators split from it, and is called
// from the driving thread like everything here.
//
// The clock owns devices and communicators and must outlive whatever they made. Work still queued when its stream is
// destroyed never runs: it fails the device.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "executor/communicator.h"
#include "executor/device.h"

namespace moeplan::executor {

// Seconds, at least 0, that `task` takes on `rank`; asked once for each task, when it starts.
using TaskTime = std::function<double(int rank, std::string_view task)>;

class VirtualClock {
 public:
  static std::unique_ptr<VirtualClock> Make(int ranks, TaskTime task_time);
  virtual ~VirtualClock() = default;

  virtual Device& device(int rank) = 0;
  // All ranks of the job.
  virtual Communicator& world(int rank) = 0;

  // Plays until every stream of every rank is idle; the first error of any device.
  virtual Status Run() = 0;
  // Seconds since the clock was made; what Device::TimeS counts, too.
  virtual double now_s() const = 0;
};

}  // namespace moeplan::executor
