#include "planner/client/job_planner.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "models/fnv1a.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "models/time_text.h"
#include "models/workload/workload.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/client/planner_client.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan::client {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

fs::path DefaultFolder() {
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "moeplan";
  }
  const char* const home = std::getenv("HOME");
  return (home != nullptr ? fs::path(home) : fs::temp_directory_path()) / ".cache" / "moeplan";
}

std::string Digest(const std::string& text) {
  Fnv1a digest;
  digest.Add(text);
  std::string name;
  for (int shift = 60; shift >= 0; shift -= 4) name.push_back("0123456789abcdef"[digest.value() >> shift & 15]);
  return name;
}

// Of containers all ranks may have the same process id, and share the folder.
std::string UnfinishedSuffix() {
  std::random_device random;
  return StrCat(".", getpid(), ".", random(), ".", random());
}

// The plans that a job keeps, a file each.
class KeptPlans {
 public:
  explicit KeptPlans(fs::path folder) : folder_(std::move(folder)) {}

  // Whole or not at all: another process may read, or this one be killed. That it fails costs a kept plan, no more.
  void Keep(const v1::PlanRequest& request, const v1::PlanResponse& answer) const {
    v1::KeptPlan kept;
    *kept.mutable_request() = request;
    *kept.mutable_plan() = answer;
    kept.set_answered_at(Rfc3339(std::chrono::system_clock::now()));
    std::error_code ignored;
    fs::create_directories(folder_, ignored);
    const fs::path path = PathOf(request), unfinished = path.string() + UnfinishedSuffix();
    std::ofstream file(unfinished, std::ios::binary);
    file << ToJson(kept);
    file.close();
    if (file) fs::rename(unfinished, path, ignored);
    fs::remove(unfinished, ignored);
  }

  std::optional<v1::KeptPlan> Find(const v1::PlanRequest& request) const {
    auto kept = ReadJsonFile<v1::KeptPlan>(PathOf(request).string());
    // Two questions may have one digest.
    if (!kept.ok() || TextOf(kept->request()) != TextOf(request)) return std::nullopt;
    return *std::move(kept);
  }

 private:
  static std::string TextOf(const v1::PlanRequest& request) { return ToJson(request, JsonStyle::kCompact); }
  fs::path PathOf(const v1::PlanRequest& request) const { return folder_ / (Digest(TextOf(request)) + ".json"); }

  const fs::path folder_;
};

StatusOr<v1::PlanResponse> Baseline(const v1::PlanRequest& request, const Cluster& cluster) {
  ASSIGN_OR_RETURN(const Workload asked, WorkloadFromProto(request.workload()));
  ASSIGN_OR_RETURN(const Workload workload, ResolveWorkload(asked, cluster));
  Status why;
  for (const Family family : {Family::kBaselineTp, Family::kBaseline}) {
    why = FamilyAllowed(family, workload, cluster);
    if (!why.ok()) continue;
    v1::PlanResponse answer;
    *answer.mutable_workload() = ToProto(workload);
    *answer.mutable_best() = ToProto(moeplan::Plan{.knobs = {.family = family}});
    return answer;
  }
  return why;
}

// Whether every planner would answer so.
bool IsTheQuestionsFault(const Status& status) {
  return status.code() == StatusCode::kInvalidInput || status.code() == StatusCode::kInfeasible;
}

}  // namespace

class JobPlanner::Impl {
 public:
  explicit Impl(JobPlannerOptions options)
      : options_(std::move(options)), kept_(options_.folder.empty() ? DefaultFolder() : options_.folder) {}

  StatusOr<JobPlan> Plan(const v1::PlanRequest& request) {
    const std::scoped_lock lock(mutex_);
    const StatusOr<v1::PlanResponse> answer = Ask(request);
    if (answer.ok()) {
      kept_.Keep(request, *answer);
      return JobPlan{.answer = *answer, .answered_at = Rfc3339(std::chrono::system_clock::now())};
    }
    if (IsTheQuestionsFault(answer.status())) return answer.status();
    if (auto kept = kept_.Find(request)) {
      return JobPlan{.answer = std::move(*kept->mutable_plan()),
                     .origin = PlanOrigin::kKept,
                     .why = answer.status().message(),
                     .answered_at = kept->answered_at()};
    }
    ASSIGN_OR_RETURN(v1::PlanResponse baseline, Baseline(request, options_.cluster));
    return JobPlan{.answer = std::move(baseline), .origin = PlanOrigin::kBaseline, .why = answer.status().message()};
  }

 private:
  StatusOr<v1::PlanResponse> Ask(const v1::PlanRequest& request) {
    const Clock::time_point now = options_.now();
    if (!failure_.ok() && now < try_again_) return failure_;
    const Clock::time_point began = Clock::now();
    StatusOr<v1::PlanResponse> answer = AskWithin(request, began);
    failure_ = answer.ok() || IsTheQuestionsFault(answer.status()) ? OkStatus() : answer.status();
    if (!failure_.ok()) {
      client_.reset();
      try_again_ =
          now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.retry_after_s));
    }
    return answer;
  }

  // What connecting took is taken from what the answer may.
  StatusOr<v1::PlanResponse> AskWithin(const v1::PlanRequest& request, Clock::time_point began) {
    if (!client_) {
      auto connected = PlannerClient::Connect(options_.planner);
      // A wrong address or certificate is no fault of the question: the job goes on without its planner.
      if (!connected.ok()) return Unavailable(connected.status().message());
      client_ = *std::move(connected);
    }
    const double left_s = options_.planner.deadline_s - std::chrono::duration<double>(Clock::now() - began).count();
    return client_->Plan(request, std::max(left_s, 1e-3));
  }

  const JobPlannerOptions options_;
  const KeptPlans kept_;
  std::mutex mutex_;
  std::unique_ptr<PlannerClient> client_;
  Status failure_;  // The last, while the planner is left alone.
  Clock::time_point try_again_;
};

JobPlanner::JobPlanner(JobPlannerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
JobPlanner::~JobPlanner() = default;
StatusOr<JobPlan> JobPlanner::Plan(const v1::PlanRequest& request) { return impl_->Plan(request); }

}  // namespace moeplan::client
