#include "planner/service/handlers/samples.h"

#include <optional>

#include "models/cost/operation.h"
#include "models/text.h"
#include "planner/service/handlers/page_of.h"
#include "proto/convert/stored_sample.h"
#include "proto/errors.h"

namespace moeplan::service {

StatusOr<v1::ListSamplesResponse> ListSamples(const Environment& environment, const v1::ListSamplesRequest& request,
                                              std::stop_token /*cancelled*/) {
  if (request.profile_name().empty()) {
    return moeplan::error::Mismatch("profileName", "nothing", "a text that is not empty");
  }
  std::optional<CostKey> key;
  if (!request.cost().empty()) {
    key = NamedCost(request.cost());
    if (!key) {
      return moeplan::error::Mismatch("cost", StrCat("'", request.cost(), "'"),
                                      "a cost such as 'ALL_TO_ALL groupSize 16 ranksPerNode 8'");
    }
  }
  ASSIGN_OR_RETURN(const SamplePage page,
                   environment.listings().ListSamples(PageOf(request), request.profile_name(), key));
  v1::ListSamplesResponse response;
  for (const StoredSample& stored : page.samples) *response.add_samples() = moeplan::ToProto(stored);
  response.set_next_page_token(page.next_token);
  return response;
}

}  // namespace moeplan::service
