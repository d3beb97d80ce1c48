#include "planner/service/http_endpoint.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "planner/service/errors.h"

namespace moeplan::service {
namespace {

constexpr int kThreads = 2;
constexpr size_t kMaxBodyBytes = 64 << 10;

void Answer(const nlohmann::ordered_json& body, httplib::Response& response) {
  response.set_content(body.dump() + "\n", "application/json");
}

void ReuseAddress(socket_t socket_fd) {
  const int yes = 1;
  setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

class Endpoint final : public HttpEndpoint {
 public:
  Endpoint(const HostPort& address, std::string grpc_address)
      : address_(address), grpc_address_(std::move(grpc_address)) {
    Harden();
    server_.Get("/healthz", [this](const httplib::Request&, httplib::Response& response) { Healthz(response); });
    server_.Get("/", [this](const httplib::Request&, httplib::Response& response) { Root(response); });
  }

  ~Endpoint() override {
    if (!listener_.joinable()) return;
    server_.stop();
    listener_.join();
  }

  bool Start() {
    if (!Bind()) return false;
    listener_ = std::thread([this] { server_.listen_after_bind(); });
    // A stop() before the thread listens would be lost, and the thread never end.
    while (!server_.is_running()) std::this_thread::yield();
    return true;
  }

  HostPort address() const override { return address_; }
  void SetNotServing() override { serving_ = false; }

 private:
  void Harden() {
    // The library's own choice has SO_REUSEPORT, with which a second server would silently share the port.
    server_.set_socket_options(ReuseAddress);
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kMaxBodyBytes);
    server_.set_read_timeout(std::chrono::seconds(5));
    server_.set_write_timeout(std::chrono::seconds(5));
    server_.set_keep_alive_max_count(1);  // An idle connection would hold up the end.
    server_.set_default_headers(
        {{"Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
         {"X-Content-Type-Options", "nosniff"},
         {"Referrer-Policy", "no-referrer"},
         {"Cache-Control", "no-store"}});
  }

  bool Bind() {
    if (address_.port != 0) return server_.bind_to_port(address_.host, address_.port);
    address_.port = server_.bind_to_any_port(address_.host);
    return address_.port > 0;
  }

  void Healthz(httplib::Response& response) const {
    response.status = serving_ ? 200 : 503;
    Answer({{"status", serving_ ? "SERVING" : "NOT_SERVING"}, {"version", MOEPLAN_VERSION}}, response);
  }

  void Root(httplib::Response& response) const {
    Answer({{"name", "moeplan"},
            {"version", MOEPLAN_VERSION},
            {"grpcAddress", grpc_address_},
            {"dashboard", "not in this version"}},
           response);
  }

  HostPort address_;
  const std::string grpc_address_;
  std::atomic<bool> serving_ = true;
  httplib::Server server_;
  std::thread listener_;
};

}  // namespace

StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(const HostPort& address, const std::string& grpc_address) {
  auto endpoint = std::make_unique<Endpoint>(address, grpc_address);
  if (!endpoint->Start()) return error::CannotListen("--http", ToString(address), "the HTTP library did not say why");
  return StatusOr<std::unique_ptr<HttpEndpoint>>(std::move(endpoint));
}

}  // namespace moeplan::service
