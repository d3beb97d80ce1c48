#include "proto/convert/plan.h"

#include <google/protobuf/util/message_differencer.h>

#include <cmath>

#include "proto/convert/enums.h"
#include "proto/convert/routing.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

using google::protobuf::util::MessageDifferencer;

// ---- Reading.

Status AtLeastOne(std::string_view path, const char* field, int value) {
  if (value >= 1) return OkStatus();
  return error::Mismatch(FieldPath(path, field), StrCat(value), "a whole number of at least 1");
}

Status NotNegative(std::string_view path, const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return OkStatus();
  return error::Mismatch(FieldPath(path, field), StrCat(value), "a finite number of at least 0");
}

StatusOr<Knobs> KnobsFromProto(const v1::Plan& message, std::string_view path) {
  Knobs knobs;
  ASSIGN_OR_RETURN(knobs.family, EnumFromProto<Family>(message.schedule(), FieldPath(path, "schedule")));
  RETURN_IF_ERROR(AtLeastOne(path, "chunks", message.chunks()));
  RETURN_IF_ERROR(AtLeastOne(path, "partitionDegree", message.partition_degree()));
  knobs.chunks = message.chunks();
  knobs.partition_degree = message.partition_degree();
  ASSIGN_OR_RETURN(knobs.all_to_all,
                   EnumFromProto<AllToAllAlgorithm>(message.all_to_all(), FieldPath(path, "allToAll")));
  ASSIGN_OR_RETURN(knobs.dispatch_codec,
                   EnumFromProto<Codec>(message.dispatch_codec(), FieldPath(path, "dispatchCodec")));
  ASSIGN_OR_RETURN(knobs.combine_codec, EnumFromProto<Codec>(message.combine_codec(), FieldPath(path, "combineCodec")));
  knobs.overlapped_gather = message.overlapped_gather();
  for (const double share : message.chunk_shares()) {
    const std::string at = ItemPath(FieldPath(path, "chunkShares"), knobs.chunk_shares.size());
    if (!(std::isfinite(share) && share > 0)) return error::Mismatch(at, StrCat(share), "a finite number above 0");
    knobs.chunk_shares.push_back(share);
  }
  RETURN_IF_ERROR(ValidateCtas(message.communication_ctas(), FieldPath(path, "communicationCtas")));
  knobs.communication_ctas = message.communication_ctas();
  return knobs;
}

StatusOr<TaskTiming> TimingFromProto(const v1::TaskTiming& message, const std::string& path) {
  TaskTiming timing;
  timing.task = message.task();
  ASSIGN_OR_RETURN(timing.kind, EnumFromProto<TaskKind>(message.kind(), FieldPath(path, "kind")));
  ASSIGN_OR_RETURN(timing.stream, EnumFromProto<StreamKind>(message.stream(), FieldPath(path, "stream")));
  timing.chunk = message.chunk();
  timing.start_s = message.start_s();
  timing.end_s = message.end_s();
  RETURN_IF_ERROR(NotNegative(path, "chunk", timing.chunk));
  RETURN_IF_ERROR(NotNegative(path, "startS", timing.start_s));
  RETURN_IF_ERROR(NotNegative(path, "endS", timing.end_s));
  if (timing.end_s < timing.start_s) {
    return error::Mismatch(FieldPath(path, "endS"), StrCat(timing.end_s), StrCat("at least startS, ", timing.start_s));
  }
  return timing;
}

StatusOr<GradientExchange> GradientsFromProto(const v1::GradientExchange& message, const std::string& path) {
  GradientExchange gradients = {.hidden_s = message.hidden_s(), .exposed_s = message.exposed_s()};
  RETURN_IF_ERROR(NotNegative(path, "hiddenS", gradients.hidden_s));
  RETURN_IF_ERROR(NotNegative(path, "exposedS", gradients.exposed_s));
  for (const v1::GradientSlice& one : message.slices()) {
    const std::string at = ItemPath(FieldPath(path, "slices"), gradients.slices.size());
    RETURN_IF_ERROR(NotNegative(at, "startS", one.start_s()));
    RETURN_IF_ERROR(NotNegative(at, "endS", one.end_s()));
    if (!(std::isfinite(one.bytes()) && one.bytes() > 0)) {
      return error::Mismatch(FieldPath(at, "bytes"), StrCat(one.bytes()), "a finite number above 0");
    }
    gradients.slices.push_back({.after_task = one.after_task(),
                                .before_task = one.before_task(),
                                .start_s = one.start_s(),
                                .end_s = one.end_s(),
                                .bytes = one.bytes()});
  }
  return gradients;
}

