// Compares layouts that others published for models with experts with what we would advise for the same job.
#pragma once

#include <functional>
#include <string>

#include "cli/reproduce/steps/data_folder.h"
#include "models/status.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// A row for each pre-training job with experts of published_jobs.csv that is priced, jobs that repeat one once: the
// published layout and ours, how many times as long ours is predicted to take, and, where the published one takes more
// than 1.05 times as long, the part of the step that decides it, and whether another layout of the same job was
// measured to be faster. What the source does not say of a layout (dispatcher, overlap, recomputation) is set as we
// would. The adviser is told the model, the hardware, the GPUs, the batch, the sequence, the precision and the training
// system alone. The last rows count: layouts that break no rule of ours and fit, that are within 5 %, and that the
// training system they were published for takes; and jobs whose fastest layout is within 5 %. `progress` is called with
// the share that is done and what is next. Errors are PublishedSteps'.
StatusOr<v1::ReproducedTable> ReproduceRecipes(const DataFolder& folder,
                                               const std::function<void(double, const std::string&)>& progress);

}  // namespace moeplan::cli
