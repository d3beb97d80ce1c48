// The way of slots that go straight to the shards of their expert and back, over EP&ESP (Parm §III): what S1, S2 and
// the pipeline have in common.
#pragma once

#include "models/schedule/route.h"

namespace moeplan {

class ExpertShardRoute : public Route {
 public:
  ExpertShardRoute(GraphBuilder& build, int pieces) : build_(build), pieces_(pieces) {}

  int pieces() const override { return pieces_; }
  bool experts_wait() const override { return false; }
  BufferId Send(BufferId own) override;
  std::vector<ReturnStep> Return(Pass pass) override;

 protected:
  // Cells of the own slots by expert, and of those that a rank of the EP&ESP group gets.
  std::vector<Extent> SentCells() const;
  std::vector<Extent> ReceivedCells() const;
  virtual BufferId ReceivedRows(const std::string& name) = 0;
  virtual BufferId ReturnedRows(const std::string& name) = 0;

  GraphBuilder& build_;
  const int pieces_;
};

}  // namespace moeplan