Status CheckNumbers(const Plan& plan, std::string_view path) {
  RETURN_IF_ERROR(NotNegative(path, "predictedTimeS", plan.predicted_time_s));
  RETURN_IF_ERROR(NotNegative(path, "lowS", plan.low_s));
  RETURN_IF_ERROR(NotNegative(path, "highS", plan.high_s));
  RETURN_IF_ERROR(NotNegative(path, "communicationTimeS", plan.communication_time_s));
  RETURN_IF_ERROR(NotNegative(path, "exposedCommunicationS", plan.exposed_communication_s));
  RETURN_IF_ERROR(NotNegative(path, "computeTimeS", plan.compute_time_s));
  return NotNegative(path, "memoryBytes", plan.memory_bytes);
}

StatusOr<ParmAnswer> ParmFromProto(const v1::ParmRule& message) {
  ParmAnswer parm = {.t_baseline_s = message.t_baseline_s(), .t_s1_s = message.t_s1_s(), .t_s2_s = message.t_s2_s()};
  RETURN_IF_ERROR(NotNegative("rules.parm", "tBaselineS", parm.t_baseline_s));
  RETURN_IF_ERROR(NotNegative("rules.parm", "tS1S", parm.t_s1_s));
  RETURN_IF_ERROR(NotNegative("rules.parm", "tS2S", parm.t_s2_s));
  ASSIGN_OR_RETURN(parm.choice, EnumFromProto<Family>(message.choice(), "rules.parm.choice"));
  return parm;
}

StatusOr<ChunkedTime> ChunkedFromProto(const v1::MontaRule::Chunked& message, std::string_view path) {
  RETURN_IF_ERROR(AtLeastOne(path, "chunks", message.chunks()));
  RETURN_IF_ERROR(NotNegative(path, "timeS", message.time_s()));
  return ChunkedTime{.chunks = message.chunks(), .time_s = message.time_s()};
}

StatusOr<MontaAnswer> MontaFromProto(const v1::MontaRule& message) {
  if (!message.has_o1()) return error::Mismatch("rules.monta.o1", "nothing", "an object");
  MontaAnswer monta = {.t_baseline_s = message.t_baseline_s(), .o1_time_s = message.o1().time_s()};
  RETURN_IF_ERROR(NotNegative("rules.monta", "tBaselineS", monta.t_baseline_s));
  RETURN_IF_ERROR(NotNegative("rules.monta.o1", "timeS", monta.o1_time_s));
  if (message.has_o2()) {
    ASSIGN_OR_RETURN(monta.o2, ChunkedFromProto(message.o2(), "rules.monta.o2"));
  }
  if (message.has_o3()) {
    ASSIGN_OR_RETURN(monta.o3, ChunkedFromProto(message.o3(), "rules.monta.o3"));
  }
  ASSIGN_OR_RETURN(monta.choice, EnumFromProto<Family>(message.choice(), "rules.monta.choice"));
  return monta;
}

StatusOr<SchemoeAnswer> SchemoeFromProto(const v1::SchemoeRule& message) {
  RETURN_IF_ERROR(AtLeastOne("rules.schemoe", "partitionDegree", message.partition_degree()));
  RETURN_IF_ERROR(NotNegative("rules.schemoe", "optScheTimeS", message.opt_sche_time_s()));
  RETURN_IF_ERROR(NotNegative("rules.schemoe", "optimalTimeS", message.optimal_time_s()));
  return SchemoeAnswer{.partition_degree = message.partition_degree(),
                       .opt_sche_time_s = message.opt_sche_time_s(),
                       .optimal_time_s = message.optimal_time_s(),
                       .order = {message.order().begin(), message.order().end()}};
}

