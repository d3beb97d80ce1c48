// Pages of what is listed newest first. A token is the id of the last row on the page before.
#pragma once

#include <cstdint>
#include <string>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

// kInvalidInput: a size that was never right.
Status CheckPageSize(int size);

// Rows of a page have ids below this. kInvalidInput: a size or token that was never right.
StatusOr<std::int64_t> FirstIdAbove(const PageRequest& page);

// Reads the rows of `select`, whose first column is the id and whose LIMIT is one more than the page's size:
// `read(select)` for each that belongs on the page. The token of the next page; empty when there is none.
template <typename Statement, typename Read>
std::string ReadPage(Statement& select, int size, const Read& read) {
  std::int64_t last_id = 0;
  for (int count = 0; select.executeStep(); ++count) {
    if (count == size) return std::to_string(last_id);
    last_id = select.getColumn(0).getInt64();
    read(select);
  }
  return "";
}

}  // namespace moeplan::db
