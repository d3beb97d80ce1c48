#include "models/schedule/carry.h"

#include <vector>

#include "models/workload/codec.h"

namespace moeplan {
namespace {

class Carrying {
 public:
  Carrying(const Knobs& knobs, TaskGraph& graph)
      : knobs_(knobs), graph_(graph), counts_(graph.buffers.size()), encoded_(graph.buffers.size()) {
    for (const Buffer& buffer : graph.buffers) {
      if (buffer.counts != kNoBuffer) counts_[buffer.counts] = true;
    }
  }

  void operator()(Task& task) {
    if (auto* encode = std::get_if<EncodeOp>(&task.op)) {
      encode->codec = CodecOf(encode->way);
      encoded_[encode->out] = true;
      graph_.buffers[encode->out].row_bytes =
          EncodedRowBytes(encode->codec, graph_.layer.model_dim, graph_.layer.bytes_per_element);
    } else if (auto* decode = std::get_if<DecodeOp>(&task.op)) {
      decode->codec = CodecOf(decode->way);
    } else if (auto* op = std::get_if<CollectiveOp>(&task.op)) {
      if (op->collective != Collective::kAllToAll || counts_[op->in]) return;
      op->algorithm = knobs_.all_to_all;
      if (!encoded_[op->in]) return;
      graph_.buffers[op->out].row_bytes = graph_.buffers[op->in].row_bytes;
      task.size = AllToAllBytes(graph_.buffers[op->in], graph_.buffers[op->out]);
    }
  }

 private:
  Codec CodecOf(Way way) const { return way == Way::kThere ? knobs_.dispatch_codec : knobs_.combine_codec; }

  const Knobs& knobs_;
  TaskGraph& graph_;
  std::vector<bool> counts_, encoded_;  // By buffer.
};

bool Encodes(Codec codec) { return codec != Codec::kNone; }

}  // namespace

bool DifferInCarriageAlone(const Knobs& a, const Knobs& b) {
  Knobs as_b = a;
  as_b.all_to_all = b.all_to_all;
  as_b.communication_ctas = b.communication_ctas;
  if (Encodes(a.dispatch_codec) && Encodes(b.dispatch_codec)) as_b.dispatch_codec = b.dispatch_codec;
  if (Encodes(a.combine_codec) && Encodes(b.combine_codec)) as_b.combine_codec = b.combine_codec;
  return as_b == b;
}

void Carry(const Knobs& knobs, TaskGraph& graph) {
  Carrying carry(knobs, graph);
  for (Task& task : graph.tasks) carry(task);
  graph.communication_ctas = knobs.communication_ctas;
}

}  // namespace moeplan
