// The sim backend as one that every suite runs on.
#pragma once

#include <memory>

#include "tests/executor/job_runner.h"

namespace moeplan::testing {

// On GPUs of one simulated cluster, with data; in one process always the same.
std::unique_ptr<JobRunner> MakeSimRunner();

}  // namespace moeplan::testing
