#include "proto/nccl_tests/run.h"

#include "models/text.h"

namespace moeplan::nccl_tests {

namespace {
constexpr int kMostTold = 10;
}  // namespace

void Faults::Add(const std::string& where, std::string_view found, std::string_view expected) {
  if (count_++ < kMostTold) first_.push_back(StrCat(where, ": found ", found, ", expected ", expected));
}

Status Faults::status() const {
  if (count_ == 0) return OkStatus();
  std::string text;
  for (const std::string& fault : first_) text += StrCat(text.empty() ? "" : "\n", fault);
  if (count_ > kMostTold) text += StrCat("\nand ", count_ - kMostTold, " more lines that are wrong");
  return InvalidInput(text);
}

}  // namespace moeplan::nccl_tests
