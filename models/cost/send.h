// A message from a rank of one pipeline stage to its neighbour's, as the collective under which it is priced, measured
// and run. Values only.
#pragma once

namespace moeplan {

// The size, as nccl-tests counts it, of the all-to-all of two ranks in which each sends the other `bytes`: half of it
// stays where it is. While a rank sends its rows on it receives as many, so both directions of a link are in use.
inline double SendAsAllToAllBytes(double bytes) { return 2 * bytes; }

}  // namespace moeplan
