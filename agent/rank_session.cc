#include "agent/rank_session.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <map>
#include <optional>

#include "agent/libraries/library_kernels.h"
#include "agent/operation.h"
#include "agent/step_runner.h"
#include "executor/build_facts.h"
#include "executor/host/elements.h"
#include "executor/host/mesh.h"
#include "executor/launch/frames.h"
#include "executor/layer/routed_batch.h"
#include "executor/pair_counter.h"
#include "executor/reference/reference_gradients.h"
#include "executor/runtime/graph_runner.h"
#include "models/all_to_all/algorithm.h"
#include "models/check.h"
#include "models/plan/build_plan.h"
#include "models/routing/expert_load.h"
#include "models/text.h"
#include "proto/convert/plan.h"
#include "proto/convert/samples.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"

namespace moeplan::agent {
namespace {

constexpr uint64_t kWeightSeed = 20240501;

// Of this build and machine.
std::map<std::string, std::string> OwnFacts() {
  std::map<std::string, std::string> facts = executor::BuildFacts();
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) facts["hostname"] = host;
  utsname system{};
  if (uname(&system) == 0) facts["kernel"] = system.release;
  return facts;
}

// The sets of a layout's groups: for what is measured or run, and for what runs beside it.
enum GroupSet { kMain, kBeside };

class BackendRankSession final : public RankSession {
 public:
  BackendRankSession(std::string host_address, BackendFinder find_backend)
      : host_address_(std::move(host_address)), find_backend_(std::move(find_backend)) {}
  ~BackendRankSession() override { Disconnect(); }

  v1::RankReply Handle(const v1::RankCommand& command) override {
    v1::RankReply reply;
    const bool starts = command.command_case() == v1::RankCommand::kStart;
    const Status status = failure_.ok() || starts ? Do(command, reply) : failure_;
    // Where it was not a stream that failed, nobody has told the peers yet.
    const bool network = status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kDeadlineExceeded;
    if (network && failure_.ok() && connected_ != nullptr) Spend(status);
    if (!status.ok()) {
      reply.Clear();
      reply.mutable_error()->set_code(static_cast<int>(status.code()));
      reply.mutable_error()->set_message(status.message());
    }
    return reply;
  }

 private:
  // A graph that can run, and what its output is checked against.
  struct ReadyGraph {
    Workload workload;
    TaskGraph graph;
    std::unique_ptr<executor::GraphRunner> runner;
  };

  // The layer's weights on this rank; kept while graphs of the same layer and layout come in.
  struct ReadyLayer {
    Workload workload;
    executor::LayerWeights weights;
    std::unique_ptr<executor::Kernels> kernels;
    executor::LayerGradients gradients;
    std::vector<float> input, output_gradient;
  };

  Status Do(const v1::RankCommand& command, v1::RankReply& reply) {
    switch (command.command_case()) {
      case v1::RankCommand::kStart: return Start(command.start(), *reply.mutable_started());
      case v1::RankCommand::kConnect: return Connect(command.connect(), *reply.mutable_connected());
      case v1::RankCommand::kMeasure: return Measure(command.measure(), *reply.mutable_measured());
      case v1::RankCommand::kPrepare: return Prepare(command.prepare());
      case v1::RankCommand::kRun: return Run(command.run(), *reply.mutable_ran());
      case v1::RankCommand::kCheck: return Check(command.check(), *reply.mutable_checked());
      case v1::RankCommand::kRelease:
        if (!command.release().has_graph()) return Release();
        graphs_.erase(command.release().graph());
        steps_.erase(command.release().graph());
        return OkStatus();
      case v1::RankCommand::COMMAND_NOT_SET: break;
    }
    return InternalError("a command without content");
  }

  Status Start(const v1::RankCommand::Start& start, v1::RankReply::Started& started) {
    Disconnect();
    rank_ = start.rank();
    cluster_ = {.nodes = start.nodes(), .gpus_per_node = start.ranks_per_node()};
    const executor::RankPlace place = {.rank = rank_,
                                       .ranks = Ranks(cluster_),
                                       .ranks_per_node = cluster_.gpus_per_node,
                                       .host_address = host_address_,
                                       .deadline_s = start.deadline_s()};
    ASSIGN_OR_RETURN(const executor::RankBackend* const backend, find_backend_(start.backend()));
    ASSIGN_OR_RETURN(join_, backend->Join(place));
    library_device_ = backend->LibraryDeviceAt(place);
    deadline_s_ = place.deadline_s;
    started.set_address(join_->address());
    auto& provenance = *started.mutable_provenance();
    for (const auto& facts : {OwnFacts(), backend->FactsAt(place)}) {
      for (const auto& [name, value] : facts) provenance[name] = value;
    }
    provenance["backend"] = backend->name();
    started.set_device_memory_bytes(backend->DeviceMemoryBytesAt(place));
    const executor::RankBackend::LinkRates rates = backend->LinkRatesAt(place);
    started.set_node_link_bytes_per_s(rates.node_link_bytes_per_s);
    started.set_network_bytes_per_s(rates.network_bytes_per_s);
    return OkStatus();
  }

