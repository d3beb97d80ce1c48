// Where exceptions of SQLiteCpp and nlohmann/json stop.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "models/status.h"

namespace moeplan::db {

// Thrown inside Guarded by what reads rows: the value found cannot have been stored by us.
struct DamagedRow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Leaves the kind of error in one of SQLite's result codes, without its details.
constexpr int kPrimaryCodeMask = 0xff;

// The exception being handled as a Status about the database `path`. Call it in a catch block.
Status StatusOfException(const std::filesystem::path& path);

// What `operation` returns, a Status or StatusOr<T>; or its exception as such.
template <typename Operation>
auto Guarded(const std::filesystem::path& path, Operation&& operation) -> decltype(operation()) {
  try {
    return std::forward<Operation>(operation)();
  } catch (...) {
    return StatusOfException(path);
  }
}

// The folder that holds `path`; "." for a bare name.
std::filesystem::path FolderOf(const std::filesystem::path& path);

// Why the operating system keeps us from `path`, in the words of the first obstacle found.
Status ExplainCannotOpen(const std::filesystem::path& path, bool for_writing);

}  // namespace moeplan::db
