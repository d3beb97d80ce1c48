#include "tests/e2e/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace moeplan::testing {
namespace {

constexpr int kWaitS = 10;
constexpr size_t kMostReadBytes = size_t{64} << 10;

class Tcp : public RawHttp2 {
 public:
  explicit Tcp(int fd) : fd_(fd) {}
  ~Tcp() override { close(fd_); }
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  bool Send(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  std::string Receive() override {
    std::string bytes(kMostReadBytes, '\0');
    const ssize_t received = recv(fd_, bytes.data(), bytes.size(), 0);
    ended_ = received == 0 || (received < 0 && errno != EAGAIN);
    bytes.resize(received > 0 ? static_cast<size_t>(received) : 0);
    return bytes;
  }

  bool ended() const override { return ended_; }

 protected:
  int fd() const { return fd_; }
  bool ended_ = false;

 private:
  const int fd_;
};

class Tls final : public Tcp {
 public:
  explicit Tls(int fd) : Tcp(fd) {}
  ~Tls() override {
    SSL_free(session_);
    SSL_CTX_free(context_);
  }

  bool Handshake(const TlsClient& client) {
    SSL_CTX_load_verify_locations(context_, client.authority.c_str(), nullptr);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    if (!client.certificate.empty()) {
      SSL_CTX_use_certificate_chain_file(context_, client.certificate.c_str());
      SSL_CTX_use_PrivateKey_file(context_, client.key.c_str(), SSL_FILETYPE_PEM);
    }
    static constexpr unsigned char kProtocol[] = {2, 'h', '2'};
    session_ = SSL_new(context_);
    SSL_set_alpn_protos(session_, kProtocol, sizeof kProtocol);
    SSL_set_fd(session_, fd());
    return SSL_connect(session_) == 1;
  }

  bool Send(std::string_view bytes) override {
    size_t sent = 0;
    return SSL_write_ex(session_, bytes.data(), bytes.size(), &sent) == 1;
  }

  std::string Receive() override {
    std::string bytes(kMostReadBytes, '\0');
    size_t received = 0;
    errno = 0;
    if (SSL_read_ex(session_, bytes.data(), bytes.size(), &received) != 1) {
      received = 0;
      ended_ = errno != EAGAIN;
    }
    bytes.resize(received);
    return bytes;
  }

 private:
  SSL_CTX* const context_ = SSL_CTX_new(TLS_client_method());
  SSL* session_ = nullptr;
};

int ConnectedSocket(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {.tv_sec = kWaitS, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const sockaddr_in address = {.sin_family = AF_INET,
                               .sin_port = htons(static_cast<std::uint16_t>(port)),
                               .sin_addr = {htonl(INADDR_LOOPBACK)},
                               .sin_zero = {}};
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

std::unique_ptr<RawHttp2> RawHttp2::Connect(int port, const TlsClient* tls) {
  const int fd = ConnectedSocket(port);
  if (fd < 0) return nullptr;
  if (tls == nullptr) return std::make_unique<Tcp>(fd);
  // OpenSSL writes to a connection that the other end has closed as anybody does.
  std::signal(SIGPIPE, SIG_IGN);
  auto encrypted = std::make_unique<Tls>(fd);
  if (!encrypted->Handshake(*tls)) return nullptr;
  return encrypted;
}

std::string Http2Beginning() { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(FrameType::kSettings, 0, 0, ""); }

std::string Frame(FrameType type, std::uint8_t flags, std::uint32_t stream, std::string_view payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(length >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame.append(payload);
}

std::string HeaderField(std::string_view name, std::string_view value) {
  std::string field(1, '\0');
  for (const std::string_view text : {name, value}) {
    field.push_back(static_cast<char>(text.size()));
    field.append(text);
  }
  return field;
}

std::string CallFields(std::string_view path) {
  return HeaderField(":method", "POST") + HeaderField(":scheme", "http") + HeaderField(":path", path) +
         HeaderField(":authority", "localhost") + HeaderField("content-type", "application/grpc") +
         HeaderField("te", "trailers");
}

}  // namespace moeplan::testing