  Status Connect(const v1::RankCommand::Connect& connect, v1::RankReply::Connected& connected) {
    if (join_ == nullptr) return InternalError("Connect before Start");
    const std::vector<std::string> addresses(connect.addresses().begin(), connect.addresses().end());
    ASSIGN_OR_RETURN(connected_, join_->Connect(addresses));
    connected.set_limits_ctas(connected_->world().LimitsCtas());
    connected.set_repeats_times(connected_->repeats_times());
    for (const auto& [name, value] : connected_->facts()) (*connected.mutable_provenance())[name] = value;
    return OkStatus();
  }

  void Spend(const Status& why) {
    failure_ = why;
    connected_->Fail(why);
  }

  // Back to before Start.
  void Disconnect() {
    (void)Release();
    connected_.reset();
    join_.reset();
    failure_ = OkStatus();
  }

  executor::Device& device() { return connected_->device(); }
  executor::RankRuntime& runtime() { return connected_->runtime(); }
  executor::RankStreams& streams() { return runtime().streams(); }

  // An operation on the stream that has such work in a layer. Of two collectives, the one beside has the other
  // network's.
  struct QueuedOperation {
    std::unique_ptr<Operation> operation;
    executor::Stream* stream = nullptr;
  };
  StatusOr<QueuedOperation> MakeOperation(const v1::Sample& sample, const Workload& context, GroupSet set) {
    ASSIGN_OR_RETURN(const Sample what, SampleFromProto(sample, "what"));
    QueuedOperation queued;
    if (const auto* kernel = std::get_if<KernelKey>(&what.key)) {
      queued.stream = &streams()[kernel->kernel == Kernel::kDeviceCopy ? StreamKind::kCopy : StreamKind::kCompute];
      ASSIGN_OR_RETURN(queued.operation, MakeKernel(*kernel, what.size, *connected_, context));
      return queued;
    }
    queued.stream = &streams()[set == kMain ? StreamKind::kInterNode : StreamKind::kIntraNode];
    const auto& key = std::get<CollectiveKey>(what.key);
    ASSIGN_OR_RETURN(const GroupPlacement placement, PlacementOf(key, Ranks(cluster_), cluster_.gpus_per_node));
    ASSIGN_OR_RETURN(executor::GroupCommunicators * groups, runtime().GroupsOf(placement.layout, set, key.ctas));
    CollectiveContext on = {.device = device(), .group = (*groups)[placement.group]};
    if (key.collective == Collective::kAllToAllAllGather) on.gather = &(*groups)[Group::kTensor];
    if (key.collective == Collective::kAllToAll && key.algorithm != AllToAllAlgorithm::kDirect) {
      RETURN_IF_ERROR(AlgorithmAllowed(key.algorithm, key.group));
      ASSIGN_OR_RETURN(on.teams,
                       groups->TeamsOf(placement.group, key.group, IndexIn(placement.group, placement.layout, rank_)));
      on.inside_nodes = &streams().inside_nodes();
    }
    ASSIGN_OR_RETURN(queued.operation, MakeCollective(key, what.size, on));
    return queued;
  }

