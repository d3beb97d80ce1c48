#include "tests/proto/descriptor_rules.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "models/text.h"
#include "tests/proto/sources.h"

namespace moeplan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

template <typename Described>
std::string CommentOf(const Described& described) {
  google::protobuf::SourceLocation location;
  return described.GetSourceLocation(&location) ? location.leading_comments : "";
}

class Lint {
 public:
  std::vector<std::string> Check(const FileDescriptor& file) {
    if (!std::regex_match(file.package(), std::regex(R"(([a-z]+\.)+v[0-9]+)"))) {
      Complain(file.name(), "its package does not end in a version");
    }
    for (int i = 0; i < file.enum_type_count(); ++i)
      Complain(file.enum_type(i)->full_name(), "an enum that is not nested");
    for (const Descriptor* message : AllMessages({&file})) CheckMessage(*message);
    for (int i = 0; i < file.service_count(); ++i) CheckService(*file.service(i));
    return std::move(complaints_);
  }

 private:
  void Complain(const std::string& what, const std::string& why) { complaints_.push_back(what + ": " + why); }

  template <typename Described>
  void CheckComment(const Described& described) {
    if (CommentOf(described).empty()) Complain(described.full_name(), "no comment");
  }

  void CheckMessage(const Descriptor& message) {
    CheckComment(message);
    for (int i = 0; i < message.enum_type_count(); ++i) CheckEnum(*message.enum_type(i));
    for (int i = 0; i < message.field_count(); ++i) {
      CheckField(*message.field(i));
      // Printing follows the declaration, reading the wire follows the numbers; one order serves both.
      if (i > 0 && message.field(i)->number() < message.field(i - 1)->number()) {
        Complain(message.field(i)->full_name(), "its number is lower than that of the field before");
      }
    }
  }

  void CheckEnum(const EnumDescriptor& type) {
    CheckComment(type);
    for (int i = 0; i < type.value_count(); ++i) CheckComment(*type.value(i));
    const EnumValueDescriptor& zero = *type.value(0);
    const bool says_nothing = zero.name() == "UNSPECIFIED" || zero.name() == "OTHER";
    if (!says_nothing && CommentOf(zero).find("Default") == std::string::npos) {
      Complain(zero.full_name(), "value 0 is neither UNSPECIFIED, OTHER nor said to be the default");
    }
  }

  void CheckField(const FieldDescriptor& field) {
    CheckComment(field);
    if (!std::regex_match(field.name(), std::regex("[a-z][a-z0-9]*(_[a-z0-9]+)*"))) {
      Complain(field.full_name(), "its name is not snake_case");
    }
    CheckType(field);
    CheckDefault(field);
    CheckUnit(field);
  }

  void CheckType(const FieldDescriptor& field) {
    static const std::set<FieldDescriptor::Type> kAllowed = {
        FieldDescriptor::TYPE_DOUBLE, FieldDescriptor::TYPE_INT32,   FieldDescriptor::TYPE_BOOL,
        FieldDescriptor::TYPE_STRING, FieldDescriptor::TYPE_MESSAGE, FieldDescriptor::TYPE_ENUM};
    if (!kAllowed.contains(field.type())) {
      Complain(field.full_name(),
               StrCat("its type is ", field.type_name(), ", expected double, int32, bool or string"));
    }
    if (field.is_map()) CheckType(*field.message_type()->map_value());
  }

  // A default other than zero has to be told from an explicit zero.
  void CheckDefault(const FieldDescriptor& field) {
    std::smatch said;
    const std::string comment = CommentOf(field);
    if (!std::regex_search(comment, said, std::regex("[Dd]efault ([0-9.]+[0-9]|[0-9])"))) return;
    if (std::stod(said[1]) != 0 && !field.has_presence()) {
      Complain(field.full_name(), StrCat("its default is ", said[1].str(), " but it is not optional"));
    }
  }

