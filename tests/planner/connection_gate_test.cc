#include "planner/service/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "models/text.h"
#include "service_fixture.h"

namespace moeplan::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr std::chrono::seconds kSoon(30);

template <typename Condition>
bool Await(const Condition& condition) {
  for (const auto limit = steady_clock::now() + kSoon; !condition(); std::this_thread::sleep_for(milliseconds(1))) {
    if (steady_clock::now() > limit) return false;
  }
  return true;
}

class Caller {
 public:
  explicit Caller(int port = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (port > 0) Connect(port);
  }
  ~Caller() { close(fd_); }
  Caller(const Caller&) = delete;

  void Connect(int port) const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<in_port_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  // Whether the other end closes it within the limit.
  bool Closed(milliseconds limit) const {
    pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return poll(&readable, 1, static_cast<int>(limit.count())) > 0 && recv(fd_, &byte, 1, 0) <= 0;
  }
  // The same whatever the other end says before.
  bool Ends(milliseconds limit) const {
    char said[512];
    for (const auto until = steady_clock::now() + limit; steady_clock::now() < until;) {
      pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
      const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
      if (poll(&readable, 1, static_cast<int>(left.count())) > 0 && recv(fd_, said, sizeof said, 0) <= 0) return true;
    }
    return false;
  }

 private:
  const int fd_;
};

// A gate whose connections stay open until they are told otherwise.
class ConnectionGateTest : public testing::Test {
 protected:
  ~ConnectionGateTest() override {
    gate_.reset();
    for (const int fd : taken_) close(fd);
  }

  void Listen(const std::string& address, int most) {
    auto gate = ConnectionGate::Listen(*ParseHostPort(address, "--grpc"));
    ASSERT_TRUE(gate.ok()) << gate.status().message();
    gate_ = *std::move(gate);
    gate_->Open({.most_connections = most,
                 .unacknowledged_ms = 20000,
                 .take =
                     [this](int fd) {
                       const std::scoped_lock lock(mutex_);
                       taken_.push_back(fd);
                     },
                 .refused = [this] { ++refused_; },
                 .log =
                     [this](const LogRecord& record) {
                       const std::scoped_lock lock(mutex_);
                       records_.push_back(record);
                     }});
  }
  int port() const { return gate_->address().port; }

  size_t taken() {
    const std::scoped_lock lock(mutex_);
    return taken_.size();
  }
  bool AwaitTaken(size_t wanted) {
    return Await([&] { return taken() >= wanted; }) && taken() == wanted;
  }
  size_t records() {
    const std::scoped_lock lock(mutex_);
    return records_.size();
  }
  // Closes the first of those that were taken, and has `open` take its descriptor.
  template <typename Open>
  void Replace(const Open& open) {
    const std::scoped_lock lock(mutex_);
    const int old = taken_.front();
    const int other = open();
    dup3(other, old, O_CLOEXEC);
    close(other);
  }
  // Whether a new caller is let in, given time to see that there is room.
  bool LetsIn() {
    const size_t before = taken();
    for (const auto limit = steady_clock::now() + kSoon; steady_clock::now() < limit;) {
      const Caller caller(port());
      if (!caller.Closed(milliseconds(20)) && AwaitTaken(before + 1)) return true;
    }
    return false;
  }

  std::atomic<int> refused_ = 0;
  std::mutex mutex_;
  std::vector<int> taken_;  // Guarded by mutex_, as is the next.
  std::vector<LogRecord> records_;
  std::unique_ptr<ConnectionGate> gate_;
};

TEST_F(ConnectionGateTest, BeyondTheLimitCallersAreTurnedAwayAtOnceAndWhoRunsThePlannerIsTold) {
  Listen("127.0.0.1:0", 2);
  const Caller first(port()), second(port());
  ASSERT_TRUE(AwaitTaken(2));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Caller(port()).Closed(kSoon)) << i;
  EXPECT_EQ(refused_, 20);
  EXPECT_EQ(taken(), 2u);
  EXPECT_FALSE(first.Closed(milliseconds(0)));
  const std::scoped_lock lock(mutex_);
  ASSERT_EQ(records_.size(), 1u);  // Once a minute.
  EXPECT_THAT(records_[0].event, HasSubstr("--max-grpc-connections"));
}

TEST_F(ConnectionGateTest, ThereIsRoomAgainWhenAConnectionEnds) {
  Listen("127.0.0.1:0", 2);
  const Caller first(port()), second(port());
  ASSERT_TRUE(AwaitTaken(2));
  EXPECT_TRUE(Caller(port()).Closed(kSoon));
  {
    const std::scoped_lock lock(mutex_);
    close(taken_.front());
    taken_.front() = -1;
  }
  EXPECT_TRUE(LetsIn());
}