StatusOr<RuleAnswers> RulesFromProto(const v1::Rules& message) {
  RuleAnswers rules;
  if (message.has_parm()) {
    ASSIGN_OR_RETURN(rules.parm, ParmFromProto(message.parm()));
  }
  if (message.has_monta()) {
    ASSIGN_OR_RETURN(rules.monta, MontaFromProto(message.monta()));
  }
  if (message.has_schemoe()) {
    ASSIGN_OR_RETURN(rules.schemoe, SchemoeFromProto(message.schemoe()));
  }
  return rules;
}

StatusOr<SearchOutcome> SearchFromProto(const v1::Search& message) {
  SearchOutcome search = {.time_floor_s = message.time_floor_s(), .evaluated = message.evaluated()};
  ASSIGN_OR_RETURN(search.stop_reason, EnumFromProto<StopReason>(message.stop_reason(), "search.stopReason"));
  RETURN_IF_ERROR(NotNegative("search", "timeFloorS", search.time_floor_s));
  RETURN_IF_ERROR(NotNegative("search", "evaluated", search.evaluated));
  return search;
}

Status CheckBest(const v1::PlanResponse& message) {
  if (!message.has_best()) return OkStatus();
  if (!message.candidates().empty() && MessageDifferencer::Equals(message.best(), message.candidates(0))) {
    return OkStatus();
  }
  return error::Mismatch("best", "a plan that is not candidates[0]", "the same plan");
}

StatusOr<std::vector<Plan>> CandidatesFromProto(const v1::PlanResponse& message) {
  RETURN_IF_ERROR(CheckBest(message));
  std::vector<Plan> candidates;
  for (const v1::Plan& candidate : message.candidates()) {
    ASSIGN_OR_RETURN(Plan plan, PlanFromProto(candidate, ItemPath("candidates", candidates.size())));
    candidates.push_back(std::move(plan));
  }
  return candidates;
}

// ---- Writing.

v1::Rules ToProto(const RuleAnswers& rules) {
  v1::Rules message;
  if (rules.parm) {
    v1::ParmRule& parm = *message.mutable_parm();
    parm.set_t_baseline_s(rules.parm->t_baseline_s);
    parm.set_t_s1_s(rules.parm->t_s1_s);
    parm.set_t_s2_s(rules.parm->t_s2_s);
    parm.set_choice(EnumToProto<v1::Schedule::Family>(rules.parm->choice));
  }
  const auto set_chunked = [](const ChunkedTime& time, v1::MontaRule::Chunked& chunked) {
    chunked.set_chunks(time.chunks);
    chunked.set_time_s(time.time_s);
  };
  if (rules.monta) {
    v1::MontaRule& monta = *message.mutable_monta();
    monta.set_t_baseline_s(rules.monta->t_baseline_s);
    monta.mutable_o1()->set_time_s(rules.monta->o1_time_s);
    if (rules.monta->o2) set_chunked(*rules.monta->o2, *monta.mutable_o2());
    if (rules.monta->o3) set_chunked(*rules.monta->o3, *monta.mutable_o3());
    monta.set_choice(EnumToProto<v1::Schedule::Family>(rules.monta->choice));
  }
  if (rules.schemoe) {
    v1::SchemoeRule& schemoe = *message.mutable_schemoe();
    schemoe.set_partition_degree(rules.schemoe->partition_degree);
    schemoe.set_opt_sche_time_s(rules.schemoe->opt_sche_time_s);
    schemoe.set_optimal_time_s(rules.schemoe->optimal_time_s);
    schemoe.mutable_order()->Assign(rules.schemoe->order.begin(), rules.schemoe->order.end());
  }
  return message;
}

v1::Search ToProto(const SearchOutcome& search) {
  v1::Search message;
  message.set_stop_reason(EnumToProto<v1::Search::StopReason>(search.stop_reason));
  message.set_time_floor_s(search.time_floor_s);
  message.set_evaluated(search.evaluated);
  return message;
}