  void CheckUnit(const FieldDescriptor& field) {
    if (field.type() != FieldDescriptor::TYPE_DOUBLE) return;
    static const std::map<std::string, std::string> kEndings = {{R"(in seconds per (byte|flop))", "_s_per_(byte|flop)"},
                                                                {R"(in seconds(?! per))", "_s"},
                                                                {R"(in bytes/s)", "bytes_per_s"},
                                                                {R"(in flop/s)", "flops_per_s"},
                                                                {R"(in bytes(?!/s))", "bytes"},
                                                                {R"(in flops)", "flops"}};
    const std::string comment = CommentOf(field);
    for (const auto& [unit, ending] : kEndings) {
      if (!std::regex_search(comment, std::regex(unit, std::regex::icase))) continue;
      if (!std::regex_search(field.name(), std::regex(ending + "$"))) {
        Complain(field.full_name(), StrCat("its comment says \"", unit, "\" but its name does not end in ", ending));
      }
    }
  }

  void CheckService(const ServiceDescriptor& service) {
    CheckComment(service);
    for (int i = 0; i < service.method_count(); ++i) {
      const MethodDescriptor& method = *service.method(i);
      CheckComment(method);
      if (method.input_type()->name() != method.name() + "Request") {
        Complain(method.full_name(), "its request is not " + method.name() + "Request");
      }
      if (method.output_type()->name() != method.name() + "Response") {
        Complain(method.full_name(), "its response is not " + method.name() + "Response");
      }
    }
  }

  std::vector<std::string> complaints_;
};

std::string TypeOf(const FieldDescriptor& field) {
  if (field.is_map()) return StrCat("map<string,", TypeOf(*field.message_type()->map_value()), ">");
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

std::string LabelOf(const FieldDescriptor& field) {
  if (field.is_repeated()) return "repeated";
  if (field.real_containing_oneof() != nullptr) return "oneof:" + field.real_containing_oneof()->name();
  return field.has_optional_keyword() ? "optional" : "singular";
}

void AddMessageLines(const Descriptor& message, std::vector<std::string>& lines) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    lines.push_back(StrCat("field ", field.full_name(), " ", field.number(), " ", TypeOf(field), " ", LabelOf(field),
                           " ", field.json_name()));
  }
  for (int i = 0; i < message.enum_type_count(); ++i) {
    const EnumDescriptor& type = *message.enum_type(i);
    for (int j = 0; j < type.value_count(); ++j) {
      lines.push_back(StrCat("value ", type.full_name(), ".", type.value(j)->name(), " ", type.value(j)->number()));
    }
  }
}

// Whether the number and the name of a line's field or value are reserved in what it stood in.
bool IsReserved(const std::string& line, const std::vector<const FileDescriptor*>& files) {
  std::istringstream words(line);
  std::string kind, full_name;
  int number = 0;
  words >> kind >> full_name >> number;
  const size_t dot = full_name.rfind('.');
  const std::string parent = full_name.substr(0, dot), name = full_name.substr(dot + 1);
  const auto reserved_in = [&](const auto& type) {
    return type.full_name() == parent && type.IsReservedNumber(number) && type.IsReservedName(name);
  };
  for (const Descriptor* message : AllMessages(files)) {
    if (kind == "field" && reserved_in(*message)) return true;
    for (int i = 0; i < message->enum_type_count(); ++i) {
      if (kind == "value" && reserved_in(*message->enum_type(i))) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> LintComplaints(const FileDescriptor& file) { return Lint().Check(file); }

std::vector<std::string> Snapshot(const std::vector<const FileDescriptor*>& files) {
  std::vector<std::string> lines;
  for (const FileDescriptor* file : files) {
    for (const Descriptor* message : AllMessages({file})) AddMessageLines(*message, lines);
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const MethodDescriptor& method = *file->service(i)->method(j);
        lines.push_back(StrCat("rpc ", method.full_name(), " ", method.input_type()->full_name(), " ",
                               method.output_type()->full_name()));
      }
    }
  }
  return lines;
}

std::vector<std::string> BreakingChanges(const std::vector<std::string>& before,
                                         const std::vector<const FileDescriptor*>& files) {
  const std::vector<std::string> now_lines = Snapshot(files);
  const std::set<std::string> now(now_lines.begin(), now_lines.end());
  std::vector<std::string> broken;
  for (const std::string& line : before) {
    if (!now.contains(line) && !IsReserved(line, files)) broken.push_back(line);
  }
  return broken;
}

}  // namespace moeplan
