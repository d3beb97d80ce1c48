#include "planner/service/http/endpoint.h"

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "planner/service/errors.h"
#include "planner/service/http/session.h"

namespace moeplan::service::http {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

constexpr int kThreads = 2;
constexpr std::chrono::milliseconds kMomentToEnd{500};
constexpr std::chrono::milliseconds kPauseAfterFailedAccept{50};

asio::ssl::context ContextOf(const Tls& tls) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1);
  context.use_certificate_chain(asio::buffer(tls.certificate));
  context.use_private_key(asio::buffer(tls.key), asio::ssl::context::pem);
  if (!tls.client_authority.empty()) {
    context.add_certificate_authority(asio::buffer(tls.client_authority));
    // Without a name for its sessions OpenSSL fails clients that come back with one.
    constexpr unsigned char kSessions[] = "moeplan";
    SSL_CTX_set_session_id_context(context.native_handle(), kSessions, sizeof kSessions - 1);
    context.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  }
  return context;
}

class Listener final : public Endpoint {
 public:
  Listener(const HostPort& address, Routes::Uses uses, const Limits& limits)
      : address_(address), routes_(std::move(uses)), limits_(limits) {}

  ~Listener() override { Shutdown(std::chrono::milliseconds(0)); }

  Status Start(const Tls& tls) {
    boost::system::error_code problem;
    if (!tls.certificate.empty()) tls_.emplace(ContextOf(tls));
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(address_.host, std::to_string(address_.port), problem);
    if (!problem) Open(found.begin()->endpoint(), problem);
    if (problem) return error::CannotListen("--http", ToString(address_), problem.message());
    Accept();
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { io_.run(); });
    return OkStatus();
  }

  HostPort address() const override { return address_; }
  void SetNotServing() override { routes_.SetNotServing(); }

  void Shutdown(std::chrono::milliseconds grace) override {
    if (threads_.empty()) return;
    // Whoever comes meanwhile is told that it is ending.
    const auto limit = std::chrono::steady_clock::now() + grace;
    while (traffic_->answering > 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ending_ = true;
    asio::post(io_, [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    // Those that are left are told to stop, and get a moment to say so.
    traffic_->ending.request_stop();
    const auto moment = std::chrono::steady_clock::now() + kMomentToEnd;
    while (traffic_->answering > 0 && std::chrono::steady_clock::now() < moment) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    io_.stop();
    threads_.clear();
  }

 private:
  void Open(const tcp::endpoint& endpoint, boost::system::error_code& problem) {
    acceptor_.open(endpoint.protocol(), problem);
    // What a server that ended just now left behind is no obstacle; sharing the port with another is not offered.
    if (!problem) acceptor_.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem) acceptor_.bind(endpoint, problem);
    if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
    if (!problem) address_.port = acceptor_.local_endpoint(problem).port();
  }

  void Accept() {
    acceptor_.async_accept(asio::make_strand(io_),
                           [this](const boost::system::error_code& problem, tcp::socket socket) {
                             if (ending_) return;
                             if (problem) return AcceptLater();
                             // A socket that is not taken over is closed here.
                             if (traffic_->connections < limits_.connections) {
                               StartSession(std::move(socket), tls_ ? &*tls_ : nullptr, {routes_, limits_, traffic_});
                             }
                             Accept();
                           });
  }

  // Out of file descriptors, most likely; others may end meanwhile.
  void AcceptLater() {
    pause_.expires_after(kPauseAfterFailedAccept);
    pause_.async_wait([this](const boost::system::error_code&) {
      if (!ending_) Accept();
    });
  }

  HostPort address_;
  Routes routes_;
  const Limits limits_;
  std::optional<asio::ssl::context> tls_;
  const std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
  std::atomic<bool> ending_ = false;
  asio::io_context io_{kThreads};  // Sessions live in it, and use what is above.
  tcp::acceptor acceptor_{io_};
  asio::steady_timer pause_{io_};
  std::vector<std::jthread> threads_;
};

}  // namespace

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Start(const HostPort& address, const Tls& tls, Routes::Uses uses,
                                                    const Limits& limits) {
  auto listener = std::make_unique<Listener>(address, std::move(uses), limits);
  RETURN_IF_ERROR(listener->Start(tls));
  return std::unique_ptr<Endpoint>(std::move(listener));
}

}  // namespace moeplan::service::http
