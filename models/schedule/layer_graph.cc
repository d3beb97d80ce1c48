#include "models/schedule/route.h"

namespace moeplan {
namespace {

// Walks the route there and back.
class Walk {
 public:
  // `source` fills the own slots of a piece. `expert` computes from the rows of `in` those of `out`, for the piece or,
  // when experts wait, for all. `meanwhile` is work for the time that the first pieces are on their way, `arrived` what
  // may need them there, `afterwards` for the time that the last ones are on their way back.
  struct Work {
    std::function<void(BufferId own)> source;
    std::function<void(int piece, BufferId in, BufferId out)> expert;
    std::function<void()> meanwhile = [] {};
    std::function<void()> arrived = [] {};
    std::function<void()> afterwards = [] {};
  };

  Walk(GraphBuilder& build, Route& route, Pass pass) : build_(build), route_(route), pass_(pass) {}

  // The slots of all pieces, back home.
  BufferId Go(const Work& work) {
    std::vector<BufferId> rows;
    for (int piece = 0; piece < route_.pieces(); ++piece) {
      Enter(piece);
      const BufferId own = route_.OwnSlots("slots");
      work.source(own);
      rows.push_back(route_.Send(own));
    }
    Leave();
    work.meanwhile();
    for (int piece = 0; piece < route_.pieces(); ++piece) {
      Enter(piece);
      rows[piece] = route_.Arrive(rows[piece]);
    }
    Leave();
    work.arrived();
    const BufferId home = route_.HomeSlots("home_slots");
    if (route_.experts_wait()) {
      ComputeAll(work, rows.back(), home);
    } else {
      for (int piece = 0; piece < route_.pieces(); ++piece) ComputePiece(work, piece, rows[piece], home);
    }
    Leave();
    work.afterwards();
    for (int piece = 0; piece < route_.pieces(); ++piece) Return(piece, /*round=*/1);
    Leave();
    return home;
  }

 private:
  // A piece on its way back: the steps left, what the last one gave, and where it ends.
  struct Returning {
    std::vector<ReturnStep> steps;
    size_t next = 0;
    BufferId at = kNoBuffer, end = kNoBuffer;
  };

  void Enter(int piece) { build_.SetChunk(piece, route_.pieces() > 1); }
  void Leave() { build_.SetChunk(0, /*named=*/false); }

  void ComputePiece(const Work& work, int piece, BufferId in, BufferId home) {
    Enter(piece);
    Returning& returning =
        returning_.emplace_back(Returning{.steps = route_.Return(pass_), .at = kNoBuffer, .end = route_.PieceOf(home)});
    returning.at = returning.steps.empty() ? returning.end : route_.ExpertRows("expert_rows");
    work.expert(piece, in, returning.at);
    Return(piece, /*round=*/0);
  }

  void ComputeAll(const Work& work, BufferId in, BufferId home) {
    Enter(0);
    const bool stays = route_.Return(pass_).empty();
    Leave();
    const BufferId all = stays ? home : route_.ExpertRows("expert_rows");
    work.expert(0, in, all);
    for (int piece = 0; piece < route_.pieces(); ++piece) {
      Enter(piece);
      returning_.push_back({.steps = route_.Return(pass_),
                            .at = stays ? all : route_.PieceOf(all),
                            .end = stays ? home : route_.PieceOf(home)});
      Return(piece, /*round=*/0);
    }
  }

  void Return(int piece, int round) {
    Enter(piece);
    Returning& returning = returning_[piece];
    for (; returning.next < returning.steps.size() && returning.steps[returning.next].round == round;
         ++returning.next) {
      const ReturnStep& step = returning.steps[returning.next];
      const bool last = returning.next + 1 == returning.steps.size();
      const BufferId out = last ? returning.end : step.make_room("returned_rows");
      step.add(returning.at, out);
      returning.at = out;
    }
  }

  GraphBuilder& build_;
  Route& route_;
  Pass pass_;
  std::vector<Returning> returning_;  // By piece.
};

class LayerGraph {
 public:
  LayerGraph(GraphBuilder& build, Route& route) : build_(build), route_(route), layout_(build.layout()) {}

  void Forward() {
    input_ = build_.Input();
    tokens_ = Dispatched(input_, "gather_input");
    gated_ = route_.Gate(tokens_);
    home_ = Walk(build_, route_, Pass::kForward)
                .Go({.source = [&](BufferId own) { build_.Dispatch(tokens_, gated_.sent(), own); },
                     .expert = [&](int, BufferId in, BufferId out) { expert_.push_back(build_.Expert(in, out)); },
                     .meanwhile = [&] { build_.SharedExpert(); }});
    const BufferId combined = OwnRows("combined");
    build_.Combine(home_, gated_.sent(), combined);
    build_.SetOutput(Whole(combined, "gather_output", "output"));
  }

