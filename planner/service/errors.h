// Every error of the service that is not another room's, worded once.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan::service::error {

// Addresses. `field` is where the address comes from ("--grpc").
Status NotLoopback(std::string_view field, const std::string& address);
Status ExposedHttp2(std::string_view field, const std::string& address);
Status AddressInUse(std::string_view field, const std::string& address);
Status CannotListen(std::string_view field, const std::string& address, std::string_view reason);
Status MayNotListen(std::string_view field, const std::string& address);

// Calls.
grpc::Status QueueFull();
grpc::Status UnreadableRequest();
grpc::Status TooLate();
Status CallerLeft();
Status ReadOnly();
Status WatchEnds();
grpc::Status TooManyWatchers(int most);
Status Unexpected(std::string_view detail);

// Callers. `role` is the one needed.
grpc::Status NoToken();
grpc::Status UnknownToken();
grpc::Status TokenExpired(const std::string& name);
grpc::Status RoleTooLow(const std::string& name, std::string_view role);

// Requests.
Status BothAlternatives(std::string_view first, std::string_view second);
Status BadRequestId(size_t found_bytes, size_t limit_bytes);
Status BadCalibration(size_t found_bytes, size_t limit_bytes);
Status MixedClusters(const std::string& profile_name, const std::string& calibration);
Status NothingPossible(const std::string& profile_name, int samples);
Status NoCost(const std::string& profile_name, int profile_version, const std::string& cost);
Status RequestReused(const std::string& request_id);

}  // namespace moeplan::service::error
