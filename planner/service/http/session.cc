#include "planner/service/http/session.h"

#include <sys/socket.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "planner/service/access/caller.h"
#include "planner/service/http/wire.h"

namespace moeplan::service::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Error = boost::system::error_code;
using Encrypted = beast::ssl_stream<beast::tcp_stream>;

// Counts while it lives.
class Counted {
 public:
  explicit Counted(std::shared_ptr<Traffic> traffic, std::atomic<int> Traffic::*count)
      : traffic_(std::move(traffic)), count_(count) {
    ++(*traffic_.*count_);
  }
  ~Counted() { --(*traffic_.*count_); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  const std::shared_ptr<Traffic> traffic_;
  std::atomic<int> Traffic::*const count_;
};

// What a body takes of what all may take, while it lives.
class BodyBytes {
 public:
  explicit BodyBytes(std::shared_ptr<Traffic> traffic) : traffic_(std::move(traffic)) {}
  ~BodyBytes() { traffic_->body_bytes -= bytes_; }
  BodyBytes(const BodyBytes&) = delete;

  // So many bytes are there by now; the sum of all.
  size_t Grow(size_t bytes) {
    const size_t more = bytes - std::exchange(bytes_, bytes);
    return traffic_->body_bytes += more;
  }

 private:
  const std::shared_ptr<Traffic> traffic_;
  size_t bytes_ = 0;
};

// All handlers run on the socket's strand, and each keeps the session alive.
template <typename Stream>
class Session final : public std::enable_shared_from_this<Session<Stream>> {
 public:
  template <typename... StreamArguments>
  explicit Session(SessionUses uses, StreamArguments&&... arguments)
      : uses_(std::move(uses)),
        connection_(uses_.traffic, &Traffic::connections),
        stream_(std::forward<StreamArguments>(arguments)...),
        call_timer_(stream_.get_executor()) {}

  void Start() {
    Error ignored;
    const auto remote = Tcp().socket().remote_endpoint(ignored);
    if (!ignored) peer_ = remote.address().to_string() + ":" + std::to_string(remote.port());
    if constexpr (std::is_same_v<Stream, Encrypted>) {
      Tcp().expires_after(uses_.limits.head);
      stream_.async_handshake(asio::ssl::stream_base::server, Then([this](const Error& problem) {
                                if (!problem) ReadHead();
                              }));
    } else {
      ReadHead();
    }
  }

 private:
  beast::tcp_stream& Tcp() { return beast::get_lowest_layer(stream_); }

  std::string CertificateOfPeer() {
    if constexpr (std::is_same_v<Stream, Encrypted>) {
      const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(stream_.native_handle()),
                                                                    X509_free);
      return SubjectOf(certificate.get());
    }
    return "";
  }

  // A handler that keeps the session alive.
  template <typename Function>
  auto Then(Function function) {
    return [self = this->shared_from_this(), function = std::move(function)](const Error& problem, auto&&...) {
      function(problem);
    };
  }

  void ReadHead() {
    SetLimits(parser_.emplace(), uses_.limits);
    request_id_.clear();
    Tcp().expires_after(uses_.limits.head);
    beast::http::async_read_header(stream_, buffer_, *parser_,
                                   Then([this](const Error& problem) { HaveHead(problem); }));
  }

  void HaveHead(const Error& problem) {
    if (problem) return EndAfter(problem);
    answering_.emplace(uses_.traffic, &Traffic::answering);
    auto request = std::make_shared<Request>(HeadOf(*parser_, peer_));
    request_id_ = request->request_id;
    request->certificate = CertificateOfPeer();
    // The body stays unread, so the connection cannot go on.
    if (const auto refused = uses_.routes.Refuse(*request)) return Write(std::move(*refused), /*keep_alive=*/false);
    if (beast::iequals(parser_->get()["Expect"], "100-continue")) return WriteContinue(std::move(request));
    ReadBody(std::move(request));
  }

