// Raw measurements: what an agent took, before any fit.
#pragma once

#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/cost/operation.h"
#include "models/workload/workload.h"

namespace moeplan {

// Where a sample comes from: free-form facts such as "hostname", "backend", "device", "takenAt" (RFC 3339).
using Provenance = std::map<std::string, std::string>;

// The same operation at one size, repeated.
struct Sample {
  CostKey key;
  double size = 0;              // Bytes, or flops where CountsFlops.
  std::vector<double> times_s;  // One for each repeat, in the order taken.
  Provenance provenance;

  friend bool operator==(const Sample&, const Sample&) = default;
};

struct SampleSet {
  std::string name;
  Cluster cluster;
  std::vector<Sample> samples;

  friend bool operator==(const SampleSet&, const SampleSet&) = default;
};

// A sample that is stored, as it is listed.
struct StoredSample {
  Sample sample;
  std::string request_id;   // That brought it.
  std::string calibration;  // The measuring session.
  std::string received_at;  // RFC 3339, UTC, to the second.
  bool retired = false;     // Later ones of its key stand in its place: it counts no more.

  friend bool operator==(const StoredSample&, const StoredSample&) = default;
};

// A sample that was set aside, as it is listed.
struct RejectedSample {
  Sample sample;
  std::string reason;  // What is wrong with it, in one sentence.
  std::string request_id;
  std::string profile_name;
  std::string received_at;  // RFC 3339, UTC, to the second.

  friend bool operator==(const RejectedSample&, const RejectedSample&) = default;
};

// No repeat on any machine lies outside these bounds; a size counts bytes or flops. They are generous, so that they
// never need to follow the hardware: a processor's clock ticks in about a nanosecond; a repeat of a day fits into no
// budget; 2^60 bytes are a million times the memory of a GPU; the fastest GPUs do some 2e16 flops, and move some 1e13
// bytes, a second. Inside the bounds, the squares and ratios that fits work with (models/fit) stay far from the ends of
// a double.
inline constexpr double kShortestRepeatS = 1e-9, kLongestRepeatS = 86400;
inline constexpr double kSmallestSize = 1, kLargestSize = 0x1p60;
inline constexpr double kHighestRatePerS = 1e18;

// Checks that size and times are finite and above 0, and that there is a time. `path` begins the error; may be empty.
Status ValidateSizeAndTimes(const Sample& sample, const std::string& path);

// The same, and that size, times and rate are within the bounds above.
Status ValidatePossible(const Sample& sample, const std::string& path);
// Whether ValidatePossible passes a sample of that size and those times.
bool IsPossible(double size, std::span<const double> times_s);
// Removes those that are not, and says how many they were. A database may hold some that a moeplan without bounds has
// stored, so whoever works with stored samples calls this first.
int DropImpossible(std::vector<Sample>& samples);

// Checks the key, and size and times as ValidateSizeAndTimes.
Status ValidateSample(const Sample& sample, const std::string& path);

// Checks the cluster, and every sample's key, size and times as ValidatePossible.
Status ValidateSamples(const SampleSet& samples);

}  // namespace moeplan