v1::GradientExchange ToProto(const GradientExchange& gradients) {
  v1::GradientExchange message;
  message.set_hidden_s(gradients.hidden_s);
  message.set_exposed_s(gradients.exposed_s);
  for (const GradientSlice& slice : gradients.slices) {
    v1::GradientSlice& one = *message.add_slices();
    one.set_after_task(slice.after_task);
    one.set_before_task(slice.before_task);
    one.set_start_s(slice.start_s);
    one.set_end_s(slice.end_s);
    one.set_bytes(slice.bytes);
  }
  return message;
}

void SetKnobs(const Knobs& knobs, v1::Plan& message) {
  message.set_schedule(EnumToProto<v1::Schedule::Family>(knobs.family));
  message.set_chunks(knobs.chunks);
  message.set_partition_degree(knobs.partition_degree);
  message.set_all_to_all(EnumToProto<v1::AllToAll::Algorithm>(knobs.all_to_all));
  message.set_dispatch_codec(EnumToProto<v1::Codec::Kind>(knobs.dispatch_codec));
  message.set_combine_codec(EnumToProto<v1::Codec::Kind>(knobs.combine_codec));
  message.set_overlapped_gather(knobs.overlapped_gather);
  for (const double share : knobs.chunk_shares) message.add_chunk_shares(share);
  message.set_communication_ctas(knobs.communication_ctas);
}

}  // namespace

StatusOr<Timeline> TimelineFromProto(const google::protobuf::RepeatedPtrField<v1::TaskTiming>& message,
                                     const std::string& path) {
  Timeline timeline;
  for (const v1::TaskTiming& task : message) {
    ASSIGN_OR_RETURN(TaskTiming timing, TimingFromProto(task, ItemPath(path, timeline.size())));
    timeline.push_back(std::move(timing));
  }
  return timeline;
}

StatusOr<Plan> PlanFromProto(const v1::Plan& message, std::string_view path) {
  Plan plan;
  ASSIGN_OR_RETURN(plan.knobs, KnobsFromProto(message, path));
  plan.order.assign(message.order().begin(), message.order().end());
  plan.predicted_time_s = message.predicted_time_s();
  plan.low_s = message.low_s();
  plan.high_s = message.high_s();
  plan.communication_time_s = message.communication_time_s();
  plan.exposed_communication_s = message.exposed_communication_s();
  plan.compute_time_s = message.compute_time_s();
  plan.memory_bytes = message.memory_bytes();
  RETURN_IF_ERROR(CheckNumbers(plan, path));
  ASSIGN_OR_RETURN(plan.timeline, TimelineFromProto(message.timeline(), FieldPath(path, "timeline")));
  if (message.has_gradients()) {
    ASSIGN_OR_RETURN(plan.gradients, GradientsFromProto(message.gradients(), FieldPath(path, "gradients")));
  }
  return plan;
}

StatusOr<PlanAnswer> PlanAnswerFromProto(const v1::PlanResponse& message) {
  if (!message.has_workload()) return error::Mismatch("workload", "nothing", "the workload that was planned");
  if (!message.has_search()) return error::Mismatch("search", "nothing", "an object");
  PlanAnswer answer;
  ASSIGN_OR_RETURN(answer.workload, WorkloadFromProto(message.workload(), "workload"));
  answer.profile_name = message.profile_name();
  answer.profile_version = message.profile_version();
  RETURN_IF_ERROR(NotNegative("", "profileVersion", answer.profile_version));
  ASSIGN_OR_RETURN(answer.rules, RulesFromProto(message.rules()));
  for (const auto& rule : message.skipped_rules()) answer.skipped_rules.push_back({rule.rule(), rule.reason()});
  for (const auto& candidate : message.skipped_candidates()) {
    answer.skipped_candidates.push_back({candidate.schedule(), candidate.reason()});
  }
  answer.warnings.assign(message.warnings().begin(), message.warnings().end());
  ASSIGN_OR_RETURN(answer.search, SearchFromProto(message.search()));
  ASSIGN_OR_RETURN(answer.candidates, CandidatesFromProto(message));
  answer.explanation = message.explanation();
  if (message.has_routing()) {
    ASSIGN_OR_RETURN(answer.routing, RoutingReportFromProto(message.routing(), "routing"));
  }
  return answer;
}

