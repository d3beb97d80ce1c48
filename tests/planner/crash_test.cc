// No sample that a planner acknowledged is lost, or there twice, when the planner is killed at any moment.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "models/text.h"
#include "service_fixture.h"
#include "tests/test_seed.h"

extern char** environ;

namespace moeplan::service {
namespace {

using std::chrono::microseconds;

// A planner in a process of its own.
class KillableServer {
 public:
  explicit KillableServer(const std::filesystem::path& db) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string program = MOEPLAN_CRASH_SERVER, path = db.string();
    char* arguments[] = {program.data(), path.data(), nullptr};
    if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = ends[0];
  }
  ~KillableServer() {
    Kill();
    close(output_);
  }
  KillableServer(const KillableServer&) = delete;
  KillableServer& operator=(const KillableServer&) = delete;

  // Empty when it ended before it served.
  std::string AwaitAddress() const {
    std::string address;
    for (char letter = 0; read(output_, &letter, 1) == 1 && letter != '\n';) address += letter;
    return address;
  }

  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the planner ended by itself";
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

// A request whose samples are known by their times, which no other sample has.
struct Request {
  std::string id;
  bool put = false;  // Fitted, too.
  std::vector<double> times_s;
};

// One caller: sends a request again until it is acknowledged, then the next, and now and then an old one.
class Caller {
 public:
  Caller(int number, std::uint64_t seed) : number_(number), random_(seed + static_cast<std::uint64_t>(number)) {}

  // Until the planner is gone.
  void Send(const std::string& address, std::atomic<int>& acknowledged_by_all) {
    const auto client = client::PlannerClient::Connect({.address = address, .deadline_s = 30});
    if (!client.ok()) return;
    for (;;) {
      if (pending_.id.empty()) pending_ = NextRequest();
      if (!Answered(**client, pending_)) return;
      acknowledged_.push_back(std::exchange(pending_, {}));
      ++acknowledged_by_all;
      if (Int(0, 9) == 0 &&
          !Answered(**client, acknowledged_[static_cast<size_t>(Int(0, static_cast<int>(acknowledged_.size()) - 1))])) {
        return;
      }
    }
  }

  const std::vector<Request>& acknowledged() const { return acknowledged_; }
  const Request& pending() const { return pending_; }  // Without an id: none.

