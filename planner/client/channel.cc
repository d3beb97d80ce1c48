#include "planner/client/channel.h"

#include <grpc/compression.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "planner/client/errors.h"
#include "proto/grpc_status.h"
#include "proto/host_port.h"

namespace moeplan::client {
namespace {

using WallClock = std::chrono::system_clock;

constexpr size_t kMostPemBytes = 1 << 20;

StatusOr<std::string> ReadPem(const char* option, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostPemBytes, '\0');
  // A folder opens as a file does, and is an error of the read.
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  // gRPC would not say what is wrong with it.
  if (!file.is_open() || file.bad() || text.find("-----BEGIN") == text.npos) return error::BadPem(option, path);
  return text;
}

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const ConnectOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) return error::HalfAnIdentity();
  if (options.tls_authority.empty()) {
    if (!options.tls_certificate.empty()) return error::NoAuthority();
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions tls;
  ASSIGN_OR_RETURN(tls.pem_root_certs, ReadPem("--tls-ca", options.tls_authority));
  ASSIGN_OR_RETURN(tls.pem_cert_chain, ReadPem("--tls-cert", options.tls_certificate));
  ASSIGN_OR_RETURN(tls.pem_private_key, ReadPem("--tls-key", options.tls_key));
  return grpc::SslCredentials(tls);
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
  // gRPC 1.51 unpacks a compressed message before it looks at its size. A planner never compresses, and whoever poses
  // as one must not fill this process's memory: nothing is unpacked, and an answer that names an algorithm is an error.
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  // A planner whose machine is gone says nothing; streams would wait for it for good.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients of one process would share connections, and with them the pause after a refused one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The scheme is written out because "HOST:PORT" may read as one.
  return grpc::CreateCustomChannel("dns:///" + address, credentials, arguments);
}

// gRPC itself would go on trying until the deadline.
Status WaitUntilConnected(grpc::Channel& channel, const std::string& address, WallClock::time_point deadline) {
  for (auto state = channel.GetState(/*try_to_connect=*/true); state != GRPC_CHANNEL_READY;
       state = channel.GetState(/*try_to_connect=*/true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return error::NoPlanner(address, "the connection failed");
    if (!channel.WaitForStateChange(state, deadline)) return error::NoPlanner(address, "connecting took too long");
  }
  return OkStatus();
}

}  // namespace

WallClock::time_point In(double seconds) {
  constexpr double kYearS = 365 * 86400;  // More would overflow the clock.
  return WallClock::now() +
         std::chrono::duration_cast<WallClock::duration>(std::chrono::duration<double>(std::min(seconds, kYearS)));
}

void SetUp(grpc::ClientContext& context, const ConnectOptions& options) {
  context.set_deadline(In(options.deadline_s));
  Identify(context, options);
}

void Identify(grpc::ClientContext& context, const ConnectOptions& options) {
  if (!options.token.empty()) context.AddMetadata("authorization", "Bearer " + options.token);
}

StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const ConnectOptions& options) {
  if (!std::isfinite(options.deadline_s) || options.deadline_s <= 0) return error::BadDeadline(options.deadline_s);
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.address, "planner"));
  const bool readable_on_the_way = options.tls_authority.empty() && !IsLoopback(address);
  if (!options.token.empty() && readable_on_the_way && !options.insecure) return error::BareToken(options.address);
  // gRPC would abort on bytes that a header cannot have.
  if (!std::ranges::all_of(options.token, [](char byte) { return byte > ' ' && byte <= '~'; }))
    return error::BadToken();
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials, CredentialsOf(options));
  const WallClock::time_point deadline = In(options.deadline_s);
  auto channel = ChannelTo(options.address, credentials);
  if (!WaitUntilConnected(*channel, options.address, deadline).ok()) {
    // A first connection may fail on a busy machine where a second does not; where no planner is, both do at once.
    channel = ChannelTo(options.address, credentials);
    RETURN_IF_ERROR(WaitUntilConnected(*channel, options.address, deadline));
  }
  return channel;
}

}  // namespace moeplan::client