StatusOr<LancetAnswer> LancetFromProto(const v1::LancetRule& message) {
  LancetAnswer lancet = {.unscheduled_time_s = message.unscheduled_time_s(),
                         .time_s = message.time_s(),
                         .order = {message.order().begin(), message.order().end()},
                         .communication_time_s = message.communication_time_s(),
                         .exposed_communication_s = message.exposed_communication_s(),
                         .unscheduled_exposed_s = message.unscheduled_exposed_s()};
  if (message.has_peak_bytes()) lancet.peak_bytes = message.peak_bytes();
  if (message.has_unscheduled_peak_bytes()) lancet.unscheduled_peak_bytes = message.unscheduled_peak_bytes();
  RETURN_IF_ERROR(NotNegative("rules.lancet", "peakBytes", lancet.peak_bytes.value_or(0)));
  RETURN_IF_ERROR(NotNegative("rules.lancet", "unscheduledPeakBytes", lancet.unscheduled_peak_bytes.value_or(0)));
  RETURN_IF_ERROR(NotNegative("rules.lancet", "communicationTimeS", lancet.communication_time_s));
  RETURN_IF_ERROR(NotNegative("rules.lancet", "exposedCommunicationS", lancet.exposed_communication_s));
  RETURN_IF_ERROR(NotNegative("rules.lancet", "unscheduledExposedS", lancet.unscheduled_exposed_s));
  RETURN_IF_ERROR(NotNegative("rules.lancet", "unscheduledTimeS", lancet.unscheduled_time_s));
  RETURN_IF_ERROR(NotNegative("rules.lancet", "timeS", lancet.time_s));
  for (const auto& one : message.weight_gradients()) {
    lancet.weight_gradients.push_back({one.instruction(), one.all_to_all()});
  }
  for (const auto& one : message.partitions()) {
    const std::string path = ItemPath("rules.lancet.partitions", lancet.partitions.size());
    RETURN_IF_ERROR(AtLeastOne(path, "parts", one.parts()));
    RETURN_IF_ERROR(NotNegative(path, "timeS", one.time_s()));
    ASSIGN_OR_RETURN(const CutAxis axis, EnumFromProto<CutAxis>(one.axis(), FieldPath(path, "axis")));
    lancet.partitions.push_back({.first = one.first(),
                                 .last = one.last(),
                                 .parts = one.parts(),
                                 .time_s = one.time_s(),
                                 .axis = axis,
                                 .split = {one.split().begin(), one.split().end()},
                                 .joined = {one.joined().begin(), one.joined().end()}});
  }
  ASSIGN_OR_RETURN(lancet.timeline, TimelineFromProto(message.timeline(), "rules.lancet.timeline"));
  return lancet;
}

StatusOr<GraphPlanAnswer> GraphPlanAnswerFromProto(const v1::PlanResponse& message) {
  if (!message.rules().has_lancet()) return error::Mismatch("rules.lancet", "nothing", "an object");
  GraphPlanAnswer answer = {.profile_name = message.profile_name(),
                            .profile_version = message.profile_version(),
                            .warnings = {message.warnings().begin(), message.warnings().end()},
                            .explanation = message.explanation()};
  RETURN_IF_ERROR(NotNegative("", "profileVersion", answer.profile_version));
  ASSIGN_OR_RETURN(answer.lancet, LancetFromProto(message.rules().lancet()));
  ASSIGN_OR_RETURN(answer.graph, TrainingGraphFromProto(message.graph(), "graph"));
  return answer;
}

v1::TaskTiming ToProto(const TaskTiming& timing) {
  v1::TaskTiming message;
  message.set_task(timing.task);
  message.set_kind(EnumToProto<v1::Task::Kind>(timing.kind));
  message.set_stream(EnumToProto<v1::Stream::Kind>(timing.stream));
  message.set_chunk(timing.chunk);
  message.set_start_s(timing.start_s);
  message.set_end_s(timing.end_s);
  return message;
}