  // Through the libraries of the job, which are started with the first such kernel. Where there are none, or they do
  // not have the kernel, the answer says so: what else is to be measured goes on.
  Status MeasureLibrary(const v1::RankCommand::Measure& measure, const Sample& what,
                        v1::RankReply::Measured& measured) {
    if (libraries_ == nullptr && no_libraries_.empty()) {
      auto started = LibraryKernels::Start(library_device_, deadline_s_);
      if (started.ok()) {
        libraries_ = *std::move(started);
      } else {
        no_libraries_ = started.status().message();
      }
    }
    if (libraries_ == nullptr) return (measured.set_left_out(no_libraries_), OkStatus());
    // The ranks measure together, as in a job, because all are asked at once; none waits for another, which may have no
    // such library.
    StatusOr<LibraryTimes> times = libraries_->Time({.key = std::get<KernelKey>(what.key),
                                                     .size = what.size,
                                                     .warm_ups = measure.warm_ups(),
                                                     .repeats = measure.repeats()});
    if (!times.ok()) {
      libraries_.reset();  // Another is started with the next kernel.
      measured.set_left_out(times.status().message());
      return OkStatus();
    }
    for (const double time_s : times->times_s) measured.add_time_s(time_s);
    measured.set_library(times->library);
    measured.set_left_out(times->left_out);
    return OkStatus();
  }

  Status Measure(const v1::RankCommand::Measure& measure, v1::RankReply::Measured& measured) {
    ASSIGN_OR_RETURN(const Sample sample, SampleFromProto(measure.what(), "what"));
    const auto* kernel = std::get_if<KernelKey>(&sample.key);
    if (kernel != nullptr && IsOfTheRestOfAStep(kernel->kernel) &&
        connected_->StepKernel(*kernel, sample.size) == nullptr) {
      return MeasureLibrary(measure, sample, measured);
    }
    Workload context;
    if (measure.has_context()) {
      ASSIGN_OR_RETURN(context, WorkloadFromProto(measure.context(), "context"));
    }
    ASSIGN_OR_RETURN(const QueuedOperation what, MakeOperation(measure.what(), context, kMain));
    QueuedOperation beside;
    if (measure.has_beside()) {
      ASSIGN_OR_RETURN(beside, MakeOperation(measure.beside(), context, kBeside));
      if (beside.stream == what.stream) return InternalError("what runs on one stream cannot run beside itself");
    }
    RETURN_IF_ERROR(connected_->SettleClocks());
    for (int i = 0; i < measure.warm_ups() + measure.repeats(); ++i) {
      if (measure.what().has_kernel()) RETURN_IF_ERROR(connected_->CoolCaches());
      ASSIGN_OR_RETURN(const double time_s, TimeOnce(what, beside, measure.beside_count()));
      if (i >= measure.warm_ups()) measured.add_time_s(time_s * what.operation->share());
    }
    return OkStatus();
  }

  // Marks, on the inter-node stream, where all ranks have come. Not on the compute stream: where ranks share a
  // processor, one would note it when its neighbour's experts are done, and the time that they took from its own would
  // be lost.
  void BeginTogether(executor::Event& start) {
    executor::Stream& stream = streams()[StreamKind::kInterNode];
    device().Label(stream, "barrier");
    connected_->world().Barrier(stream);
    device().Record(start, stream);
  }

  // From the barrier to the end, on this rank.
  StatusOr<double> TimeOnce(const QueuedOperation& what, const QueuedOperation& beside, int beside_count) {
    const std::unique_ptr<executor::Event> start = device().MakeEvent(), end = device().MakeEvent();
    BeginTogether(*start);
    device().Label(*what.stream, "measure");
    device().Wait(*what.stream, *start);
    if (beside.stream != nullptr) {
      device().Label(*beside.stream, "measure_beside");
      device().Wait(*beside.stream, *start);
      for (int i = 0; i < beside_count; ++i) beside.operation->Enqueue(*beside.stream);
    }
    what.operation->Enqueue(*what.stream);
    device().Record(*end, *what.stream);
    RETURN_IF_ERROR(Synchronize());
    return device().TimeS(*end) - device().TimeS(*start);
  }

  Status Synchronize() {
    failure_ = device().Synchronize();
    return failure_;
  }

