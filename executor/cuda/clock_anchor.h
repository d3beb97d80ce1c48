// Times of a card on the machine's monotonic clock. A card tells only what has passed between two events, in float
// milliseconds, which after an hour are 0.25 ms apart. So a device drops an anchor now and then, an event whose time on
// the host's clock is known, and each event is told from the anchor that was newest when it was recorded. Times of one
// anchor are exact to the card's resolution; those of two, and of two devices, to what dropping one takes. Pure.
#pragma once

namespace moeplan::executor::cuda {

// When the host asked an idle card for the anchor's event and when it saw it passed, in seconds on the host's clock.
struct AnchorTimes {
  double asked_s = 0, seen_s = 0;
  double time_s() const { return asked_s + (seen_s - asked_s) / 2; }
  double uncertainty_s() const { return (seen_s - asked_s) / 2; }
};

// Of an event `elapsed_ms` behind it, as cudaEventElapsedTime tells.
inline double TimeBehindS(const AnchorTimes& anchor, float elapsed_ms) {
  return anchor.time_s() + static_cast<double>(elapsed_ms) * 1e-3;
}

// Past this age of the newest anchor the next Synchronize drops another: a float still tells 0.06 µs there.
inline constexpr double kAnchorAgeS = 0.5;

}  // namespace moeplan::executor::cuda
