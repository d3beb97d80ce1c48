// Who asks, for the log, where a front on this machine (deploy/front) passes calls on.
#pragma once

#include <string>
#include <string_view>

namespace moeplan::service {

// The header in which a front says whose call it passes on.
inline constexpr char kForwardedForHeader[] = "x-forwarded-for";

// `peer`, the other end of a connection as gRPC or HTTP writes it ("ipv4:127.0.0.1:4711", "127.0.0.1:4711"); behind the
// address that `forwarded_for` names where the connection comes from this machine, since whoever else sends that header
// only claims something. No decision rests on it: a user of this machine may claim something, too.
std::string PeerName(std::string peer, std::string_view forwarded_for);

// Whether a PeerName says that a front passed the call on.
bool IsPassedOn(std::string_view peer_name);

}  // namespace moeplan::service
