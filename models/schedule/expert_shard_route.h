// The way of slots that go straight to the shards of their expert and back, over EP&ESP (Parm §III): what S1, S2 and
// the pipeline have in common.
#pragma once

#include "models/schedule/knobs.h"
#include "models/schedule/route.h"

namespace moeplan {

class ExpertShardRoute : public Route {
 public:
  ExpertShardRoute(GraphBuilder& build, const Knobs& knobs)
      : build_(build),
        pieces_(knobs.partition_degree),
        dispatch_codec_(knobs.dispatch_codec),
        combine_codec_(knobs.combine_codec) {}

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
  const Codec dispatch_codec_, combine_codec_;
};

}  // namespace moeplan
