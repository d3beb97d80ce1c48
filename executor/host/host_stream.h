// A stream of a backend whose work is host functions: what host kernels and host collectives queue themselves on.
#pragma once

#include <functional>
#include <string>

#include "executor/device.h"

namespace moeplan::executor {

class HostStream : public Stream {
 public:
  using Work = std::function<Status()>;

  // Runs `work` after everything queued before it. An error stops the device.
  virtual void Enqueue(Work work) = 0;

  // The task that work queued now belongs to.
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }
  // How many tokens it is about.
  const CallTokens& tokens() const { return tokens_; }
  void set_tokens(const CallTokens& tokens) { tokens_ = tokens; }

  static HostStream& Of(Stream& stream) { return static_cast<HostStream&>(stream); }

 private:
  std::string label_;
  CallTokens tokens_;
};

}  // namespace moeplan::executor
