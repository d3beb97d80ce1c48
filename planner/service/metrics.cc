#include "planner/service/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "models/text.h"
#include "planner/service/calls/method.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

constexpr int kCodes = 17;  // OK to UNAUTHENTICATED.
constexpr std::array<const char*, 2> kTransports = {"grpc", "http"};

const prometheus::Histogram::BucketBoundaries kSeconds = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};

double SecondsSince(Call::Clock::time_point began) {
  return std::chrono::duration<double>(Call::Clock::now() - began).count();
}

// Seconds since 1970 at which this process started.
double StartTimeS() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // The 22nd of all: clock ticks since the machine's start.
  std::ifstream machine("/proc/stat");
  double boot_s = 0;
  for (std::string line; std::getline(machine, line);) {
    if (line.starts_with("btime ")) boot_s = std::stod(line.substr(6));
  }
  return boot_s + std::atof(field.c_str()) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  std::error_code ignored;
  return static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/fd", ignored), {}));
}

}  // namespace

class Metrics::Impl {
 public:
  explicit Impl(std::function<Now()> now) : now_(std::move(now)) {
    for (const Method& method : Methods()) AddMethod(method);
    for (const Method& stream : StreamMethods()) streams_.emplace_back().name = stream.path.substr(1);
    Gauge("moeplan_build_info", "The version that runs.", {{"version", MOEPLAN_VERSION}}).Set(1);
    Gauge("process_start_time_seconds", "When the process started, in seconds since 1970.").Set(StartTimeS());
  }

  void Count(const Method& of, std::string_view transport, int code, double seconds) {
    PerMethod& method = of.streams ? streams_[static_cast<size_t>(&of - StreamMethods().data())]
                                   : methods_[static_cast<size_t>(&of - Methods().data())];
    CounterOf(method, transport == kTransports[0] ? 0 : 1, code).Increment();
    if (method.duration != nullptr) method.duration->Observe(seconds);
  }

  void Answered(const Call& call, const Answer& answer) {
    const int code = std::min<int>(answer.status.error_code(), kCodes - 1);
    Count(call.method(), call.transport(), code, SecondsSince(call.began()));
    if (code == grpc::RESOURCE_EXHAUSTED && !call.method().streams) shed_.Increment();
    if (code == grpc::UNAUTHENTICATED || code == grpc::PERMISSION_DENIED) CountRefusal(answer.status);
  }

  // For want of a good token alone: files may refuse, too.
  void CountRefusal(const grpc::Status& why) {
    const std::string reason = DetailOf(why).reason;
    if (why.error_code() == grpc::PERMISSION_DENIED && reason != "ROLE_TOO_LOW") return;
    refusals_.Add({{"reason", reason}}).Increment();
  }

  void ConnectionRefused() { connections_refused_.Increment(); }

  void Searched(double seconds) { searches_.Observe(seconds); }

  void Acknowledged(int stored, int rejected) {
    stored_.Increment(stored);
    rejected_.Increment(rejected);
  }

  void Reported() { runs_.Increment(); }

  void Fitted(const Profile& profile) {
    std::vector<double> p50, p95;
    const auto add = [&](const auto& entries) {
      for (const auto& entry : entries) {
        if (!entry.model.fit) continue;
        p50.push_back(entry.model.fit->relative_error_p50);
        p95.push_back(entry.model.fit->relative_error_p95);
      }
    };
    add(profile.collectives);
    add(profile.kernels);
    if (p50.empty()) return;  // Written by hand: nothing is known of its errors.
    fit_errors_.Add({{"profile", profile.name}, {"quantile", "0.5"}}).Set(Median(std::move(p50)));
    fit_errors_.Add({{"profile", profile.name}, {"quantile", "0.95"}}).Set(Median(std::move(p95)));
  }

  std::string Page() {
    const Now now = now_();
    const std::scoped_lock one_page_at_a_time(page_mutex_);
    agents_attached_.Set(now.agents_attached);
    agents_missing_.Set(now.agents_missing);
    RaiseTo(calibrations_done_, now.calibrations_done);
    RaiseTo(calibrations_failed_, now.calibrations_failed);
    RaiseTo(calibrations_cancelled_, now.calibrations_cancelled);
    watchers_.Set(now.watchers);
    for (const auto& [profile, drifts] : now.drifts) {
      RaiseTo(drift_events_.Add({{"profile", profile}}), drifts.found);
      drift_keys_.Add({{"profile", profile}}).Set(drifts.off);
    }
    in_progress_.Set(now.calls_in_progress);
    cache_bytes_.Set(now.cache_bytes);
    database_bytes_.Set(now.database_bytes);
    resident_.Set(ResidentBytes());
    files_.Set(OpenFiles());
    RaiseTo(cache_hits_, static_cast<double>(now.cache_hits));
    RaiseTo(cache_misses_, static_cast<double>(now.cache_misses));
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }

 private:
  struct PerMethod {
    std::string name;
    prometheus::Histogram* duration = nullptr;  // Null: a stream's, which lasts as long as it is wanted.
    std::array<std::array<std::atomic<prometheus::Counter*>, kCodes>, 2> answered = {};  // Made when first needed.
  };

