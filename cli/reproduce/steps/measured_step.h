// A training step that somebody measured, as our predictions are asked for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "planner/advice/advise.h"

namespace moeplan::cli {

struct MeasuredStep {
  std::string set, name;
  // Rows alike in both can be copied from each other.
  std::string model, system;
  // Rows of a set that are alike in this ask the same and differ in their layout alone.
  std::string question;
  // Rows alike in this ask the same of different software.
  std::string job;
  // Rows alike in this share one unknown factor of their software: {system, precision, release}. Empty: there is none.
  std::vector<std::string> release;
  // Rows differ in these logarithms of degrees and sizes, always as many. The nearest is the one with the least sum
  // of differences.
  std::vector<double> place;
  std::string trained_with;   // The training system (TargetOf) that ran it; empty: none that has a table.
  double tokens_per_gpu = 0;  // Of a step.
  std::optional<double> measured_s, measured_memory_bytes, peer_s;

  planner::OpenSettings open;        // What its source does not say of how it ran; `asks` then has none of it.
  std::optional<StepQuestion> asks;  // Absent: it has no price, and `reason` says why.
  std::shared_ptr<const Profile> profile;
  std::string reason;
};

}  // namespace moeplan::cli
