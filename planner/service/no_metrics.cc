// Metrics in a moeplan without prometheus-cpp: nothing is counted, and the page says so.
#include "planner/service/metrics.h"

namespace moeplan::service {

class Metrics::Impl {};

Metrics::Metrics(std::function<Now()>) {}
Metrics::~Metrics() = default;

void Metrics::Answered(const Call&, const Answer&) {}
void Metrics::AnsweredQuietly(const Method&, std::string_view, double) {}
void Metrics::Refused(const grpc::Status&) {}
void Metrics::ConnectionRefused() {}
void Metrics::Searched(double) {}
void Metrics::Acknowledged(int, int) {}
void Metrics::Reported() {}
void Metrics::Fitted(const Profile&) {}

std::string Metrics::Page() const { return "# This moeplan was built without prometheus-cpp, and counts nothing.\n"; }

}  // namespace moeplan::service
