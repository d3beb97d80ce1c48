// What fuzz targets of other tools' logs share.
#pragma once

#include "proto/convert/samples.h"
#include "tests/fuzz/fuzzed.h"

namespace moeplan {

// A log is refused, or its samples are valid and survive a file.
template <typename Import>
void CheckImport(const StatusOr<Import>& import) {
  if (!import.ok()) return CheckRefusal(import.status());
  MOEPLAN_CHECK(ValidateSamples(import->samples).ok());
  const StatusOr<SampleSet> again = SamplesFromProto(ToProto(import->samples));
  MOEPLAN_CHECK(again.ok() && *again == import->samples);
}

}  // namespace moeplan
