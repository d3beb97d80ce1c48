#include "planner/client/plan_watch.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "moeplan/v1/planner_service.grpc.pb.h"
#include "planner/client/channel.h"
#include "planner/client/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::client {
namespace {

constexpr double kLongestPauseS = 30;

bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kInvalidInput || status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kInfeasible;
}

}  // namespace

class PlanWatch::Impl {
 public:
  explicit Impl(PlanWatchOptions options)
      : options_(std::move(options)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

 private:
  void Run(const std::stop_token& stop) {
    std::mt19937_64 random(std::random_device{}());
    for (double pause_s = options_.first_pause_s; !stop.stop_requested();) {
      bool told = false;
      const Status over = Watch(stop, told);
      if (stop.stop_requested()) return;
      options_.away(over);
      if (IsRefusal(over)) return;
      if (told) pause_s = options_.first_pause_s;
      // Not all jobs at once when a planner comes back.
      Wait(stop, pause_s * std::uniform_real_distribution<double>(0.5, 1)(random));
      pause_s = std::min(2 * pause_s, kLongestPauseS);
    }
  }

  // One connection, until it is over; `told`: something came.
  Status Watch(const std::stop_token& stop, bool& told) {
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, client::OpenChannel(options_.planner));
    const auto stub = v1::PlannerService::NewStub(channel);
    grpc::ClientContext context;
    client::Identify(context, options_.planner);
    const std::stop_callback cancel(stop, [&] { context.TryCancel(); });
    const auto stream = stub->WatchPlan(&context, options_.request);
    for (v1::WatchPlanResponse response; stream->Read(&response);) {
      told = true;
      *options_.request.mutable_held() = response.plan();
      options_.changed(response);
    }
    const grpc::Status status = stream->Finish();
    const bool answered = context.GetServerTrailingMetadata().contains(kAnsweredByPlanner);
    if (answered && !status.ok()) return FromGrpc(status);
    return client::error::NoPlanner(options_.planner.address,
                                    status.ok() ? "it ended the connection" : status.error_message());
  }

  static void Wait(const std::stop_token& stop, double seconds) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
  }

  PlanWatchOptions options_;  // Its request: what is held now.
  std::jthread thread_;       // Last: it uses all of the above.
};

PlanWatch::PlanWatch(PlanWatchOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
PlanWatch::~PlanWatch() = default;

}  // namespace moeplan::client
