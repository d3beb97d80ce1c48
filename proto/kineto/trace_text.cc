#include "proto/kineto/trace_text.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "models/text.h"

namespace moeplan::kineto {
namespace {

class BytesInMemory : public TraceBytes {
 public:
  explicit BytesInMemory(std::string_view text) : text_(text) {}

  StatusOr<size_t> Read(std::span<char> block) override {
    const size_t count = std::min(block.size(), text_.size());
    std::copy_n(text_.begin(), count, block.begin());
    text_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view text_;
};

struct CloseFile {
  void operator()(gzFile file) const { gzclose(file); }
};
using OpenFile = std::unique_ptr<gzFile_s, CloseFile>;

// zlib hands on the bytes of a file that is not packed as they are.
class BytesInFile : public TraceBytes {
 public:
  explicit BytesInFile(OpenFile file) : file_(std::move(file)) {}

  StatusOr<size_t> Read(std::span<char> block) override {
    const int count = gzread(file_.get(), block.data(), static_cast<unsigned>(block.size()));
    int problem = Z_OK;
    gzerror(file_.get(), &problem);
    if (count < 0 || (count == 0 && problem != Z_OK)) {
      return InvalidInput(problem == Z_BUF_ERROR ? "found a gzip file that breaks off, expected a whole trace"
                                                 : "found a damaged gzip file, expected a trace");
    }
    return static_cast<size_t>(count);
  }

 private:
  OpenFile file_;
};

Status TooLong() {
  return InvalidInput(StrCat("found more than ", kMostTraceBytes,
                             " bytes, expected at most that many: trace fewer "
                             "steps (torch.profiler.schedule), or without with_stack"));
}

}  // namespace

OpenTrace TraceInMemory(std::string_view text) {
  return [text]() -> StatusOr<std::unique_ptr<TraceBytes>> { return std::make_unique<BytesInMemory>(text); };
}

OpenTrace TraceInFile(const std::string& path) {
  return [path]() -> StatusOr<std::unique_ptr<TraceBytes>> {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) return InvalidInput("found a directory, expected a file");
    const std::uintmax_t bytes = std::filesystem::file_size(path, ignored);
    if (!ignored && bytes > kMostTraceBytes) return TooLong();
    errno = 0;
    OpenFile file(gzopen(path.c_str(), "rb"));
    if (file == nullptr) {
      return InvalidInput(StrCat("found no readable file (", std::strerror(errno), "), expected a trace"));
    }
    return std::make_unique<BytesInFile>(std::move(file));
  };
}

size_t TraceText::Line() {
  if (counted_ != nullptr) {
    lines_ += static_cast<size_t>(std::count(counted_, static_cast<const char*>(gptr()), '\n'));
    counted_ = gptr();
  }
  return lines_ + 1;
}

TraceText::int_type TraceText::underflow() {
  if (!status_.ok()) return traits_type::eof();
  Line();
  blocks_bytes_ += static_cast<size_t>(egptr() - eback());
  setg(nullptr, nullptr, nullptr);
  counted_ = nullptr;
  if (blocks_bytes_ - value_start_ > kMostValueBytes) {
    status_ = InvalidInput(StrCat("line ", lines_ + 1, ": found a value of more than ", kMostValueBytes,
                                  " bytes, expected at most that many"));
    return traits_type::eof();
  }
  const StatusOr<size_t> count = bytes_.Read(block_);
  if (!count.ok()) status_ = count.status();
  if (count.ok() && blocks_bytes_ + *count > kMostTraceBytes) status_ = TooLong();
  has_ended_ = count.ok() && *count == 0;
  if (!status_.ok() || has_ended_) return traits_type::eof();
  setg(block_.data(), block_.data(), block_.data() + *count);
  counted_ = block_.data();
  return traits_type::to_int_type(*gptr());
}

}  // namespace moeplan::kineto
