// What profiles and samples share: how the key of a measured operation and its unit of size are read and written.
//
// A collective counts bytes, a kernel bytes or flops (CountsFlops); a message that says the other is refused.
// Templates over the messages that carry the same fields. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/cost/operation.h"
#include "models/status.h"
#include "moeplan/v1/profile.pb.h"
#include "proto/convert/enums.h"
#include "proto/errors.h"

namespace moeplan {

enum class SizeUnit { kBytes, kFlops };
inline SizeUnit UnitOf(const CollectiveKey&) { return SizeUnit::kBytes; }
inline SizeUnit UnitOf(const KernelKey& key) { return CountsFlops(key.kernel) ? SizeUnit::kFlops : SizeUnit::kBytes; }

// One of two fields that say the same in bytes and in flops.
struct UnitChoice {
  std::optional<double> bytes, flops;
  const char* bytes_field;
  const char* flops_field;
};

// The one that `unit` asks for, or nothing where neither is set. The other one is refused.
inline StatusOr<std::optional<double>> InUnit(const UnitChoice& choice, SizeUnit unit, std::string_view path) {
  const bool wants_flops = unit == SizeUnit::kFlops;
  if (wants_flops ? choice.bytes.has_value() : choice.flops.has_value()) {
    const char* found = wants_flops ? choice.bytes_field : choice.flops_field;
    const char* expected = wants_flops ? choice.flops_field : choice.bytes_field;
    return error::Mismatch(path, found,
                           StrCat(expected, ", because this operation counts ", wants_flops ? "flops" : "bytes"));
  }
  return wants_flops ? choice.flops : choice.bytes;
}

// Likewise, where one must be set.
inline StatusOr<double> RequiredInUnit(const UnitChoice& choice, SizeUnit unit, std::string_view path) {
  ASSIGN_OR_RETURN(const std::optional<double> value, InUnit(choice, unit, path));
  const char* expected = unit == SizeUnit::kFlops ? choice.flops_field : choice.bytes_field;
  if (!value) return error::Mismatch(FieldPath(path, expected), "nothing", "a number");
  return *value;
}

// The size of a point or a sample.
template <typename Message>
StatusOr<double> SizeFromProto(const Message& message, SizeUnit unit, std::string_view path) {
  UnitChoice size = {.bytes_field = "bytes", .flops_field = "flops"};
  if (message.has_bytes()) size.bytes = message.bytes();
  if (message.has_flops()) size.flops = message.flops();
  return RequiredInUnit(size, unit, path);
}

template <typename Message>
void SetSize(double size, SizeUnit unit, Message& message) {
  unit == SizeUnit::kFlops ? message.set_flops(size) : message.set_bytes(size);
}

// An optional part of a key: absent means any.
inline StatusOr<std::optional<int>> AnyOrAtLeastOne(bool is_set, int value, std::string_view path) {
  if (!is_set) return std::optional<int>();
  if (value < 1) return error::Mismatch(path, StrCat(value), "a whole number of at least 1, or absent");
  return std::optional<int>(value);
}

inline KernelShape ShapeFromProto(const v1::KernelShape& message) {
  return {.in_features = message.in_features(),
          .out_features = message.out_features(),
          .experts = message.experts(),
          .heads = message.heads(),
          .kv_heads = message.kv_heads(),
          .query_key_dim = message.query_key_dim(),
          .value_dim = message.value_dim(),
          .sequence = message.sequence(),
          .window = message.window()};
}

inline void SetShape(const KernelShape& shape, v1::KernelShape& message) {
  message.set_in_features(shape.in_features);
  message.set_out_features(shape.out_features);
  message.set_experts(shape.experts);
  message.set_heads(shape.heads);
  message.set_kv_heads(shape.kv_heads);
  message.set_query_key_dim(shape.query_key_dim);
  message.set_value_dim(shape.value_dim);
  message.set_sequence(shape.sequence);
  message.set_window(shape.window);
}

template <typename Message>
StatusOr<CollectiveKey> CollectiveKeyFromProto(const Message& message, std::string_view path) {
  CollectiveKey key;
  ASSIGN_OR_RETURN(key.collective, EnumFromProto<Collective>(message.collective(), FieldPath(path, "collective")));
  ASSIGN_OR_RETURN(key.algorithm, EnumFromProto<AllToAllAlgorithm>(message.algorithm(), FieldPath(path, "algorithm")));
  ASSIGN_OR_RETURN(key.contention, EnumFromProto<Contention>(message.contention(), FieldPath(path, "contention")));
  ASSIGN_OR_RETURN(key.bytes_per_element, AnyOrAtLeastOne(message.has_bytes_per_element(), message.bytes_per_element(),
                                                          FieldPath(path, "bytesPerElement")));
  key.group = {.size = message.group_size(), .ranks_per_node = message.ranks_per_node()};
  key.gather_group_size = message.gather_group_size();
  key.shards = message.shards();
  key.ctas = message.ctas();
  key.stride = message.stride();
  ASSIGN_OR_RETURN(key.dispatcher, EnumFromProto<Dispatcher>(message.dispatcher(), FieldPath(path, "dispatcher")));
  ASSIGN_OR_RETURN(key.transport, EnumFromProto<Transport>(message.transport(), FieldPath(path, "transport")));
  RETURN_IF_ERROR(ValidateCollectiveKey(key, std::string(path)));
  return key;
}

template <typename Message>
StatusOr<KernelKey> KernelKeyFromProto(const Message& message, std::string_view path) {
  KernelKey key;
  ASSIGN_OR_RETURN(key.kernel, EnumFromProto<Kernel>(message.kernel(), FieldPath(path, "kernel")));
  ASSIGN_OR_RETURN(key.contention, EnumFromProto<Contention>(message.contention(), FieldPath(path, "contention")));
  ASSIGN_OR_RETURN(key.bytes_per_element, AnyOrAtLeastOne(message.has_bytes_per_element(), message.bytes_per_element(),
                                                          FieldPath(path, "bytesPerElement")));
  ASSIGN_OR_RETURN(key.model_dim,
                   AnyOrAtLeastOne(message.has_model_dim(), message.model_dim(), FieldPath(path, "modelDim")));
  ASSIGN_OR_RETURN(key.hidden_dim,
                   AnyOrAtLeastOne(message.has_hidden_dim(), message.hidden_dim(), FieldPath(path, "hiddenDim")));
  key.ctas = message.ctas();
  key.shape = ShapeFromProto(message.shape());
  RETURN_IF_ERROR(ValidateKernelKey(key, std::string(path)));
  return key;
}

template <typename Message>
void SetKey(const CollectiveKey& key, Message& message) {
  message.set_collective(EnumToProto<v1::Collective::Kind>(key.collective));
  message.set_algorithm(EnumToProto<v1::AllToAll::Algorithm>(key.algorithm));
  message.set_group_size(key.group.size);
  message.set_ranks_per_node(key.group.ranks_per_node);
  if (key.collective == Collective::kAllToAllAllGather) {
    message.set_gather_group_size(key.gather_group_size);
    message.set_shards(key.shards);
  }
  message.set_contention(EnumToProto<v1::Contention::Kind>(key.contention));
  if (key.bytes_per_element) message.set_bytes_per_element(*key.bytes_per_element);
  if (key.ctas != 0) message.set_ctas(key.ctas);
  if (key.stride != 0) message.set_stride(key.stride);
  if (key.dispatcher != Dispatcher::kAllToAll) {
    message.set_dispatcher(EnumToProto<v1::Dispatcher::Kind>(key.dispatcher));
    message.set_transport(EnumToProto<v1::Transport::Kind>(key.transport));
  }
}

template <typename Message>
void SetKey(const KernelKey& key, Message& message) {
  message.set_kernel(EnumToProto<v1::Kernel::Kind>(key.kernel));
  message.set_contention(EnumToProto<v1::Contention::Kind>(key.contention));
  if (key.bytes_per_element) message.set_bytes_per_element(*key.bytes_per_element);
  if (key.model_dim) message.set_model_dim(*key.model_dim);
  if (key.hidden_dim) message.set_hidden_dim(*key.hidden_dim);
  if (key.ctas != 0) message.set_ctas(key.ctas);
  if (key.shape != KernelShape{}) SetShape(key.shape, *message.mutable_shape());
}

}  // namespace moeplan
