#include "executor/cuda/share_bytes.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

Status WriteAtOnce(const std::string& path, const std::vector<std::byte>& bytes) {
  const std::string part = StrCat(path, ".part");
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0)
    return Unavailable(StrCat(path, ": cannot be written; ranks meet through this file"));
  return OkStatus();
}

StatusOr<std::vector<std::byte>> AwaitFile(const std::string& path, size_t bytes, double deadline_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
  while (true) {
    if (std::ifstream file(path, std::ios::binary); file) {
      std::vector<std::byte> read(bytes);
      file.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(bytes));
      if (static_cast<size_t>(file.gcount()) == bytes && file.peek() == EOF) return read;
      return InvalidInput(StrCat(path, ": found another length than ", bytes, " bytes; is it of another job?"));
    }
    if (std::chrono::steady_clock::now() >= end)
      return DeadlineExceeded(StrCat("rank 0 did not write ", path, " within ", deadline_s, " s"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

ShareBytes ShareOver(Communicator& world, Device& device) {
  return [&](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> {
    const size_t bytes = own.size();
    std::vector<std::byte> all(bytes * world.size());
    const std::unique_ptr<Stream> stream = device.MakeStream("CONNECT", StreamPriority::kNormal);
    device.Label(*stream, "connect");
    world.AllGather(own, all, *stream);
    RETURN_IF_ERROR(device.Synchronize());
    all.resize(bytes);
    return all;
  };
}

ShareBytes ShareThroughFile(std::string path, int rank, double deadline_s) {
  return [=](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> {
    if (rank != 0) return AwaitFile(path, own.size(), deadline_s);
    RETURN_IF_ERROR(WriteAtOnce(path, own));
    return own;
  };
}

}  // namespace moeplan::executor::cuda
