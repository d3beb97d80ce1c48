// The numbers that predictions of others' steps rest on, each with where it is from, and any one of them changed.
//
// Whoever reads a number asks Use for it. So a second reading with one of the names changed shows what hangs on it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace moeplan::cli {

struct Constant {
  std::string source;         // And its date, where it has one.
  bool outside_steps = true;  // No training step had a part in it.
  bool whole = false;         // Counts something: a change is by one.
};

class Constants {
 public:
  enum class Change { kLess, kMore };

  Constants() = default;
  // Scales the constant of that name by 0.9 or 1.1; a whole one is one less or more.
  Constants(std::string changed, Change change) : changed_(std::move(changed)), change_(change) {}

  // Those that are used from here on are used by this reader of steps.
  void SetReader(std::string reader) { reader_ = std::move(reader); }

  // `value`, unless it is the one that is changed.
  double Use(std::string_view name, double value, const Constant& constant);

  struct Used {
    Constant constant;
    std::set<std::string> readers;
  };
  const std::map<std::string, Used, std::less<>>& used() const { return used_; }

 private:
  std::string changed_;  // Empty: none.
  Change change_ = Change::kLess;
  std::string reader_;
  std::map<std::string, Used, std::less<>> used_;
};

}  // namespace moeplan::cli
