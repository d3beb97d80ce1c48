// One connection, from its first byte to its end. Owns itself.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <stop_token>

#include "planner/service/http/endpoint.h"
#include "planner/service/http/routes.h"

namespace moeplan::service::http {

struct Traffic {
  std::atomic<int> connections = 0;
  std::stop_source ending;             // Ends the calls that are being answered.
  std::atomic<size_t> body_bytes = 0;  // Of requests that are read or answered.
  std::atomic<int> answering = 0;      // Requests that have come and are not answered to their last byte.
};

// Borrowed, but for the traffic.
struct SessionUses {
  const Routes& routes;
  const Limits& limits;
  std::shared_ptr<Traffic> traffic;
};

// `tls` null: without. The socket's executor is a strand.
void StartSession(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls, SessionUses uses);

}  // namespace moeplan::service::http