v1::Plan ToProto(const Plan& plan) {
  v1::Plan message;
  SetKnobs(plan.knobs, message);
  message.mutable_order()->Assign(plan.order.begin(), plan.order.end());
  message.set_predicted_time_s(plan.predicted_time_s);
  message.set_low_s(plan.low_s);
  message.set_high_s(plan.high_s);
  message.set_communication_time_s(plan.communication_time_s);
  message.set_exposed_communication_s(plan.exposed_communication_s);
  message.set_compute_time_s(plan.compute_time_s);
  message.set_memory_bytes(plan.memory_bytes);
  for (const TaskTiming& timing : plan.timeline) *message.add_timeline() = ToProto(timing);
  if (!plan.gradients.slices.empty()) *message.mutable_gradients() = ToProto(plan.gradients);
  return message;
}

v1::PlanResponse ToProto(const PlanAnswer& answer) {
  v1::PlanResponse message;
  *message.mutable_workload() = ToProto(answer.workload);
  message.set_profile_name(answer.profile_name);
  message.set_profile_version(answer.profile_version);
  *message.mutable_rules() = ToProto(answer.rules);
  for (const Skipped& rule : answer.skipped_rules) {
    v1::SkippedRule& skipped = *message.add_skipped_rules();
    skipped.set_rule(rule.what);
    skipped.set_reason(rule.reason);
  }
  for (const Skipped& candidate : answer.skipped_candidates) {
    v1::SkippedCandidate& skipped = *message.add_skipped_candidates();
    skipped.set_schedule(candidate.what);
    skipped.set_reason(candidate.reason);
  }
  message.mutable_warnings()->Assign(answer.warnings.begin(), answer.warnings.end());
  *message.mutable_search() = ToProto(answer.search);
  for (const Plan& plan : answer.candidates) *message.add_candidates() = ToProto(plan);
  if (!answer.candidates.empty()) *message.mutable_best() = message.candidates(0);
  message.set_explanation(answer.explanation);
  if (answer.routing) *message.mutable_routing() = ToProto(*answer.routing);
  return message;
}

v1::LancetRule ToProto(const LancetAnswer& lancet) {
  v1::LancetRule message;
  for (const LancetAnswer::Assignment& one : lancet.weight_gradients) {
    v1::LancetRule::Assignment& assignment = *message.add_weight_gradients();
    assignment.set_instruction(one.instruction);
    assignment.set_all_to_all(one.all_to_all);
  }
  for (const LancetAnswer::Partition& one : lancet.partitions) {
    v1::LancetRule::Partition& partition = *message.add_partitions();
    partition.set_first(one.first);
    partition.set_last(one.last);
    partition.set_parts(one.parts);
    partition.set_time_s(one.time_s);
    partition.set_axis(EnumToProto<v1::LancetRule::Axis>(one.axis));
    partition.mutable_split()->Assign(one.split.begin(), one.split.end());
    partition.mutable_joined()->Assign(one.joined.begin(), one.joined.end());
  }
  message.set_unscheduled_time_s(lancet.unscheduled_time_s);
  message.set_time_s(lancet.time_s);
  message.mutable_order()->Assign(lancet.order.begin(), lancet.order.end());
  message.set_communication_time_s(lancet.communication_time_s);
  message.set_exposed_communication_s(lancet.exposed_communication_s);
  message.set_unscheduled_exposed_s(lancet.unscheduled_exposed_s);
  for (const TaskTiming& timing : lancet.timeline) *message.add_timeline() = ToProto(timing);
  if (lancet.peak_bytes) message.set_peak_bytes(*lancet.peak_bytes);
  if (lancet.unscheduled_peak_bytes) message.set_unscheduled_peak_bytes(*lancet.unscheduled_peak_bytes);
  return message;
}

v1::PlanResponse ToProto(const GraphPlanAnswer& answer) {
  v1::PlanResponse message;
  message.set_profile_name(answer.profile_name);
  message.set_profile_version(answer.profile_version);
  *message.mutable_rules()->mutable_lancet() = ToProto(answer.lancet);
  *message.mutable_graph() = ToProto(answer.graph);
  message.mutable_warnings()->Assign(answer.warnings.begin(), answer.warnings.end());
  message.set_explanation(answer.explanation);
  return message;
}

}  // namespace moeplan
