#include "models/schedule/carry.h"

#include <vector>

#include "models/own_names.h"
#include "models/workload/codec.h"

namespace moeplan {
namespace {

// Rows that are encoded become as long as the codecs make them, and what sends them as large.
void Recode(Codec dispatch, Codec combine, TaskGraph& graph) {
  const auto codec_of = [&](Way way) { return way == Way::kThere ? dispatch : combine; };
  std::vector<bool> encoded(graph.buffers.size());
  for (Task& task : graph.tasks) {
    if (auto* encode = std::get_if<EncodeOp>(&task.op)) {
      encode->codec = codec_of(encode->way);
      encoded[encode->out] = true;
      graph.buffers[encode->out].row_bytes =
          EncodedRowBytes(encode->codec, graph.layer.model_dim, graph.layer.bytes_per_element);
    } else if (auto* decode = std::get_if<DecodeOp>(&task.op)) {
      decode->codec = codec_of(decode->way);
    } else if (auto* op = std::get_if<CollectiveOp>(&task.op); op != nullptr && encoded[op->in]) {
      graph.buffers[op->out].row_bytes = graph.buffers[op->in].row_bytes;
      task.size = AllToAllBytes(graph.buffers[op->in], graph.buffers[op->out]);
    }
  }
}

bool Encodes(Codec codec) { return codec != Codec::kNone; }

}  // namespace

bool DifferInCarriageAlone(const Knobs& a, const Knobs& b) {
  Knobs as_b = a;
  as_b.all_to_all = b.all_to_all;
  as_b.communication_ctas = b.communication_ctas;
  const bool built_in = OwnNames<Family>::IndexOf(a.family) < 0;
  if (built_in && Encodes(a.dispatch_codec) && Encodes(b.dispatch_codec)) as_b.dispatch_codec = b.dispatch_codec;
  if (built_in && Encodes(a.combine_codec) && Encodes(b.combine_codec)) as_b.combine_codec = b.combine_codec;
  return as_b == b;
}

void ExchangeBy(AllToAllAlgorithm algorithm, int ctas, TaskGraph& graph) {
  std::vector<bool> are_counts(graph.buffers.size());
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.counts != kNoBuffer) are_counts[buffer.counts] = true;
  }
  for (Task& task : graph.tasks) {
    auto* op = std::get_if<CollectiveOp>(&task.op);
    if (op != nullptr && op->collective == Collective::kAllToAll && !are_counts[op->in]) op->algorithm = algorithm;
  }
  graph.communication_ctas = ctas;
}

void Carry(const Knobs& knobs, TaskGraph& graph) {
  Recode(knobs.dispatch_codec, knobs.combine_codec, graph);
  ExchangeBy(knobs.all_to_all, knobs.communication_ctas, graph);
}

}  // namespace moeplan