  Status LoadLayer(const Workload& workload) {
    const bool trains = workload.phase != Phase::kForward;
    if (layer_ && layer_->workload.layer == workload.layer && layer_->workload.layout == workload.layout &&
        layer_->workload.routing == workload.routing && (layer_->workload.phase != Phase::kForward) == trains) {
      return OkStatus();
    }
    const bool routed = connected_->computes() && executor::FollowsRouting(workload);
    if (routed) RETURN_IF_ERROR(executor::CheckRoutable(workload));
    RETURN_IF_ERROR(Release());
    const int stage_rank = runtime().StageRank(workload.layout);
    layer_.emplace(
        ReadyLayer{.workload = workload,
                   .weights = WeightsOn(*connected_, workload.layer,
                                        executor::ShardOf(workload.layer, workload.layout, stage_rank), kWeightSeed)});
    if (routed) executor::TakeFeaturesAsLogits(workload.layer, layer_->weights);
    if (trains) layer_->gradients = executor::ZeroGradients(layer_->weights);
    ASSIGN_OR_RETURN(layer_->kernels,
                     runtime().make_kernels()(workload.layer, layer_->weights, trains ? &layer_->gradients : nullptr));
    layer_->kernels->TakeWeights(streams()[StreamKind::kCompute]);
    streams().Fork();
    if (!connected_->computes()) return OkStatus();
    const int batch = stage_rank / workload.layout.tensor_parallel;
    layer_->input = executor::MakeInput(workload.layer, workload.layout, batch, kWeightSeed);
    if (routed) executor::WriteLogits(workload, batch, kWeightSeed, layer_->input);
    layer_->output_gradient = executor::MakeOutputGradient(workload.layer, workload.layout, batch, kWeightSeed);
    return OkStatus();
  }

  Status PrepareStep(const v1::RankCommand::Prepare& prepare) {
    ASSIGN_OR_RETURN(const TrainingGraph graph, TrainingGraphFromProto(prepare.step(), "step"));
    RETURN_IF_ERROR(ValidateTrainingGraph(graph));
    ASSIGN_OR_RETURN(const LancetAnswer plan, LancetFromProto(prepare.order()));
    ASSIGN_OR_RETURN(StepTasks tasks, BuildStepTasks(graph, plan));
    std::optional<Workload> workload;
    if (graph.workload) {
      ASSIGN_OR_RETURN(workload, ResolveWorkload(*graph.workload, cluster_));
    }
    StepOperations operations(*connected_, rank_, cluster_, std::move(workload));
    ASSIGN_OR_RETURN(steps_[prepare.graph()],
                     StepRunner::Prepare(std::move(tasks), std::move(operations), *connected_));
    return connected_->SettleClocks();
  }

  Status Prepare(const v1::RankCommand::Prepare& prepare) {
    if (prepare.has_step()) return PrepareStep(prepare);
    ASSIGN_OR_RETURN(const Workload given, WorkloadFromProto(prepare.workload(), "workload"));
    ASSIGN_OR_RETURN(const Workload workload, ResolveWorkload(given, cluster_));
    ASSIGN_OR_RETURN(const Plan plan, PlanFromProto(prepare.plan(), "plan"));
    RETURN_IF_ERROR(LoadLayer(workload));
    ReadyGraph ready{.workload = workload};
    if (IsDropless(workload.layer)) {
      ASSIGN_OR_RETURN(ready.workload.layer, WithSlotsForAll(workload, plan));
    }
    ASSIGN_OR_RETURN(ready.graph, BuildPlan(plan, ready.workload, cluster_));
    ASSIGN_OR_RETURN(const executor::RankContext context,
                     runtime().ContextOf(workload.layout, *layer_->kernels, plan.knobs.communication_ctas));
    ASSIGN_OR_RETURN(ready.runner, executor::GraphRunner::Prepare(ready.graph, context));
    if (connected_->computes()) {
      RETURN_IF_ERROR(Write(layer_->input, ready.runner->input()));
      if (workload.phase != Phase::kForward) {
        RETURN_IF_ERROR(Write(layer_->output_gradient, ready.runner->output_gradient()));
      }
    }
    RETURN_IF_ERROR(connected_->SettleClocks());
    graphs_[prepare.graph()] = std::move(ready);
    return OkStatus();
  }

  // The layer with the slots that its busiest expert needs, as a job has it. If no values are computed, or the plan has
  // more pieces than these slots have room for, it has those that the plan was priced with. Every run has the same
  // input.
  StatusOr<Layer> WithSlotsForAll(const Workload& workload, const Plan& plan) {
    const Layer expected = WithExpectedSlots(workload).layer;
    if (!connected_->computes()) return expected;
    ASSIGN_OR_RETURN(executor::PairCounter counter, executor::PairCounter::Make(workload, runtime()));
    const auto tokens = static_cast<int>(SizesOf(workload.layer, workload.layout).tokens);
    const std::vector<std::byte> rows = RowsOf(layer_->input);
    ASSIGN_OR_RETURN(const int slots,
                     counter.Slots({.tokens = tokens, .batch_tokens = tokens}, rows, *layer_->kernels));
    Workload counted = workload;
    counted.layer = WithSlots(workload.layer, workload.layout, slots);
    if (BuildPlan(plan, counted, cluster_).ok()) return counted.layer;
    return WithSlots(workload.layer, workload.layout, std::max(slots, expected.counted_slots));
  }

