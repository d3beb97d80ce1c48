#include "proto/convert/samples.h"

#include "proto/convert/cluster.h"
#include "proto/convert/keys.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

Status CheckNoGroup(const v1::Sample& message, const std::string& path) {
  if (!message.has_algorithm() && !message.has_group_size() && !message.has_ranks_per_node() &&
      !message.has_gather_group_size() && !message.has_shards() && !message.has_stride() && !message.has_dispatcher() &&
      !message.has_transport()) {
    return OkStatus();
  }
  return error::Mismatch(
      path,
      "a kernel with algorithm, groupSize, ranksPerNode, gatherGroupSize, shards, stride, dispatcher or transport",
      "these of a collective alone");
}

Status CheckNoDims(const v1::Sample& message, const std::string& path) {
  if (!message.has_model_dim() && !message.has_hidden_dim() && !message.has_shape()) return OkStatus();
  return error::Mismatch(path, "a collective with modelDim, hiddenDim or shape", "these of a kernel alone");
}

StatusOr<CostKey> KeyFromProto(const v1::Sample& message, const std::string& path) {
  if (message.has_collective()) {
    RETURN_IF_ERROR(CheckNoDims(message, path));
    return CollectiveKeyFromProto(message, path);
  }
  if (message.has_kernel()) {
    RETURN_IF_ERROR(CheckNoGroup(message, path));
    return KernelKeyFromProto(message, path);
  }
  return error::Mismatch(path, "no operation", "collective or kernel");
}

SizeUnit UnitOf(const Sample& sample) {
  return std::visit([](const auto& key) { return UnitOf(key); }, sample.key);
}

}  // namespace

StatusOr<Sample> SampleFromProto(const v1::Sample& message, const std::string& path) {
  Sample sample;
  ASSIGN_OR_RETURN(sample.key, KeyFromProto(message, path));
  ASSIGN_OR_RETURN(sample.size, SizeFromProto(message, UnitOf(sample), path));
  sample.times_s.assign(message.time_s().begin(), message.time_s().end());
  sample.provenance.insert(message.provenance().begin(), message.provenance().end());
  return sample;
}

v1::Sample ToProto(const Sample& sample) {
  v1::Sample message;
  std::visit([&](const auto& key) { SetKey(key, message); }, sample.key);
  SetSize(sample.size, UnitOf(sample), message);
  for (const double time_s : sample.times_s) message.add_time_s(time_s);
  message.mutable_provenance()->insert(sample.provenance.begin(), sample.provenance.end());
  return message;
}

StatusOr<SampleSet> UncheckedSamplesFromProto(const v1::Samples& message) {
  if (!message.has_cluster()) return error::Mismatch("cluster", "nothing", "an object");
  SampleSet samples = {.name = message.name()};
  ASSIGN_OR_RETURN(samples.cluster, ClusterFromProto(message.cluster()));
  for (const v1::Sample& item : message.samples()) {
    ASSIGN_OR_RETURN(Sample sample, SampleFromProto(item, ItemPath("samples", samples.samples.size())));
    samples.samples.push_back(std::move(sample));
  }
  return samples;
}

StatusOr<SampleSet> SamplesFromProto(const v1::Samples& message) {
  ASSIGN_OR_RETURN(SampleSet samples, UncheckedSamplesFromProto(message));
  RETURN_IF_ERROR(ValidateSamples(samples));
  return samples;
}

v1::Samples ToProto(const SampleSet& samples) {
  v1::Samples message;
  message.set_name(samples.name);
  *message.mutable_cluster() = ToProto(samples.cluster);
  for (const Sample& sample : samples.samples) *message.add_samples() = ToProto(sample);
  return message;
}

v1::RejectedSample ToProto(const RejectedSample& rejected) {
  v1::RejectedSample message;
  *message.mutable_sample() = ToProto(rejected.sample);
  message.set_reason(rejected.reason);
  message.set_request_id(rejected.request_id);
  message.set_profile_name(rejected.profile_name);
  message.set_received_at(rejected.received_at);
  return message;
}

}  // namespace moeplan
