// Every message filled at random: our JSON reads back to the same message, and Protobuf's own reader and printer agree
// with ours on what proto3 JSON is.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <random>

#include "models/text.h"
#include "proto/json.h"
#include "tests/proto/sources.h"

namespace moeplan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;

class Filler {
 public:
  explicit Filler(uint64_t seed) : random_(seed) {}

  void Fill(Message& message, int depth = 0) {
    if (auto* any = dynamic_cast<google::protobuf::Value*>(&message)) return FillAny(*any);
    const Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.real_containing_oneof() == nullptr) FillField(message, field, depth);
    }
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      const OneofDescriptor& choice = *type.oneof_decl(i);
      const int picked = Below(choice.field_count() + 1);
      if (picked < choice.field_count()) Put(message, *choice.field(picked), depth);
    }
  }

 private:
  int Below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }

  double Double() {
    if (Below(4) == 0) return Below(3);
    // Any bits at all, so that the form is tested and not the usual sizes.
    const double number = std::bit_cast<double>(random_());
    return std::isfinite(number) ? number : -0.0;
  }
  int32_t Int32() { return Below(2) ? Below(3) : static_cast<int32_t>(random_()); }
  std::string String() {
    const char* const pieces[] = {"a", "Z", "0", ".", "\"", "\\", "/", "\n", "\x01", "\x7f", "é", "😀", "<", " "};
    std::string text;
    for (int left = Below(6); left > 0; --left) text += pieces[Below(std::size(pieces))];
    return text;
  }

  void FillAny(google::protobuf::Value& any) {
    switch (Below(3)) {
      case 0: any.set_number_value(Double()); break;
      case 1: any.set_string_value(String()); break;
      default: any.set_bool_value(Below(2)); break;
    }
  }

  void FillField(Message& message, const FieldDescriptor& field, int depth) {
    if (field.is_map()) return FillMap(message, field, depth);
    const int most = field.is_repeated() ? 3 : 1;
    for (int left = Below(most + 1); left > 0; --left) Put(message, field, depth);
  }

  void FillMap(Message& message, const FieldDescriptor& field, int depth) {
    for (int left = Below(3); left > 0; --left) {
      Message& entry = *message.GetReflection()->AddMessage(&message, &field);
      // A map has each key once.
      entry.GetReflection()->SetString(&entry, field.message_type()->map_key(), StrCat(left, String()));
      Put(entry, *field.message_type()->map_value(), depth);
    }
  }

  void Put(Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& reflection = *message.GetReflection();
    const auto put = [&](auto set, auto add, auto value) {
      field.is_repeated() ? (reflection.*add)(&message, &field, value) : (reflection.*set)(&message, &field, value);
    };
    using R = Reflection;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_DOUBLE: return put(&R::SetDouble, &R::AddDouble, Double());
      case FieldDescriptor::CPPTYPE_INT32: return put(&R::SetInt32, &R::AddInt32, Int32());
      case FieldDescriptor::CPPTYPE_BOOL: return put(&R::SetBool, &R::AddBool, Below(2) == 1);
      case FieldDescriptor::CPPTYPE_STRING: return put(&R::SetString, &R::AddString, String());
      case FieldDescriptor::CPPTYPE_ENUM:
        return put(&R::SetEnum, &R::AddEnum, field.enum_type()->value(Below(field.enum_type()->value_count())));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                        : *reflection.MutableMessage(&message, &field),
                    depth + 1);
      default: FAIL() << field.full_name() << " has a type that files do not have";
    }
  }

  std::mt19937_64 random_;
};

std::unique_ptr<Message> NewMessage(const Descriptor& type) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

// Calls `check` with every message type filled in several ways.
template <typename Check>
void ForEveryMessage(Check check) {
  constexpr int kFillings = 30;
  for (const Descriptor* type : AllMessages(GeneratedFiles())) {
    for (uint64_t seed = 0; seed < kFillings; ++seed) {
      SCOPED_TRACE(StrCat(type->full_name(), " seed ", seed));
      const auto message = NewMessage(*type);
      Filler(seed).Fill(*message);
      check(*message);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(JsonRoundTripTest, JsonReadsBackToTheSameMessage) {
  ForEveryMessage([](const Message& message) {
    for (const JsonStyle style : {JsonStyle::kPretty, JsonStyle::kCompact}) {
      const std::string text = ToJson(message, style);
      const auto read = NewMessage(*message.GetDescriptor());
      const Status status = ParseJson(text, "text", *read);
      ASSERT_TRUE(status.ok()) << status.message() << "\n" << text;
      EXPECT_TRUE(MessageDifferencer::Equals(*read, message)) << text;
      EXPECT_EQ(ToJson(*read, style), text);
    }
  });
}

TEST(JsonRoundTripTest, ProtobufReadsWhatWePrint) {
  ForEveryMessage([](const Message& message) {
    const std::string text = ToJson(message);
    const auto read = NewMessage(*message.GetDescriptor());
    const auto status = google::protobuf::util::JsonStringToMessage(text, read.get());
    ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << text;
    EXPECT_TRUE(MessageDifferencer::Equals(*read, message)) << text;
  });
}

TEST(JsonRoundTripTest, WeReadWhatProtobufPrints) {
  ForEveryMessage([](const Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.always_print_primitive_fields = true;
    std::string text;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
    const auto read = NewMessage(*message.GetDescriptor());
    const Status status = ParseJson(text, "text", *read);
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << text;
    EXPECT_TRUE(MessageDifferencer::Equals(*read, message)) << text;
  });
}

}  // namespace
}  // namespace moeplan