  StatusOr<ReadyGraph*> GraphOf(int number) {
    const auto found = graphs_.find(number);
    if (found == graphs_.end()) return InternalError(StrCat("graph ", number, " is not ready"));
    return &found->second;
  }

  Status Run(const v1::RankCommand::Run& run, v1::RankReply::Ran& ran) {
    if (const auto step = steps_.find(run.graph()); step != steps_.end()) {
      StepRunner& runner = *step->second;
      return RunTogether([&] { runner.Enqueue(); }, [&] { return runner.LastTimeline(); }, run.timeline(), ran);
    }
    ASSIGN_OR_RETURN(ReadyGraph * ready, GraphOf(run.graph()));
    const Phase phase = ready->workload.phase;
    executor::GraphRunner& runner = *ready->runner;
    if (phase == Phase::kBackward) runner.Enqueue(Phase::kForward);
    return RunTogether([&] { runner.Enqueue(phase); }, [&] { return runner.LastTimeline(phase); }, run.timeline(), ran);
  }

  // Queues work on all streams once all ranks have come this far; its time, and its timeline where that is wanted.
  Status RunTogether(const std::function<void()>& enqueue, const std::function<Timeline()>& last_timeline,
                     bool wants_timeline, v1::RankReply::Ran& ran) {
    const std::unique_ptr<executor::Event> start = device().MakeEvent();
    streams().Join();
    streams().Fork();
    BeginTogether(*start);
    device().Wait(streams()[StreamKind::kCompute], *start);
    streams().Fork();
    enqueue();
    RETURN_IF_ERROR(Synchronize());
    const double start_s = device().TimeS(*start);
    double end_s = start_s;
    for (TaskTiming timing : last_timeline()) {
      end_s = std::max(end_s, timing.end_s);
      timing.start_s -= start_s;
      timing.end_s -= start_s;
      if (wants_timeline) *ran.add_timeline() = ToProto(timing);
    }
    ran.set_time_s(end_s - start_s);
    return OkStatus();
  }

  Status Check(const v1::RankCommand::Check& check, v1::RankReply::Checked& checked) {
    ASSIGN_OR_RETURN(ReadyGraph * ready, GraphOf(check.graph()));
    ASSIGN_OR_RETURN(const int dropped, DroppedHere(*ready));
    checked.set_dropped(dropped);
    if (!connected_->computes()) return OkStatus();
    const Workload& workload = ready->workload;
    const Layer& layer = workload.layer;
    const LayerSizes sizes = SizesOf(layer, workload.layout);
    const bool sliced = ready->graph.buffers[ready->graph.output].cells.size() == 1 &&
                        workload.capacity_passing == CapacityPassing::kPadded;
    const int slices = sliced ? workload.layout.tensor_parallel : 1;
    executor::LayerWeights full = executor::MakeWeights(layer, executor::ShardOf(layer, {}, 0), kWeightSeed);
    if (executor::FollowsRouting(workload)) executor::TakeFeaturesAsLogits(layer, full);
    const executor::ReferenceOutput reference =
        executor::ComputeReference(layer, full, layer_->input, (sizes.slots + slices - 1) / slices, slices);
    ASSIGN_OR_RETURN(const std::vector<float> output, Read(ready->runner->output()));
    AddDeviation(output, reference.output, checked);
    if (workload.phase == Phase::kForward) return OkStatus();
    const executor::ReferenceGradients gradients =
        executor::ComputeReferenceGradients(layer, full, layer_->input, layer_->output_gradient, reference);
    ASSIGN_OR_RETURN(const std::vector<float> input_gradient, Read(ready->runner->input_gradient()));
    AddDeviation(input_gradient, gradients.input.values, checked);
    std::vector<float> gate_gradient(executor::GateGradientValues(layer));
    RETURN_IF_ERROR(Copy(reinterpret_cast<std::byte*>(gate_gradient.data()),
                         reinterpret_cast<const std::byte*>(ready->runner->gate_gradient()),
                         gate_gradient.size() * sizeof(float)));
    AddDeviation(gate_gradient, gradients.gate.values, checked);
    return OkStatus();
  }