  void WriteContinue(std::shared_ptr<Request> request) {
    static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue), Then([this, request](const Error& problem) {
                        if (!problem) ReadBody(request);
                      }));
  }

  void ReadBody(std::shared_ptr<Request> request) {
    Tcp().expires_after(uses_.limits.body);
    body_bytes_.emplace(uses_.traffic);
    parser_->eager(true);
    ReadMore(std::move(request));
  }

  // A piece at a time, so that a body counts as it arrives and not as it is announced.
  void ReadMore(std::shared_ptr<Request> request) {
    if (body_bytes_->Grow(parser_->get().body().size()) > uses_.limits.all_bodies_bytes) {
      parser_->get().body() = {};
      return Write(TooManyBodies(uses_.limits), /*keep_alive=*/false);
    }
    if (parser_->is_done()) {
      request->body = std::move(parser_->get().body());
      return Serve(request);
    }
    beast::http::async_read_some(stream_, buffer_, *parser_, Then([this, request](const Error& problem) {
                                   problem ? EndAfter(problem) : ReadMore(request);
                                 }));
  }

  void Serve(const std::shared_ptr<const Request>& request) {
    Tcp().expires_never();
    const bool keep_alive = parser_->get().keep_alive();
    const bool head_only = request->verb == "HEAD";
    auto respond = [self = this->shared_from_this(), keep_alive, head_only](Response response) {
      asio::post(self->stream_.get_executor(), [self, keep_alive, head_only, response = std::move(response)]() mutable {
        self->Answered(std::move(response), keep_alive, head_only);
      });
    };
    call_ = uses_.routes.Serve(request, std::move(respond));
    if (!call_) return;
    const std::chrono::duration<double> limit(CallLimitS(*request));
    call_timer_.expires_after(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
    call_timer_.async_wait(Then([this, call = call_](const Error& problem) {
      if (!problem) call->Expire();
    }));
    on_ending_.emplace(uses_.traffic->ending.get_token(), [call = call_] { call->Cancel(); });
    WatchForLeaving();
  }

  // The wait may end although nothing has come: epoll tells once more of bytes that have been read.
  void WatchForLeaving() {
    Tcp().socket().async_wait(asio::socket_base::wait_read, Then([this, call = call_](const Error& problem) {
                                if (problem || call != call_) return;
                                char next = 0;
                                const ssize_t read =
                                    recv(Tcp().socket().native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
                                if (read > 0) return;  // The next request, which waits for its turn.
                                const bool nothing = read < 0 && (errno == EAGAIN || errno == EINTR);
                                nothing ? WatchForLeaving() : call->Cancel();
                              }));
  }

  void Answered(Response response, bool keep_alive, bool head_only) {
    call_timer_.cancel();
    on_ending_.reset();
    if (call_) Tcp().socket().cancel();
    call_.reset();
    Write(std::move(response), keep_alive, head_only);
  }

  void Write(Response response, bool keep_alive, bool head_only = false) {
    body_bytes_.reset();
    auto message =
        std::make_shared<ResponseMessage>(MessageOf(std::move(response), request_id_, keep_alive, head_only));
    Tcp().expires_after(uses_.limits.body);
    const auto sent = [this, message, keep_alive](const Error& problem) {
      answering_.reset();
      if (problem) return;
      keep_alive ? ReadHead() : Close();
    };
    if (head_only) {
      auto serializer = std::make_shared<beast::http::response_serializer<beast::http::string_body>>(*message);
      beast::http::async_write_header(stream_, *serializer,
                                      Then([serializer, sent](const Error& problem) { sent(problem); }));
    } else {
      beast::http::async_write(stream_, *message, Then(sent));
    }
  }

  // Tells who sent nonsense or too much; whoever left or was too slow is told nothing.
  void EndAfter(const Error& problem) {
    if (problem == beast::http::error::end_of_stream) return Close();
    std::optional<Response> answer = ErrorAfter(problem, uses_.limits);
    if (!answer) return;
    // A head that was not read to its end may hold it.
    if (request_id_.empty()) request_id_ = HeadOf(*parser_, peer_).request_id;
    Write(*std::move(answer), /*keep_alive=*/false);
  }

  void Close() {
    if constexpr (std::is_same_v<Stream, Encrypted>) {
      Tcp().expires_after(uses_.limits.head);
      stream_.async_shutdown(Then([](const Error&) {}));
    } else {
      Error ignored;
      Tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    }
  }

  const SessionUses uses_;
  const Counted connection_;
  Stream stream_;
  asio::steady_timer call_timer_;
  beast::flat_buffer buffer_;
  std::optional<RequestParser> parser_;
  std::string request_id_;  // Of the request that is read or answered; empty: its head is not there.
  std::optional<Counted> answering_;
  std::optional<BodyBytes> body_bytes_;
  std::shared_ptr<Call> call_;
  std::optional<std::stop_callback<std::function<void()>>> on_ending_;
  std::string peer_;
};

}  // namespace

void StartSession(asio::ip::tcp::socket socket, asio::ssl::context* tls, SessionUses uses) {
  const auto executor = socket.get_executor();
  if (tls == nullptr) {
    const auto session = std::make_shared<Session<beast::tcp_stream>>(std::move(uses), std::move(socket));
    asio::dispatch(executor, [session] { session->Start(); });
  } else {
    const auto session = std::make_shared<Session<Encrypted>>(std::move(uses), std::move(socket), *tls);
    asio::dispatch(executor, [session] { session->Start(); });
  }
}

}  // namespace moeplan::service::http
