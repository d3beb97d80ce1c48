// Calibrations that were asked for and how far they are, as the store keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moeplan {

// How far a calibration is. Kept as a row of its own each time, never overwritten.
struct CalibrationEvent {
  std::string state;        // The caller's word; not empty.
  bool ended = false;       // Whether nothing comes after it.
  std::string detail;       // Why, for people; may be empty.
  double spent_s = 0;       // Of the budget. Finite, at least 0.
  int samples = 0;          // Stored so far. At least 0.
  int profile_version = 0;  // What came of it; 0: none.

  friend bool operator==(const CalibrationEvent&, const CalibrationEvent&) = default;
};

struct CalibrationJob {
  std::int64_t id = 0;     // The store's; from 1 on.
  std::string request_id;  // Unique among calibrations.
  std::string cluster;
  std::string request;     // The caller's; kept byte for byte, never read.
  std::string created_at;  // The store's.
  CalibrationEvent newest;

  friend bool operator==(const CalibrationJob&, const CalibrationJob&) = default;
};

struct CalibrationJobPage {
  std::vector<CalibrationJob> jobs;
  std::string next_token;  // Empty: this is the last page.
};

}  // namespace moeplan