TEST_F(ConnectionGateTest, ADescriptorThatIsSomebodyElsesNowIsNoConnection) {
  Listen("127.0.0.1:0", 1);
  const Caller first(port());
  ASSERT_TRUE(AwaitTaken(1));
  Replace([] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  EXPECT_TRUE(LetsIn());
}

TEST_F(ConnectionGateTest, WhileThereIsRoomNobodyIsTurnedAwayHoweverManyCame) {
  Listen("127.0.0.1:0", 2);
  const Caller stays(port());
  ASSERT_TRUE(AwaitTaken(1));
  for (size_t i = 0; i < 100; ++i) {
    const Caller comes(port());
    ASSERT_TRUE(AwaitTaken(2 + i)) << i;
    const std::scoped_lock lock(mutex_);
    close(taken_.back());
    // Every second time something else has its descriptor from then on.
    taken_.back() = i % 2 == 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
}

TEST_F(ConnectionGateTest, WhoeverGetsTheDescriptorOfOneThatEndedIsLetInWithoutACount) {
  Listen("127.0.0.1:0", 2);
  const Caller first(port()), second(port());
  ASSERT_TRUE(AwaitTaken(2));
  const Caller next;
  ASSERT_TRUE(Caller(port()).Closed(kSoon));  // It has just been counted.
  {
    const std::scoped_lock lock(mutex_);
    close(taken_.front());
    taken_.front() = -1;
  }
  next.Connect(port());
  EXPECT_TRUE(AwaitTaken(3));
}

// While it lives, this process gets no descriptor of that number or above.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int limit) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lower = {.rlim_cur = static_cast<rlim_t>(limit), .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~DescriptorLimit() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  DescriptorLimit(const DescriptorLimit&) = delete;

 private:
  rlimit before_ = {};
};

int LowestFreeDescriptor() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(fd);
  return fd;
}

TEST_F(ConnectionGateTest, OutOfDescriptorsItSaysSoAndGoesOnWhenThereAreSomeAgain) {
  Listen("127.0.0.1:0", 100);
  const Caller caller;
  {
    const DescriptorLimit none_left(LowestFreeDescriptor());
    caller.Connect(port());
    ASSERT_TRUE(Await([&] { return records() > 0; }));
    EXPECT_EQ(taken(), 0u);
  }
  EXPECT_TRUE(AwaitTaken(1));
  const std::scoped_lock lock(mutex_);
  ASSERT_EQ(records_.size(), 1u);  // Once a minute.
  EXPECT_EQ(records_[0].facts.front().second, "Too many open files");
}

// Below the number of those waited for, the kernel does not even wait.
TEST_F(ConnectionGateTest, WhereNothingCanBeWaitedForItPausesAndEndsAllTheSame) {
  Listen("127.0.0.1:0", 100);
  const Caller caller;
  timespec before = {}, after = {};
  {
    const DescriptorLimit none(0);
    caller.Connect(port());
    ASSERT_TRUE(Await([&] { return records() > 0; }));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    std::this_thread::sleep_for(milliseconds(500));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    gate_.reset();
  }
  EXPECT_LT(after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9, 0.1);
}

TEST_F(ConnectionGateTest, WildcardsAndNamesAreReachedOverIpv4) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "localhost:0"}) {
    const size_t before = taken();
    Listen(address, 100);
    EXPECT_GT(port(), 0);
    const Caller caller(port());
    EXPECT_TRUE(AwaitTaken(before + 1)) << address;
  }
}

TEST_F(ConnectionGateTest, AnAddressInUseAndOneOfAnotherMachineAreNamed) {
  Listen("127.0.0.1:0", 1);
  EXPECT_THAT(ConnectionGate::Listen({"127.0.0.1", port()}),
              IsError(StatusCode::kUnavailable, "is in use; stop the server that listens there"));
  EXPECT_THAT(ConnectionGate::Listen({"192.0.2.1", 0}), IsError(StatusCode::kUnavailable, "192.0.2.1:0"));
}

// How many sockets of this process are accepted ones of that port.
int AcceptedBy(int port) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    int listens = 0;
    socklen_t listens_size = sizeof listens;
    count += getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && ntohs(address.sin_port) == port &&
             getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) == 0 && listens == 0;
  }
  return count;
}

// Through a whole planner, where gRPC closes the sockets.
TEST_F(ServiceTest, GrpcConnectionsBeyondTheLimitAreClosedAndThereIsRoomAgain) {
  ServerOptions options = Options();
  options.max_grpc_connections = 2;
  const auto server = Started(std::move(options));
  const int port = ParseHostPort(server->grpc_address(), "")->port;
  const auto answered = [&] {
    const auto client = client::PlannerClient::Connect({.address = server->grpc_address(), .deadline_s = 5});
    return client.ok() && (*client)->ListProfiles({}).ok();
  };
  // Each client has a connection of its own, which gRPC closes some time after the client has.
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(answered()) << i;
    ASSERT_TRUE(Await([&] { return AcceptedBy(port) == 0; })) << i;
  }
  {
    const Caller first(port), second(port);
    ASSERT_TRUE(Await([&] { return AcceptedBy(port) == 2; }));
    EXPECT_FALSE(answered());
    EXPECT_TRUE(Caller(port).Closed(kSoon));
    EXPECT_FALSE(first.Closed(milliseconds(0)));
  }
  ASSERT_TRUE(Await([&] { return AcceptedBy(port) == 0; }));
  EXPECT_TRUE(Await(answered));
  const auto page = httplib::Client("http://" + server->http_address()).Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_THAT(page->body, ContainsRegex("\nmoeplan_grpc_connections_refused_total [1-9]"));
}

TEST_F(ServiceTest, AGrpcConnectionThatSaysNothingIsEndedAndHoldsUpNobody) {
  const auto server = Started();
  const Caller silent(ParseHostPort(server->grpc_address(), "")->port);
  EXPECT_TRUE(ClientOf(*server)->ListProfiles({}).ok());
  EXPECT_TRUE(silent.Ends(kSoon));  // After the ten seconds that a handshake has.
}

}  // namespace
}  // namespace moeplan::service
