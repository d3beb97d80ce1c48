// Carries an abort from one rank process to all others of its job, with its reason, beside the connections that data
// takes: those may be full, and close one by one when something fails.
//
// Groups are known by a name, alike on all ranks; an abort of a group is one of all groups whose names begin with its
// name. The first abort of a group stays; what was aborted before a rank came to know the group is kept for it.
// Any thread may call, but Connect comes first and once. A thread of its own listens.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::executor {

class AbortLine {
 public:
  // Listens on an address of this machine.
  static StatusOr<std::unique_ptr<AbortLine>> Listen(int rank, int size, const std::string& host_address);
  virtual ~AbortLine() = default;

  // Printable, without spaces; what the other ranks' Connect takes.
  virtual const std::string& address() const = 0;
  virtual Status Connect(const std::vector<std::string>& addresses, std::chrono::milliseconds timeout) = 0;

  // Called once at most, from any thread, when the group is or was aborted; must not call back. Until Leave returns.
  using OnAbort = std::function<void(const Status& why)>;
  virtual void Join(const std::string& group, OnAbort on_abort) = 0;
  virtual void Leave(const std::string& group) = 0;

  // Here and, as soon as they listen, on all other ranks.
  virtual void Abort(const std::string& group, const Status& why) = 0;

  // Whether `group` was aborted: waits until that is so, or until `peer` can have nothing more to say, but no longer
  // than `timeout`. For who finds a connection closed: the reason may be on its way.
  virtual Status AwaitNews(const std::string& group, int peer, std::chrono::milliseconds timeout) = 0;
};

}  // namespace moeplan::executor
