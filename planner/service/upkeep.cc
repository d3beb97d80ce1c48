#include "planner/service/upkeep.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "db/store.h"

namespace moeplan::service {
namespace {

class Watch final : public Upkeep {
 public:
  Watch(Store store, Access& access, OpenStreams& streams, AnswerCache& cache, LogSink log,
        std::function<void(const Profile& newest)> saved)
      : store_(std::move(store)),
        access_(access),
        streams_(streams),
        cache_(cache),
        log_(std::move(log)),
        saved_(std::move(saved)) {}

  Status Look() {
    ASSIGN_OR_RETURN(const std::int64_t latest, store_.LatestProfile());
    if (latest != std::exchange(latest_, latest)) {
      cache_.Clear();
      if (latest > 0) {
        ASSIGN_OR_RETURN(const Profile newest, store_.LoadProfile());
        saved_(newest);
      }
    }
    ASSIGN_OR_RETURN(const std::vector<TokenRecord> tokens, store_.Tokens());
    access_.Set(tokens);
    return OkStatus();
  }

  void Begin() {
    thread_ = std::jthread([this](const std::stop_token& ending) { Run(ending); });
  }

 private:
  void Run(const std::stop_token& ending) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    while (!never.wait_for(lock, ending, kPeriod, [&] { return ending.stop_requested(); })) {
      Tell(Look());
      streams_.EndRefused();  // Tokens expire although the store cannot be read.
    }
  }

  // Once for each trouble, not ten times a second.
  void Tell(const Status& status) {
    if (status == std::exchange(told_, status) || status.ok()) return;
    log_({LogLevel::kError, "the store cannot be watched", {{"reason", status.message()}}});
  }

  const Store store_;
  Access& access_;
  OpenStreams& streams_;
  AnswerCache& cache_;
  const LogSink log_;
  const std::function<void(const Profile& newest)> saved_;
  std::int64_t latest_ = -1;
  Status told_;
  std::jthread thread_;  // Last: joined before what it uses is gone.
};

}  // namespace

StatusOr<std::unique_ptr<Upkeep>> Upkeep::Start(const std::filesystem::path& path, Access& access, OpenStreams& streams,
                                                AnswerCache& cache, LogSink log,
                                                std::function<void(const Profile& newest)> saved) {
  ASSIGN_OR_RETURN(Store store, Store::OpenReadOnly(path));
  auto watch = std::make_unique<Watch>(std::move(store), access, streams, cache, std::move(log), std::move(saved));
  RETURN_IF_ERROR(watch->Look());
  watch->Begin();
  return std::unique_ptr<Upkeep>(std::move(watch));
}

}  // namespace moeplan::service
