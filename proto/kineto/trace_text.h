// The text of a trace, unpacked while it is read, so that a trace of any length needs little memory.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>

#include "models/status.h"

namespace moeplan::kineto {

// The longest trace, packed or unpacked, and the longest value in it.
inline constexpr size_t kMostTraceBytes = size_t{4} << 30;
inline constexpr size_t kMostValueBytes = size_t{16} << 20;

// Gives the unpacked bytes of one trace from its start. Not thread-safe.
class TraceBytes {
 public:
  virtual ~TraceBytes() = default;
  // Fills the front of `block` and returns how many bytes that are: 0 at the end only. kInvalidInput: the file breaks
  // off or is damaged.
  virtual StatusOr<size_t> Read(std::span<char> block) = 0;
};

// A trace is read twice: to find its steps, and for the events of one.
using OpenTrace = std::function<StatusOr<std::unique_ptr<TraceBytes>>()>;

// The text must outlive what it opens.
OpenTrace TraceInMemory(std::string_view text);
// A file, plain or packed by gzip. kInvalidInput naming the file: it is missing, unreadable or above kMostTraceBytes.
OpenTrace TraceInFile(const std::string& path);

// Feeds a JSON parser. Counts lines, and ends early where the text is too long: status() then says why.
class TraceText : public std::streambuf {
 public:
  explicit TraceText(TraceBytes& bytes) : bytes_(bytes) {}

  // The line of the last byte taken, from 1.
  size_t Line();
  // Tells that a value has ended. A value above kMostValueBytes ends the text.
  void EndOfValue() { value_start_ = Taken(); }
  // True once the reader has asked for more than there is.
  bool has_ended() const { return has_ended_; }
  const Status& status() const { return status_; }

 protected:
  int_type underflow() override;

 private:
  size_t Taken() const { return blocks_bytes_ + static_cast<size_t>(gptr() - eback()); }

  TraceBytes& bytes_;
  std::array<char, 1 << 16> block_;
  size_t blocks_bytes_ = 0;        // Before this block.
  size_t lines_ = 0;               // Ended before counted_.
  const char* counted_ = nullptr;  // In the block; null where there is none.
  size_t value_start_ = 0;
  bool has_ended_ = false;
  Status status_;
};

}  // namespace moeplan::kineto
