#include "proto/convert/stored_sample.h"

#include "models/cost/operation.h"
#include "proto/convert/samples.h"

namespace moeplan {

v1::StoredSample ToProto(const StoredSample& stored) {
  v1::StoredSample message;
  *message.mutable_sample() = ToProto(stored.sample);
  message.set_cost(Describe(stored.sample.key));
  message.set_request_id(stored.request_id);
  message.set_calibration(stored.calibration);
  message.set_received_at(stored.received_at);
  message.set_retired(stored.retired);
  return message;
}

}  // namespace moeplan
