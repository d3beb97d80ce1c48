// Traces as Kineto writes them, event by event.
#pragma once

#include <string>
#include <string_view>

#include "models/text.h"

namespace moeplan {

class KinetoTrace {
 public:
  static constexpr int kMainThread = 100, kAutogradThread = 200;

  // `arguments` are members of "args", such as R"("Sequence number": 1)".
  KinetoTrace& Add(std::string_view category, std::string_view name, int thread, double start_us, double duration_us,
                   std::string_view arguments = "", int process = 42) {
    if (!events_.empty()) events_ += ",\n";
    events_ +=
        StrCat(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name, R"(", "pid": )", process, R"(, "tid": )",
               thread, R"(, "ts": )", start_us, R"(, "dur": )", duration_us, R"(, "args": {)", arguments, "}}");
    return *this;
  }
  KinetoTrace& Step(int number, double start_us, double duration_us) {
    return Add("user_annotation", StrCat("ProfilerStep#", number), kMainThread, start_us, duration_us);
  }
  KinetoTrace& Operator(std::string_view name, double start_us, double duration_us, std::string_view arguments = "") {
    return Add("cpu_op", name, kMainThread, start_us, duration_us, arguments);
  }
  // An evaluate_function and its node; what is launched inside of [start + 1, start + duration - 1] belongs to it.
  KinetoTrace& Node(std::string_view name, double start_us, double duration_us, std::string_view arguments = "") {
    Add("cpu_op", StrCat("autograd::engine::evaluate_function: ", name), kAutogradThread, start_us, duration_us,
        arguments);
    return Add("cpu_op", name, kAutogradThread, start_us + 0.5, duration_us - 1, arguments);
  }
  KinetoTrace& Backward(std::string_view name, double start_us, double duration_us, std::string_view arguments = "") {
    return Add("cpu_op", name, kAutogradThread, start_us, duration_us, arguments);
  }
  // A kernel that is launched then, on a thread, and runs later.
  KinetoTrace& Kernel(std::string_view name, int thread, double launch_us, double start_us, double duration_us,
                      int stream = 7, std::string_view arguments = "") {
    const std::string link = StrCat(R"("correlation": )", ++correlation_);
    Add("cuda_runtime", "cudaLaunchKernel", thread, launch_us, 0.1, link);
    return Add("kernel", name, stream, start_us, duration_us,
               StrCat(link, R"(, "stream": )", stream, arguments.empty() ? "" : ", ", arguments), /*process=*/0);
  }

  std::string Text() const {
    return StrCat(R"({"schemaVersion": 1,)", "\n", R"("traceEvents": [)", "\n", events_, "\n]}\n");
  }

 private:
  std::string events_;
  int correlation_ = 0;
};

}  // namespace moeplan