 private:
  int Int(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  Request NextRequest() {
    Request request = {.id = StrCat(number_, "/", requests_), .put = number_ == 0 && requests_ % 8 == 0};
    ++requests_;
    for (int i = Int(1, 10); i > 0; --i) {
      // Picoseconds, of which each caller has every eighth.
      request.times_s.push_back(1e-3 + 1e-12 * (samples_ * 8 + number_));
      ++samples_;
    }
    return request;
  }

  static v1::Samples SamplesOf(const Request& request) {
    v1::Samples samples;
    samples.set_name(request.put ? "put" : "appended");
    samples.mutable_cluster()->set_nodes(1);
    samples.mutable_cluster()->set_gpus_per_node(1);
    for (const double time_s : request.times_s) {
      v1::Sample& sample = *samples.add_samples();
      sample.set_kernel(v1::Kernel::GATE);
      sample.set_bytes(1024);
      sample.add_time_s(time_s);
      (*sample.mutable_provenance())["hostname"] = "node 1";
    }
    return samples;
  }

  // Whether it was acknowledged; an answer must be the right one, an error that the planner is gone.
  static bool Answered(const client::PlannerClient& client, const Request& request) {
    return request.put ? Acknowledged(Put(client, request), request) : Acknowledged(Append(client, request), request);
  }
  static StatusOr<v1::PutSamplesResponse> Put(const client::PlannerClient& client, const Request& request) {
    v1::PutSamplesRequest message;
    message.set_request_id(request.id);
    *message.mutable_samples() = SamplesOf(request);
    return client.PutSamples(message);
  }
  static StatusOr<v1::AppendSamplesResponse> Append(const client::PlannerClient& client, const Request& request) {
    v1::AppendSamplesRequest message;
    message.set_request_id(request.id);
    *message.mutable_samples() = SamplesOf(request);
    message.set_calibration("session");
    return client.AppendSamples(message);
  }
  template <typename Response>
  static bool Acknowledged(const StatusOr<Response>& response, const Request& request) {
    if (!response.ok()) {
      EXPECT_EQ(response.status().code(), StatusCode::kUnavailable) << response.status().message();
      return false;
    }
    EXPECT_EQ(response->stored_samples(), std::ssize(request.times_s));
    EXPECT_EQ(response->rejected_samples(), 0);
    return true;
  }

  const int number_;
  std::mt19937_64 random_;
  int requests_ = 0, samples_ = 0;
  std::vector<Request> acknowledged_;
  Request pending_;
};

using CrashTest = ServiceTest;

// How often each time is in the store.
std::map<double, int> StoredTimes(const std::filesystem::path& db) {
  std::map<double, int> times;
  const auto store = Store::OpenReadOnly(db);
  if (!store.ok()) {
    EXPECT_EQ(store.status().code(), StatusCode::kNotFound) << store.status().message();  // Killed before it made it.
    return times;
  }
  const auto calibrations = store->SamplesOf({});
  if (!calibrations.ok()) {
    EXPECT_EQ(calibrations.status().code(), StatusCode::kNotFound) << calibrations.status().message();
    return times;
  }
  for (const Calibration& calibration : *calibrations) {
    for (const Sample& sample : calibration.samples.samples) ++times[sample.times_s.at(0)];
  }
  return times;
}

// Removes a request's samples; how many of them there were, each once at most.
int TakeOnce(std::map<double, int>& stored, const Request& request) {
  int found = 0;
  for (const double time_s : request.times_s) {
    const auto entry = stored.find(time_s);
    if (entry == stored.end()) continue;
    EXPECT_EQ(entry->second, 1) << "request " << request.id << " is there twice";
    stored.erase(entry);
    ++found;
  }
  return found;
}

void ExpectNothingLostOrDoubled(const std::filesystem::path& db, const std::vector<std::unique_ptr<Caller>>& callers) {
  std::map<double, int> stored = StoredTimes(db);
  for (const auto& caller : callers) {
    for (const Request& request : caller->acknowledged()) {
      EXPECT_EQ(TakeOnce(stored, request), std::ssize(request.times_s)) << "request " << request.id << " was lost";
    }
    const int found = TakeOnce(stored, caller->pending());
    EXPECT_TRUE(found == 0 || found == std::ssize(caller->pending().times_s)) << "half a request is there";
  }
  EXPECT_TRUE(stored.empty()) << stored.size() << " samples of nobody";
}

TEST_F(CrashTest, AcknowledgedSamplesOutliveFiftyKillsOfThePlannerUnderLoad) {
  constexpr int kKills = 50, kCallers = 6;
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int number = 0; number < kCallers; ++number) callers.push_back(std::make_unique<Caller>(number, seed));
  std::atomic<int> acknowledged = 0;
  for (int kill = 0; kill < kKills && !HasFailure(); ++kill) {
    KillableServer server(db());
    // One in five dies while it opens the database, the others somewhere under load.
    if (kill % 5 == 0) {
      std::this_thread::sleep_for(microseconds(std::uniform_int_distribution(0, 30000)(random)));
    } else {
      const std::string address = server.AwaitAddress();
      ASSERT_FALSE(address.empty());
      std::vector<std::jthread> threads;
      for (const auto& caller : callers) threads.emplace_back([&] { caller->Send(address, acknowledged); });
      std::this_thread::sleep_for(microseconds(std::uniform_int_distribution(0, 250000)(random)));
      server.Kill();  // And the callers find out.
    }
    server.Kill();
    ExpectNothingLostOrDoubled(db(), callers);
  }
  std::cout << kKills << " kills, " << acknowledged << " requests acknowledged\n";
  EXPECT_GT(acknowledged, kKills);
}

}  // namespace
}  // namespace moeplan::service
