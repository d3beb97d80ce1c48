// An AnswerPrinter makes JSON of what a planner answers, with the fields that the planner knows and this program does
// not.
//
// A message that was built from a newer planner's bytes still has such fields, but no names for them. At the first one
// the planner is asked for the descriptors of its messages (gRPC server reflection), once. One thread.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>

#include "models/status.h"
#include "planner/client/connect_options.h"
#include "proto/json.h"

namespace moeplan::client {

class AnswerPrinter {
 public:
  // Connects only when there is something to ask.
  explicit AnswerPrinter(ConnectOptions planner);
  ~AnswerPrinter();
  AnswerPrinter(const AnswerPrinter&) = delete;

  // Prints as ToJson does. Fields that the planner does not tell the names of are missing; left_out then says why.
  std::string Json(const google::protobuf::Message& answer, JsonStyle style);
  // Why answers were printed without some of their fields; OK while none was.
  const Status& left_out() const { return left_out_; }

 private:
  struct PlannerTypes;

  // Reads the answer by the planner's own descriptors; null, with left_out_ set, where it does not tell them.
  std::unique_ptr<google::protobuf::Message> AsPlannerKnows(const google::protobuf::Message& answer);
  Status LearnTypes(const std::string& type);

  const ConnectOptions planner_;
  std::unique_ptr<PlannerTypes> types_;  // Null until they are known.
  Status left_out_;
};

}  // namespace moeplan::client
