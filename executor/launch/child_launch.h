// A launch whose ranks are children of this process, for executor/launch alone.
#pragma once

#include <utility>
#include <vector>

#include "executor/launch/child.h"
#include "executor/launch/launch.h"

namespace moeplan::executor {

class ChildLaunch final : public Launch {
 public:
  // `kept` descriptors (namespaces) live as long as the launch.
  ChildLaunch(int nodes, int ranks_per_node, std::vector<OwnedFd> kept = {})
      : nodes_(nodes), ranks_per_node_(ranks_per_node), kept_(std::move(kept)) {}

  void Add(Child child) { children_.push_back(std::move(child)); }

  int nodes() const override { return nodes_; }
  int ranks_per_node() const override { return ranks_per_node_; }
  int WriteFd(int rank) const override { return children_[rank].write_fd(); }
  int ReadFd(int rank) const override { return children_[rank].read_fd(); }
  std::string EndOf(int rank) override { return children_[rank].End(); }
  int ProcessOf(int rank) const override { return children_[rank].pid(); }

 private:
  int nodes_;
  int ranks_per_node_;
  std::vector<OwnedFd> kept_;
  std::vector<Child> children_;
};

std::vector<std::string> CommandOf(const RankProgram& program, int rank, const std::string& address);

}  // namespace moeplan::executor
