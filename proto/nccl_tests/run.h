// What one run of a *_perf program of nccl-tests reported, whichever form it was printed in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::nccl_tests {

// One "#  Rank ..." line.
struct Rank {
  int rank = 0;
  int group = 0;  // Communicators that ran side by side have numbers of their own.
  std::string host;
  int device = 0;
  std::string device_name;
};

struct Timed {
  double time_us = 0;                    // As printed.
  std::optional<double> algbw_gb_per_s;  // size / time; in old versions of some programs that times (n-1)/n.
};

// One line of the table: times of one size, absent where the cell is blank or N/A.
struct Row {
  std::string where;            // "file:line", for messages.
  double size_bytes = 0;        // The `size` column.
  std::optional<double> count;  // Elements, of one rank or in all.
  std::string type, redop;
  std::optional<Timed> out_of_place, in_place;
};

struct Run {
  std::string where;    // Where its table begins.
  std::string program;  // "all_reduce_perf"; empty where an old version does not say.
  std::string version;  // Of nccl-tests and NCCL; empty likewise.
  std::vector<Rank> ranks;
  std::vector<Row> rows;
};

// What is wrong with a log, line by line, so that one look mends all of it.
class Faults {
 public:
  void Add(const std::string& where, std::string_view found, std::string_view expected);
  // OK when there is none; else one line for each of the first few, and how many more there are.
  Status status() const;

 private:
  std::vector<std::string> first_;
  int count_ = 0;
};

}  // namespace moeplan::nccl_tests
