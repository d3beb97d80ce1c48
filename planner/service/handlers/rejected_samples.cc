#include "planner/service/handlers/rejected_samples.h"

#include <optional>
#include <string>

#include "proto/convert/samples.h"

namespace moeplan::service {

StatusOr<v1::ListRejectedSamplesResponse> ListRejectedSamples(const Environment& environment,
                                                              const v1::ListRejectedSamplesRequest& request,
                                                              std::stop_token /*cancelled*/) {
  PageRequest wanted = {.token = request.page_token()};
  if (request.page_size() != 0) wanted.size = request.page_size();
  std::optional<std::string> name;
  if (!request.profile_name().empty()) name = request.profile_name();
  ASSIGN_OR_RETURN(const RejectedPage page, environment.listings().ListRejectedSamples(wanted, name));
  v1::ListRejectedSamplesResponse response;
  for (const RejectedSample& rejected : page.samples) *response.add_rejected_samples() = moeplan::ToProto(rejected);
  response.set_next_page_token(page.next_token);
  return response;
}

}  // namespace moeplan::service
