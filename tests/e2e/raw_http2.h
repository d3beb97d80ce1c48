// HTTP/2 by hand, for what no honest client sends.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moeplan::testing {

// PEM files of a client; an empty path: none.
struct TlsClient {
  std::string authority, certificate, key;
};

// A connection to a port of this machine, over TCP or, with `tls`, over TLS with the protocol "h2". No call waits
// longer than ten seconds.
class RawHttp2 {
 public:
  // Null: the connection or its handshake failed.
  static std::unique_ptr<RawHttp2> Connect(int port, const TlsClient* tls = nullptr);
  virtual ~RawHttp2() = default;

  // False: the other end has closed the connection, or takes nothing any more.
  virtual bool Send(std::string_view bytes) = 0;
  // Waits ten seconds for at least a byte. Empty: the connection ended, or nothing came.
  virtual std::string Receive() = 0;
  // Whether the other end has closed the connection, as far as Receive has seen.
  virtual bool ended() const = 0;
};

// What every connection begins with: the preface and empty settings.
std::string Http2Beginning();

enum class FrameType : std::uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kContinuation = 9 };
inline constexpr std::uint8_t kEndStream = 0x1, kEndHeaders = 0x4;

std::string Frame(FrameType type, std::uint8_t flags, std::uint32_t stream, std::string_view payload);

// A header field that enters no table, uncompressed; both texts below 127 bytes.
std::string HeaderField(std::string_view name, std::string_view value);

// The fields of a gRPC call of `path`, and whatever a test adds behind.
std::string CallFields(std::string_view path);

}  // namespace moeplan::testing
