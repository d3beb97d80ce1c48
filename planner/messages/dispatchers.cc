#include "planner/messages/dispatchers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "models/text.h"
#include "planner/advice/crossover.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"
#include "proto/errors.h"

namespace moeplan::planner {
namespace {

// "PATH=VALUE,VALUE,...".
Status ReadAxis(std::string_view text, CrossoverRequest& request) {
  const size_t equals = text.find('=');
  const auto axis = CrossoverAxisOf(text.substr(0, equals));
  if (!axis || equals == std::string_view::npos) {
    return error::Mismatch("axis", StrCat("'", text.substr(0, 80), "'"),
                           "one of microBatch=, expertParallel=, gpus= or expertImbalance= with values");
  }
  request.axis = *axis;
  for (size_t start = equals + 1; start <= text.size();) {
    const size_t end = std::min(text.size(), text.find(',', start));
    const std::string_view one = text.substr(start, end - start);
    double value = 0;
    const auto read = std::from_chars(one.data(), one.data() + one.size(), value);
    if (read.ec != std::errc() || read.ptr != one.data() + one.size() || !std::isfinite(value)) {
      return error::Mismatch("axis", StrCat("'", one.substr(0, 40), "'"), "a number");
    }
    if (request.values.size() >= kMostCrossoverValues) {
      return error::Mismatch("axis", StrCat("more than ", kMostCrossoverValues, " values"), "no more than that");
    }
    request.values.push_back(value);
    start = end + 1;
  }
  return OkStatus();
}

v1::Dispatcher::Kind KindOf(Dispatcher dispatcher) { return EnumToProto<v1::Dispatcher::Kind>(dispatcher); }

v1::DispatcherCrossover MessageOf(const Crossover& crossover, CrossoverAxis axis) {
  v1::DispatcherCrossover message;
  message.set_path(std::string(Name(axis)));
  for (const CrossoverPoint& point : crossover.points) {
    v1::DispatcherPoint& one = *message.add_points();
    one.set_value(point.value);
    for (const DispatcherStep& step : point.steps) {
      v1::DispatcherStep& entry = *one.add_steps();
      entry.set_dispatcher(KindOf(step.dispatcher));
      if (step.step_s) entry.set_step_time_s(*step.step_s);
      entry.set_reason(step.reason);
    }
    if (point.best) one.set_best(KindOf(*point.best));
    if (point.runner_up) one.set_runner_up(KindOf(*point.runner_up));
    one.set_ratio(point.ratio.ratio);
    one.set_low(point.ratio.low);
    one.set_high(point.ratio.high);
    one.set_decided(point.decided());
  }
  for (const Flip& flip : crossover.flips) {
    v1::DispatcherFlip& one = *message.add_flips();
    one.set_from(KindOf(flip.from));
    one.set_to(KindOf(flip.to));
    one.set_before(flip.before);
    one.set_after(flip.after);
    if (flip.surely_before) one.set_surely_before(*flip.surely_before);
    if (flip.surely_after) one.set_surely_after(*flip.surely_after);
  }
  return message;
}

}  // namespace

StatusOr<v1::CompareDispatchersResponse> AnswerCompareDispatchers(const v1::CompareDispatchersRequest& asked,
                                                                  const ModelConfig& model,
                                                                  const ProfileSource& profile_of,
                                                                  const StopSignals& stop) {
  for (const auto& [field, number] : {std::pair("gpus", asked.gpus()),
                                      {"globalBatch", asked.global_batch()},
                                      {"sequenceLength", asked.sequence_length()}}) {
    if (number < 1) return error::Mismatch(field, StrCat(number), "a whole number of at least 1");
  }
  CrossoverRequest request;
  LayoutRequest& step = request.question.request;
  step.model = model;
  step.gpus = asked.gpus();
  step.global_batch = asked.global_batch();
  step.sequence_length = asked.sequence_length();
  RETURN_IF_ERROR(ReadStepLayout(asked.layout(), "layout", request.question));
  RETURN_IF_ERROR(ReadAxis(asked.axis(), request));
  if (!asked.dispatchers().empty()) request.dispatchers.clear();
  for (const int kind : asked.dispatchers()) {
    ASSIGN_OR_RETURN(const auto dispatcher,
                     EnumFromProto<Dispatcher>(static_cast<v1::Dispatcher::Kind>(kind), "dispatchers"));
    if (std::ranges::count(request.dispatchers, dispatcher) == 0) request.dispatchers.push_back(dispatcher);
  }
  v1::CompareDispatchersResponse response;
  ASSIGN_OR_RETURN(const Crossover crossover, FindCrossover(
                                                  request,
                                                  [&](int gpus) {
                                                    StatusOr<Profile> profile = profile_of(model, gpus);
                                                    if (profile.ok()) {
                                                      response.set_profile_name(profile->name);
                                                      response.set_profile_version(profile->version);
                                                    }
                                                    return profile;
                                                  },
                                                  stop));
  *response.mutable_result() = MessageOf(crossover, request.axis);
  return response;
}

}  // namespace moeplan::planner
