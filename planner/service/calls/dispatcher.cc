#include "planner/service/calls/dispatcher.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "planner/service/errors.h"
#include "planner/service/guard.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

using Message = google::protobuf::Message;

JobName NameOf(const Call& call) { return {.method = call.method().path, .request_id = call.origin().request_id()}; }

using Response = StatusOr<std::unique_ptr<Message>>;

struct Worked {
  Response response;
  Answer answer;
};

Answer AnswerOf(const Response& response) {
  if (!response.ok()) return {.status = ToGrpc(response.status())};
  auto bytes = std::make_shared<std::string>();
  (*response)->SerializeToString(bytes.get());
  return {.message = std::move(bytes)};
}

Worked Answered(const Method& method, const Environment& environment, std::string_view bytes,
                const std::stop_token& cancelled) {
  if (cancelled.stop_requested()) {
    const Status left = error::CallerLeft();
    return {left, {.status = ToGrpc(left)}};
  }
  const std::unique_ptr<Message> request(method.request->New());
  if (!request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    const grpc::Status unreadable = error::UnreadableRequest();
    return {FromGrpc(unreadable), {.status = unreadable}};
  }
  Response response = Guard([&] { return method.handle(environment, *request, cancelled); });
  Answer answer = AnswerOf(response);
  return {std::move(response), std::move(answer)};
}

}  // namespace

Bytes Dispatcher::Kept(const Method& method, std::string_view transport, std::string_view request) const {
  if (!method.may_repeat || !uses_.answered_quietly || uses_.access.asks_for_tokens()) return nullptr;
  const Call::Clock::time_point began = Call::Clock::now();
  Bytes kept = uses_.cache.Find(request);
  if (kept) {
    uses_.answered_quietly(method, transport, std::chrono::duration<double>(Call::Clock::now() - began).count());
  }
  return kept;
}

std::shared_ptr<Call> Dispatcher::NewCall(const Method& method, std::string_view transport, std::string_view request,
                                          const Origin& origin, Call::Done done) const {
  return std::make_shared<Call>(method, transport, request, origin, std::move(done), uses_.answered);
}

void Dispatcher::Serve(const std::shared_ptr<Call>& call) const {
  const Method& method = call->method();
  if (const std::optional<grpc::Status> refused = Refusal(*call)) {
    call->Finish({.status = *refused});
    return;
  }
  if (!method.may_repeat) return Work(call);
  if (Bytes kept = uses_.cache.Find(call->request())) {
    call->Finish({.message = std::move(kept)});
    return;
  }
  Search(call);
}

void Dispatcher::Search(const std::shared_ptr<Call>& call) const {
  const std::shared_ptr<AnswerCache::Search> search = uses_.cache.Wait(std::string(call->request()), call);
  if (!search) return;
  const bool taken = uses_.workers.TrySubmit(
      [this, search, &method = call->method()] {
        const Call::Clock::time_point began = Call::Clock::now();
        const Worked worked =
            Answered(method, uses_.environment, AnswerCache::question(*search), AnswerCache::cancelled(*search));
        const bool ok = worked.response.ok();
        uses_.searched(std::chrono::duration<double>(Call::Clock::now() - began).count());
        uses_.cache.Settle(*search, worked.answer, ok && method.may_repeat(**worked.response));
        if (ok) uses_.worked_out(method, **worked.response);
      },
      NameOf(*call));
  if (!taken) uses_.cache.Settle(*search, {.status = error::QueueFull()}, /*keep=*/false);
}

void Dispatcher::Work(const std::shared_ptr<Call>& call) const {
  WorkerPool& pool = call->method().waits_for_disk ? uses_.appenders : uses_.workers;
  // Copies of the request and of who calls: a caller that leaves is answered at once, and what it brought goes while
  // the worker may read it.
  const bool taken = pool.TrySubmit(
      [this, call, request = std::string(call->request()), caller = CallerOf(call->origin())] {
        const Method& method = call->method();
        Environment environment = uses_.environment;
        environment.caller = caller;
        const Worked worked = Answered(method, environment, request, call->cancelled());
        const bool ok = worked.response.ok();
        if (ok && method.stores_profiles) uses_.cache.Clear();
        call->Finish(worked.answer);
        if (ok) uses_.worked_out(method, **worked.response);
      },
      NameOf(*call));
  if (!taken) {
    call->Finish({.status = error::QueueFull()});
    return;
  }
  // Whoever left, or whose deadline has passed, does not wait for a worker that does not look.
  call->WhenCancelled([left = call.get()] { left->Finish({.status = ToGrpc(error::CallerLeft())}); });
}

}  // namespace moeplan::service
