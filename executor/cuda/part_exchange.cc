#include "executor/cuda/part_exchange.h"

#include <algorithm>

#include "models/check.h"

namespace moeplan::executor::cuda {

Moves MovesOf(std::span<const Part> sends, std::span<const Part> receives, int rank) {
  Moves moves;
  auto own_send = sends.begin();
  for (const Part& receive : receives) {
    bool in_place = false;
    if (receive.peer == rank) {
      own_send = std::find_if(own_send, sends.end(), [&](const Part& send) { return send.peer == rank; });
      MOEPLAN_CHECK(own_send != sends.end() && own_send->bytes.size() == receive.bytes.size());
      in_place = own_send->bytes.data() == receive.bytes.data();
      if (!in_place && !receive.bytes.empty()) moves.sends.push_back(*own_send);
      ++own_send;
    }
    if (!in_place && !receive.bytes.empty()) moves.receives.push_back(receive);
  }
  std::ranges::copy_if(sends, std::back_inserter(moves.sends),
                       [&](const Part& send) { return send.peer != rank && !send.bytes.empty(); });
  return moves;
}

}  // namespace moeplan::executor::cuda
