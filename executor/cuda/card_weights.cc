#include "executor/cuda/card_weights.h"

#include <algorithm>

#include "executor/cuda/bias_kernels.h"
#include "executor/cuda/errors.h"
#include "executor/host/elements.h"
#include "executor/host/host_stream.h"
#include "models/check.h"

namespace moeplan::executor::cuda {
namespace {

constexpr size_t kUnroundedValues = size_t{1} << 20;  // Of which so many are rounded at a time.
constexpr size_t kAlignment = 64;                     // Of tensors, in floats.

constexpr std::array kTensors = {&ExpertGradientsView::up,           &ExpertGradientsView::gate_up,
                                 &ExpertGradientsView::down,         &ExpertGradientsView::up_bias,
                                 &ExpertGradientsView::gate_up_bias, &ExpertGradientsView::down_bias};
constexpr std::array kWeights = {&ExpertWeightsView::up,           &ExpertWeightsView::gate_up,
                                 &ExpertWeightsView::down,         &ExpertWeightsView::up_bias,
                                 &ExpertWeightsView::gate_up_bias, &ExpertWeightsView::down_bias};

}  // namespace

Status CardWeights::Init() {
  ASSIGN_OR_RETURN(gate_, device_.Allocate(weights_.gate.size() * sizeof(float)));
  ASSIGN_OR_RETURN(gate_bias_, device_.Allocate(weights_.gate_bias.size() * sizeof(float)));
  ASSIGN_OR_RETURN(correction_bias_, device_.Allocate(weights_.correction_bias.size() * sizeof(float)));
  if (type_ != ElementType::kFloat32) {
    ASSIGN_OR_RETURN(unrounded_, device_.Allocate(kUnroundedValues * sizeof(float)));
  }
  RETURN_IF_ERROR(Allocate(weights_.experts, experts_));
  return Allocate(weights_.shared, shared_);
}

Status CardWeights::Allocate(const ExpertWeightsView& weights, Part& part) {
  const size_t element_bytes = BytesOf(type_);
  ASSIGN_OR_RETURN(part.up, device_.Allocate(weights.up.size() * element_bytes));
  ASSIGN_OR_RETURN(part.gate_up, device_.Allocate(weights.gate_up.size() * element_bytes));
  ASSIGN_OR_RETURN(part.down, device_.Allocate(weights.down.size() * element_bytes));
  ASSIGN_OR_RETURN(part.up_bias, device_.Allocate(weights.up_bias.size() * sizeof(float)));
  ASSIGN_OR_RETURN(part.gate_up_bias, device_.Allocate(weights.gate_up_bias.size() * sizeof(float)));
  ASSIGN_OR_RETURN(part.down_bias, device_.Allocate(weights.down_bias.size() * sizeof(float)));
  part.view = {.up = part.up.data(),
               .gate_up = part.gate_up.data(),
               .down = part.down.data(),
               .up_bias = FloatsOf(part.up_bias),
               .gate_up_bias = FloatsOf(part.gate_up_bias),
               .down_bias = FloatsOf(part.down_bias)};
  return OkStatus();
}

Status CardWeights::Refresh(Stream& stream) {
  CopyFloats(weights_.gate, gate_, stream);
  CopyFloats(weights_.gate_bias, gate_bias_, stream);
  CopyFloats(weights_.correction_bias, correction_bias_, stream);
  RETURN_IF_ERROR(Refresh(weights_.experts, experts_, stream));
  return Refresh(weights_.shared, shared_, stream);
}

Status CardWeights::Refresh(const ExpertWeightsView& weights, const Part& part, Stream& stream) {
  RETURN_IF_ERROR(CopyElements(weights.up, part.up, stream));
  RETURN_IF_ERROR(CopyElements(weights.gate_up, part.gate_up, stream));
  RETURN_IF_ERROR(CopyElements(weights.down, part.down, stream));
  CopyFloats(weights.up_bias, part.up_bias, stream);
  CopyFloats(weights.gate_up_bias, part.gate_up_bias, stream);
  CopyFloats(weights.down_bias, part.down_bias, stream);
  return OkStatus();
}

void CardWeights::CopyFloats(std::span<const float> from, const DeviceMemory& to, Stream& stream) {
  device_.Copy(to.data(), reinterpret_cast<const std::byte*>(from.data()), from.size() * sizeof(float), stream);
}

Status CardWeights::CopyElements(std::span<const float> from, const DeviceMemory& to, Stream& stream) {
  if (type_ == ElementType::kFloat32) {
    CopyFloats(from, to, stream);
    return OkStatus();
  }
  const auto* const unrounded = reinterpret_cast<const float*>(unrounded_.data());
  for (size_t first = 0; first < from.size(); first += kUnroundedValues) {
    const size_t count = std::min(kUnroundedValues, from.size() - first);
    device_.Copy(unrounded_.data(), reinterpret_cast<const std::byte*>(from.data() + first), count * sizeof(float),
                 stream);
    RETURN_IF_ERROR(StoreElements(type_, unrounded, static_cast<int64_t>(count), to.data() + first * BytesOf(type_),
                                  StreamOf(stream)));
  }
  return OkStatus();
}

GradientSums::GradientSums(CudaDevice& device, const ExpertWeightsView& weights, const ExpertGradientsView& gradients)
    : device_(device), gradients_(gradients) {
  for (size_t i = 0; i < kWeights.size(); ++i) {
    first_[i + 1] = first_[i] + ((weights.*kWeights[i]).size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  on_host_.resize(first_.back());
}

Status GradientSums::Init() {
  ASSIGN_OR_RETURN(sums_, device_.Allocate(on_host_.size() * sizeof(float)));
  return OkStatus();
}

DeviceExpertGradients GradientSums::view() const {
  auto* const sums = reinterpret_cast<float*>(sums_.data());
  const auto tensor = [&](int i) { return first_[i] == first_[i + 1] ? nullptr : sums + first_[i]; };
  const auto matrix = [&](int i) { return reinterpret_cast<std::byte*>(tensor(i)); };
  return DeviceExpertGradients{.up = matrix(0),
                               .gate_up = matrix(1),
                               .down = matrix(2),
                               .up_bias = tensor(3),
                               .gate_up_bias = tensor(4),
                               .down_bias = tensor(5)};
}

Status GradientSums::HandBack(Stream& stream) {
  device_.Copy(reinterpret_cast<std::byte*>(on_host_.data()), sums_.data(), sums_.bytes(), stream);
  HostStream::Of(stream).Enqueue([this] {
    for (size_t i = 0; i < kTensors.size(); ++i) {
      const std::span<float> gradient = gradients_.*kTensors[i];
      MOEPLAN_CHECK(first_[i] + gradient.size() <= first_[i + 1]);
      const float* const sums = on_host_.data() + first_[i];
      std::transform(gradient.begin(), gradient.end(), sums, gradient.begin(), std::plus<>());
    }
    return OkStatus();
  });
  return StatusOf(cudaMemsetAsync(sums_.data(), 0, sums_.bytes(), StreamOf(stream)), "gradients set to zero");
}

}  // namespace moeplan::executor::cuda
