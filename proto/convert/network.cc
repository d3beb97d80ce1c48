#include "proto/convert/network.h"

namespace moeplan {

StatusOr<Network> NetworkFromProto(const v1::Network& message, std::string_view path) {
  Network network = {.nodes_per_leaf = message.nodes_per_leaf(),
                     .oversubscription = message.has_oversubscription() ? message.oversubscription() : 1,
                     .rails = message.rails()};
  if (message.has_bytes_per_s()) network.bytes_per_s = message.bytes_per_s();
  RETURN_IF_ERROR(ValidateNetwork(network, path));
  return network;
}

}  // namespace moeplan