  prometheus::Gauge& Gauge(const char* name, const char* help, const prometheus::Labels& labels = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels);
  }
  prometheus::Counter& Counter(const char* name, const char* help, const prometheus::Labels& labels = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
  }
  prometheus::Counter& Calibrations(const char* result) {
    return Counter("moeplan_calibrations_total", "Calibrations that ended since the planner started.",
                   {{"result", result}});
  }
  prometheus::Gauge& Agents(const char* state) {
    return Gauge("moeplan_agents", "Agents, attached or missing.", {{"state", state}});
  }

  static double Median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  void AddMethod(const Method& of) {
    PerMethod& method = methods_.emplace_back();
    method.name = of.path.substr(1);
    method.duration = &durations_.Add({{"method", method.name}}, kSeconds);
  }

  prometheus::Counter& CounterOf(PerMethod& method, int transport, int code) {
    std::atomic<prometheus::Counter*>& place = method.answered[transport][code];
    prometheus::Counter* counter = place.load(std::memory_order_acquire);
    if (counter == nullptr) {
      // The same for equal labels, so that two threads may both ask.
      counter = &requests_.Add({{"method", method.name},
                                {"code", std::string(CodeName(static_cast<grpc::StatusCode>(code)))},
                                {"transport", kTransports[transport]}});
      place.store(counter, std::memory_order_release);
    }
    return *counter;
  }

  static void RaiseTo(prometheus::Counter& counter, double value) { counter.Increment(value - counter.Value()); }

  const std::function<Now()> now_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_ = prometheus::BuildCounter()
                                                           .Name("moeplan_requests_total")
                                                           .Help("Calls answered, by method, code and transport.")
                                                           .Register(registry_);
  prometheus::Family<prometheus::Histogram>& durations_ = prometheus::BuildHistogram()
                                                              .Name("moeplan_request_duration_seconds")
                                                              .Help("From a call's arrival to its answer.")
                                                              .Register(registry_);
  prometheus::Family<prometheus::Counter>& refusals_ = prometheus::BuildCounter()
                                                           .Name("moeplan_auth_failures_total")
                                                           .Help("Calls refused for want of a good token, by reason.")
                                                           .Register(registry_);
  prometheus::Counter& shed_ = Counter("moeplan_requests_shed_total", "Calls turned away because the queue was full.");
  prometheus::Counter& connections_refused_ =
      Counter("moeplan_grpc_connections_refused_total",
              "gRPC connections closed at once, as there were --max-grpc-connections.");
  prometheus::Counter& cache_hits_ = Counter("moeplan_plan_cache_hits_total", "Plans answered from memory.");
  prometheus::Counter& cache_misses_ = Counter("moeplan_plan_cache_misses_total", "Plans that were not in memory.");
  prometheus::Gauge& cache_bytes_ = Gauge("moeplan_plan_cache_bytes", "Memory of kept plans.");
  prometheus::Gauge& in_progress_ = Gauge("moeplan_requests_in_progress", "Calls that run or wait for a worker.");
  prometheus::Gauge& database_bytes_ = Gauge("moeplan_database_bytes", "Size of the database with its log.");
  prometheus::Gauge& resident_ = Gauge("process_resident_memory_bytes", "Resident memory.");
  prometheus::Gauge& files_ = Gauge("process_open_fds", "Open file descriptors.");
  prometheus::Histogram& searches_ = prometheus::BuildHistogram()
                                         .Name("moeplan_plan_search_duration_seconds")
                                         .Help("Of one search for a plan, without kept answers.")
                                         .Register(registry_)
                                         .Add({}, kSeconds);
  prometheus::Family<prometheus::Gauge>& fit_errors_ =
      prometheus::BuildGauge()
          .Name("moeplan_profile_fit_error_ratio")
          .Help("Cross-validated relative error of the newest version's fits: of the middle one of its curves.")
          .Register(registry_);
  prometheus::Counter& stored_ = Counter("moeplan_samples_stored_total", "Samples that callers brought, stored.");
  prometheus::Counter& rejected_ = Counter("moeplan_samples_rejected_total", "Samples that were set aside.");
  prometheus::Counter& calibrations_done_ = Calibrations("done");
  prometheus::Counter& calibrations_failed_ = Calibrations("failed");
  prometheus::Counter& calibrations_cancelled_ = Calibrations("cancelled");
  prometheus::Gauge& agents_attached_ = Agents("attached");
  prometheus::Gauge& agents_missing_ = Agents("missing");
  prometheus::Gauge& watchers_ = Gauge("moeplan_watchers", "Streams of WatchPlan that are open.");
  prometheus::Counter& runs_ = Counter("moeplan_runs_reported_total", "Runs that jobs reported.");
  prometheus::Family<prometheus::Counter>& drift_events_ = prometheus::BuildCounter()
                                                               .Name("moeplan_drift_events_total")
                                                               .Help("Drifts found, by profile.")
                                                               .Register(registry_);
  prometheus::Family<prometheus::Gauge>& drift_keys_ =
      prometheus::BuildGauge()
          .Name("moeplan_drift_keys")
          .Help("Costs that runs find otherwise than predicted and that were not renewed, by profile.")
          .Register(registry_);
  std::mutex page_mutex_;
  std::deque<PerMethod> methods_;  // As in Methods().
  std::deque<PerMethod> streams_;  // As in StreamMethods().
};

Metrics::Metrics(std::function<Now()> now) : impl_(std::make_unique<Impl>(std::move(now))) {}
Metrics::~Metrics() = default;
void Metrics::Answered(const Call& call, const Answer& answer) { impl_->Answered(call, answer); }
void Metrics::AnsweredQuietly(const Method& method, std::string_view transport, double seconds) {
  impl_->Count(method, transport, grpc::OK, seconds);
}
void Metrics::Refused(const grpc::Status& why) { impl_->CountRefusal(why); }
void Metrics::ConnectionRefused() { impl_->ConnectionRefused(); }
void Metrics::Searched(double seconds) { impl_->Searched(seconds); }
void Metrics::Acknowledged(int stored, int rejected) { impl_->Acknowledged(stored, rejected); }
void Metrics::Reported() { impl_->Reported(); }
void Metrics::Fitted(const Profile& profile) { impl_->Fitted(profile); }
std::string Metrics::Page() const { return impl_->Page(); }

}  // namespace moeplan::service
