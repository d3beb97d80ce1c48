// What answering a plan from memory costs beside answering nothing: h2load (Debian's nghttp2-client) asks a planner for
// `best` and an empty unary method of the same gRPC in turns, each in a process of its own, then the planner at half
// its load.
//
//   service_bench [ROUNDS] [CALLS]    5 and 40000; the last line says whether the aims are met, and so does the exit.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "models/check.h"
#include "models/text.h"
#include "planner/client/planner_client.h"
#include "planner/service/server.h"
#include "proto/json.h"
#include "tests/bench/empty_service.grpc.pb.h"

namespace moeplan {
namespace {

constexpr double kLeastShare = 0.8;
constexpr double kLongestP99Ms = 5;
constexpr int kClients = 8, kStreams = 8;

class EmptyService final : public bench::EmptyService::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const bench::Nothing*,
                                 bench::Nothing*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// A process that serves until it is told to end, and says where.
class Served {
 public:
  explicit Served(const std::function<void(int say_fd)>& serve) {
    int ends[2];
    MOEPLAN_CHECK(pipe(ends) == 0);
    process_ = fork();
    MOEPLAN_CHECK(process_ >= 0);
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      serve(ends[1]);
      pause();
    }
    close(ends[1]);
    char byte = 0;
    while (read(ends[0], &byte, 1) == 1 && byte != '\n') address_.push_back(byte);
    close(ends[0]);
  }
  ~Served() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  const std::string& address() const { return address_; }

 private:
  pid_t process_ = 0;
  std::string address_;
};

void Say(int say_fd, const std::string& address) {
  MOEPLAN_CHECK(write(say_fd, (address + "\n").data(), address.size() + 1) > 0);
}

void ServeNothing(int say_fd) {
  static EmptyService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  static const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Say(say_fd, StrCat("127.0.0.1:", port));
}

template <typename Message>
Message Example(const std::string& name) {
  const auto message = ReadJsonFile<Message>(StrCat(MOEPLAN_TEST_DATA, "/contract/", name));
  MOEPLAN_CHECK(message.ok());
  return *message;
}

// The example's profile and plan, as a server that has been asked before has them.
class Question {
 public:
  explicit Question(const std::string& address) {
    const auto client = client::PlannerClient::Connect({.address = address, .deadline_s = 60});
    MOEPLAN_CHECK(client.ok());
    v1::PutProfileRequest put;
    put.set_request_id("bench");
    *put.mutable_profile() = Example<v1::Profile>("profile.example.json");
    MOEPLAN_CHECK((*client)->PutProfile(put).ok());
    request_.set_view(v1::PlanRequest::BEST);
    *request_.mutable_workload() = Example<v1::Workload>("workload.example.json");
    const auto answer = (*client)->Plan(request_);
    MOEPLAN_CHECK(answer.ok() && answer->has_best());
    answer_bytes_ = answer->ByteSizeLong();
  }
  std::string bytes() const { return request_.SerializeAsString(); }
  size_t answer_bytes() const { return answer_bytes_; }

 private:
  v1::PlanRequest request_;
  size_t answer_bytes_ = 0;
};

// As gRPC frames a message.
void WriteFrame(const std::string& path, const std::string& message) {
  std::ofstream file(path, std::ios::binary);
  const auto size = static_cast<uint32_t>(message.size());
  file.put('\0');
  for (const int shift : {24, 16, 8, 0}) file.put(static_cast<char>(size >> shift & 255));
  file << message;
}

struct Load {
  std::string url, body_file;
};

std::string Output(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  MOEPLAN_CHECK(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  MOEPLAN_CHECK(pclose(pipe) == 0);
  return text;
}

std::string Command(const Load& load, int calls, const std::string& more) {
  return StrCat("h2load -t 1 -c ", kClients, " -m ", kStreams, " -n ", calls, " ", more,
                " -H 'content-type: application/grpc' -H 'te: trailers' -d ", load.body_file, " ", load.url, " 2>&1");
}

// Calls per second.
double Throughput(const Load& load, int calls) {
  const std::string text = Output(Command(load, calls, ""));
  MOEPLAN_CHECK(text.find(StrCat(calls, " succeeded, 0 failed")) != std::string::npos);
  const size_t at = text.find("finished in ");
  MOEPLAN_CHECK(at != std::string::npos);
  return std::atof(text.c_str() + text.find(", ", at) + 2);
}

// The 99th percentile of the times of calls that come at a rate, in ms.
double P99Ms(const Load& load, double rate, const std::string& log) {
  const int per_client = std::max(1, static_cast<int>(rate / kClients));
  std::filesystem::remove(log);
  Output(Command(load, per_client * kClients * 4, StrCat("--rps ", per_client, " --log-file=", log)));
  std::ifstream file(log);
  std::vector<double> ms;
  for (std::string began, status, us; file >> began >> status >> us;) ms.push_back(std::stod(us) * 1e-3);
  MOEPLAN_CHECK(!ms.empty());
  const auto p99 = ms.begin() + static_cast<std::ptrdiff_t>(ms.size() * 99 / 100);
  std::nth_element(ms.begin(), p99, ms.end());
  return *p99;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int Run(int rounds, int calls) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / StrCat("service_bench.", getpid());
  std::filesystem::create_directories(folder);
  const Served nothing(&ServeNothing);
  const Served planner([&](int say_fd) {
    static const auto server = service::Server::Start(
        {.store = folder / "bench.db", .grpc_address = "127.0.0.1:0", .http_address = "127.0.0.1:0"});
    MOEPLAN_CHECK(server.ok());
    Say(say_fd, (*server)->grpc_address());
  });
  const Question question(planner.address());
  WriteFrame(folder / "plan", question.bytes());
  WriteFrame(folder / "nothing", "");
  const Load plans = {StrCat("http://", planner.address(), "/moeplan.v1.PlannerService/Plan"), folder / "plan"};
  const Load nothings = {StrCat("http://", nothing.address(), "/moeplan.bench.EmptyService/Call"), folder / "nothing"};
  std::printf("%d connections of %d streams; a question of %zu bytes, an answer of %zu\n", kClients, kStreams,
              question.bytes().size(), question.answer_bytes());
  std::vector<double> plan_rates, shares;
  for (int round = 0; round < rounds; ++round) {
    const double empty_rate = Throughput(nothings, calls);
    plan_rates.push_back(Throughput(plans, calls));
    shares.push_back(plan_rates.back() / empty_rate);
    std::printf("empty %.0f calls/s, plans %.0f calls/s, %.1f %%\n", empty_rate, plan_rates.back(),
                100 * shares.back());
  }
  const double half = Median(plan_rates) / 2;
  std::vector<double> p99_ms;
  for (int round = 0; round < rounds; ++round) p99_ms.push_back(P99Ms(plans, half, folder / "log"));
  const double share = Median(shares), p99 = Median(p99_ms);
  const bool met = share >= kLeastShare && p99 <= kLongestP99Ms;
  std::printf("median %.1f %% (aim %.0f), p99 at %.0f calls/s %.2f ms (aim %.0f): %s\n", 100 * share, 100 * kLeastShare,
              half, p99, kLongestP99Ms, met ? "met" : "not met");
  std::filesystem::remove_all(folder);
  return met ? 0 : 1;
}

}  // namespace
}  // namespace moeplan

int main(int argc, char** argv) {
  return moeplan::Run(argc > 1 ? std::atoi(argv[1]) : 5, argc > 2 ? std::atoi(argv[2]) : 40000);
}
