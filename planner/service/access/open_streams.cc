#include "planner/service/access/open_streams.h"

#include <optional>

namespace moeplan::service {

void OpenStreams::Add(std::string token, Role role, std::weak_ptr<RevocableStream> stream) {
  const std::scoped_lock lock(mutex_);
  streams_[{std::move(token), role}].push_back(std::move(stream));
}

void OpenStreams::EndRefused() {
  std::vector<std::pair<std::shared_ptr<RevocableStream>, grpc::Status>> refused;
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [caller, streams] : streams_) {
      std::erase_if(streams, [](const auto& stream) { return stream.expired(); });
      if (streams.empty()) continue;
      const std::optional<grpc::Status> why = access_.Refuse(caller.first, caller.second);
      if (!why) continue;
      for (const auto& stream : streams) {
        if (auto live = stream.lock()) refused.emplace_back(std::move(live), *why);
      }
    }
    std::erase_if(streams_, [](const auto& entry) { return entry.second.empty(); });
  }
  for (const auto& [stream, why] : refused) stream->Revoke(why);
}

}  // namespace moeplan::service
