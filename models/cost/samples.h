// Raw measurements: what an agent took, before any fit.
#pragma once

#include <map>
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

// Checks that size and times are finite and above 0, and that there is a time. `path` begins the error; may be empty.
Status ValidateSizeAndTimes(const Sample& sample, const std::string& path);

// Checks its key, too.
Status ValidateSample(const Sample& sample, const std::string& path);

// Checks the cluster and every sample.
Status ValidateSamples(const SampleSet& samples);

}  // namespace moeplan
