// Work taken down as a CUDA graph (Device::Capture).
#pragma once

#include <functional>
#include <memory>

#include "executor/cuda/shared_card.h"
#include "executor/device.h"

namespace moeplan::executor::cuda {

// Calls `queue` now. What cannot be a graph, because something in it needs the host or CUDA refuses it, is queued anew
// at each Enqueue.
std::unique_ptr<Recording> MakeGraphRecording(std::shared_ptr<SharedCard> card, std::function<void()> queue);

}  // namespace moeplan::executor::cuda