  void Backward() {
    build_.StartBackward();
    const BufferId gradient = build_.OutputGradient();
    const BufferId own_gradient = slices() ? OwnSlice(gradient) : gradient;
    const BufferId tokens_gradient = gathers() ? Dispatched(gradient, "gather_output") : own_gradient;
    BufferId routing_gradient = kNoBuffer;
    GraphBuilder::SharedGradients shared;
    const auto meanwhile = [&] { shared = build_.SharedInputGradient(gradient); };
    const auto arrived = [&] {
      if (!build_.layer().router.weighs_input) {
        routing_gradient = route_.RoutingGradient(build_, own_gradient, home_, gated_);
      }
    };
    const auto afterwards = [&] {
      for (const auto& add : weight_gradients_) add();
      if (shared.in_gradient != kNoBuffer) build_.ExpertWeightGradient(shared.weights);
    };
    const BufferId home =
        Walk(build_, route_, Pass::kBackward)
            .Go({.source = [&](BufferId own) { build_.CombineGradient(tokens_gradient, gated_.sent(), own); },
                 .expert = [&](int piece, BufferId in, BufferId out) { ExpertGradients(piece, in, out); },
                 .meanwhile = meanwhile,
                 .arrived = arrived,
                 .afterwards = afterwards});
    const BufferId own_rows = OwnRowsFrom(home);
    const BufferId shared_rows =
        slices() && shared.in_gradient != kNoBuffer ? OwnSlice(shared.in_gradient) : shared.in_gradient;
    const BufferId input_gradient = OwnRows("input_gradient_rows");
    const BufferId gate_gradient = build_.GateGradient(gathers() ? input_ : tokens_, gated_, routing_gradient, own_rows,
                                                       shared_rows, input_gradient);
    build_.SetGradients(Whole(input_gradient, "gather_input", "input_gradient"), SumOfSlices(gate_gradient));
  }

 private:
  bool slices() const { return route_.token_share() == TokenShare::kSlice; }
  bool gathers() const { return route_.token_share() == TokenShare::kBatches; }
  int slice_tokens() const { return (build_.tokens() + layout_.tensor_parallel - 1) / layout_.tensor_parallel; }

  // The rows of the tokens that this rank gates and dispatches, from the batch's.
  BufferId Dispatched(BufferId batch, const std::string& gather) {
    if (slices()) return OwnSlice(batch);
    if (gathers()) return build_.AllGather(gather, Group::kShard, batch, RowsOfBatches(gather + "_rows"));
    return batch;
  }
  BufferId OwnSlice(BufferId batch) { return build_.SliceOf(batch, slice_tokens()); }
  BufferId RowsOfBatches(const std::string& name) {
    return build_.TokenBuffer(name, {{Axis::kBlock, layout_.expert_sharding_parallel}}, build_.tokens());
  }

  // Room for the rows that this rank combines, and from there to those of the batch.
  BufferId OwnRows(const std::string& name) {
    return slices() ? build_.SliceBuffer(name, slice_tokens()) : build_.TokenBuffer(name, {}, build_.tokens());
  }
  BufferId Whole(BufferId own, const std::string& gather, const std::string& name) {
    if (!slices()) return own;
    return build_.AllGather(gather, Group::kTensor, own,
                            build_.TokenBuffer(name, {{Axis::kTensor, layout_.tensor_parallel}}, slice_tokens()));
  }

  // The gradients of the own tokens, from those of all the slots that were dispatched here.
  BufferId OwnRowsFrom(BufferId home) {
    const BufferId rows = gathers() ? RowsOfBatches("token_gradients") : OwnRows("token_gradients");
    build_.DispatchGradient(home, gated_.sent(), rows);
    if (!gathers()) return rows;
    return build_.ReduceScatter("sum_batches", Group::kShard, rows, OwnRows("own_gradients"));
  }

  BufferId SumOfSlices(BufferId gate_gradient) {
    if (!slices()) return gate_gradient;
    return build_.AllReduce("sum_gate", Group::kTensor, gate_gradient, build_.GateGradientBuffer("gate_gradient"));
  }

  // dX at once, because others wait for it; dW when nothing else is left to compute.
  void ExpertGradients(int piece, BufferId out_gradient, BufferId in_gradient) {
    const GraphBuilder::ExpertBuffers& forward = expert_[piece];
    const BufferId hidden_gradient = build_.ExpertInputGradient(forward.hidden, out_gradient, in_gradient);
    weight_gradients_.push_back([=, this] {
      build_.SetChunk(piece, route_.pieces() > 1 && !route_.experts_wait());
      build_.ExpertWeightGradient({.in = forward.in,
                                   .hidden = forward.hidden,
                                   .out_gradient = out_gradient,
                                   .hidden_gradient = hidden_gradient,
                                   .scale = 1.0 / route_.copies()});
      build_.SetChunk(0, /*named=*/false);
    });
  }

  GraphBuilder& build_;
  Route& route_;
  const Layout layout_;
  BufferId input_ = kNoBuffer, tokens_ = kNoBuffer, home_ = kNoBuffer;
  GraphBuilder::Gated gated_;
  std::vector<GraphBuilder::ExpertBuffers> expert_;  // By piece; one when experts wait.
  std::vector<std::function<void()>> weight_gradients_;
};

}  // namespace

TaskGraph BuildLayer(GraphBuilder& build, Route& route) {
  LayerGraph layer(build, route);
  layer.Forward();
  if (build.trains()) layer.Backward();
  return std::move(build).Finish();
}

}  // namespace moeplan
