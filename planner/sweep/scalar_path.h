// The way from a message down to one of its scalars, in JSON names: "layer.topK", "routing.tokensPerExpert[2]",
// "collectives[3].alphaBeta.betaSPerByte".
//
// An item of a list is named by its number, from 0. Of the cost models of a profile, "[NAME]" is every entry of that
// operation that has the rest of the way: "collectives[ALL_TO_ALL].logLog.points[0].timeS". In an item of a list no
// object can be set that it does not have, nor the other choice of two, nor an alphaBeta beside a curve, which does not
// price.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <variant>
#include <vector>

#include "models/status.h"

namespace moeplan::planner {

// A number, a truth value, or a text: the name of an enum value too.
using SweepValue = std::variant<double, bool, std::string>;

std::string TextOf(const SweepValue& value);

class ScalarPath {
 public:
  // A way through `root`, of which the items of lists are looked up; no reference to it is kept. kInvalidInput naming
  // the path, what was found and what there is.
  static StatusOr<ScalarPath> Parse(const std::string& path, const google::protobuf::Message& root);

  // As in a file that says this field alone, so that it is refused in the same words.
  StatusOr<SweepValue> ParseValue(const std::string& text) const;

  // Whether both set a field of the same message type, which is their root's.
  bool Meets(const ScalarPath& other) const;

  // Entries of the name that do not have the rest of the way, such as "collectives[4]".
  const std::vector<std::string>& left_out() const { return left_out_; }

  // `value` is of ParseValue; `root` is like that of Parse.
  void Set(google::protobuf::Message& root, const SweepValue& value) const;

 private:
  class Reader;

  struct Step {
    const google::protobuf::FieldDescriptor* field;
    int item = 0;  // Of a list.

    friend bool operator==(const Step&, const Step&) = default;
  };

  std::string holder_;                   // The path without its last field.
  std::vector<std::vector<Step>> ways_;  // At least one; all end at the same field.
  std::vector<std::string> left_out_;
};

// Which entries of `collectives` or `kernels`, a list of `profile`, "[NAME]" or "[NUMBER]" stands for. kInvalidInput,
// beginning with `path`, where there is none.
StatusOr<std::vector<int>> NamedEntries(const std::string& path, const google::protobuf::FieldDescriptor& list,
                                        const std::string& selector, const google::protobuf::Message& profile);

}  // namespace moeplan::planner
