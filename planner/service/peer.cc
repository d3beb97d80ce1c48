#include "planner/service/peer.h"

#include "models/text.h"

namespace moeplan::service {
namespace {

constexpr char kThrough[] = " through ";
constexpr size_t kLongestAddress = 45;  // An IPv4 address written as one of IPv6.

bool IsFromThisMachine(std::string_view peer) {
  for (const std::string_view start : {"ipv4:127.", "ipv6:%5B::1%5D:", "127.", "::1:"}) {
    if (peer.starts_with(start)) return true;
  }
  return false;
}

bool MayBeAddress(std::string_view text) {
  return !text.empty() && text.size() <= kLongestAddress &&
         text.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

}  // namespace

std::string PeerName(std::string peer, std::string_view forwarded_for) {
  if (!MayBeAddress(forwarded_for) || !IsFromThisMachine(peer)) return peer;
  return StrCat(forwarded_for, kThrough, peer);
}

bool IsPassedOn(std::string_view peer_name) { return peer_name.find(kThrough) != std::string_view::npos; }

}  // namespace moeplan::service
