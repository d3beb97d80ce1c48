// Defines what the one file's archives would else take from a newer C library than it has to run with
// (deploy/release.sh).
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace moeplan::cli {

// glibc has it from 2.36 on; std::random_device calls it.
extern "C" uint32_t arc4random() {
  uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}

}  // namespace moeplan::cli