  // Values to rows of the layer's elements on the device, and back; B·L rows.
  std::vector<std::byte> RowsOf(const std::vector<float>& values) const {
    std::vector<std::byte> rows(values.size() * executor::BytesOf(type()));
    executor::Store(values.data(), type(), values.size(), rows.data());
    return rows;
  }
  Status Write(const std::vector<float>& values, std::byte* to) {
    const std::vector<std::byte> rows = RowsOf(values);
    return Copy(to, rows.data(), rows.size());
  }
  StatusOr<std::vector<float>> Read(const std::byte* from) {
    std::vector<float> values(layer_->input.size());
    std::vector<std::byte> rows(values.size() * executor::BytesOf(type()));
    RETURN_IF_ERROR(Copy(rows.data(), from, rows.size()));
    executor::Load(rows.data(), type(), values.size(), values.data());
    return values;
  }
  Status Copy(std::byte* to, const std::byte* from, size_t bytes) {
    device().Copy(to, from, bytes, streams()[StreamKind::kCompute]);
    return Synchronize();
  }
  executor::ElementType type() const { return executor::ElementTypeOf(layer_->workload.layer.bytes_per_element); }

  static void AddDeviation(std::span<const float> values, const std::vector<double>& reference,
                           v1::RankReply::Checked& checked) {
    MOEPLAN_CHECK(values.size() == reference.size());
    double error = 0, largest = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      // Not std::max: a NaN must not be overlooked.
      const double difference = std::abs(values[i] - reference[i]);
      if (!(difference <= error)) error = difference;
      largest = std::max(largest, std::abs(reference[i]));
    }
    v1::RankReply::Checked::Deviation& deviation = *checked.add_deviations();
    deviation.set_largest_error(error);
    deviation.set_largest_reference(largest);
  }

  // Pairs that this rank answers for: its slice, or, where every MP rank gates alike, the first rank's.
  StatusOr<int> DroppedHere(const ReadyGraph& ready) {
    const executor::GraphRunner::RoutedRows rows = ready.runner->routed_rows();
    const Layout& layout = ready.workload.layout;
    const int tokens = static_cast<int>(SizesOf(ready.workload.layer, layout).tokens);
    const bool whole_batch = rows.count == tokens;
    if (whole_batch && IndexIn(Group::kTensor, layout, connected_->runtime().StageRank(layout)) != 0) return 0;
    ASSIGN_OR_RETURN(const executor::RouterStatistics statistics, ready.runner->router_statistics());
    return static_cast<int>(executor::DroppedPairs(statistics));
  }

  Status Release() {
    if (connected_ != nullptr) (void)device().Synchronize();  // Nothing that goes may still be in use.
    graphs_.clear();
    steps_.clear();
    layer_.reset();
    return OkStatus();
  }

  const std::string host_address_;
  const BackendFinder find_backend_;
  int rank_ = 0;
  Cluster cluster_;
  Status failure_;
  std::unique_ptr<executor::RankJoin> join_;
  std::unique_ptr<executor::Rank> connected_;
  std::string library_device_;
  double deadline_s_ = 0;
  std::unique_ptr<LibraryKernels> libraries_;  // Once one of their kernels was asked for.
  std::string no_libraries_;                   // Why they could not be started.
  std::optional<ReadyLayer> layer_;
  std::map<int, ReadyGraph> graphs_;
  std::map<int, std::unique_ptr<StepRunner>> steps_;  // Training graphs, by the same numbers.
};

}  // namespace

std::unique_ptr<RankSession> RankSession::Make(const std::string& host_address, BackendFinder find_backend) {
  return std::make_unique<BackendRankSession>(host_address, std::move(find_backend));
}

std::string AnswerFrame(RankSession& session, const std::string& command) {
  v1::RankCommand parsed;
  if (parsed.ParseFromString(command)) return session.Handle(parsed).SerializeAsString();
  v1::RankReply unread;
  unread.mutable_error()->set_code(static_cast<int>(StatusCode::kInternal));
  unread.mutable_error()->set_message("a command that cannot be read; is every rank of the same build?");
  return unread.SerializeAsString();
}

void ServeRank(RankSession& session, int read_fd, int write_fd) {
  while (true) {
    const StatusOr<std::string> frame = executor::ReadFrame(read_fd, executor::Deadline::max());
    if (!frame.ok()) return;
    if (!executor::WriteFrame(write_fd, AnswerFrame(session, *frame)).ok()) return;
  }
}

}  // namespace moeplan::agent
