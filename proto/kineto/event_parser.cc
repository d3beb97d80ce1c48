#include "proto/kineto/event_parser.h"

#include <charconv>
#include <cmath>
#include <istream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "models/text.h"
#include "proto/json.h"

namespace moeplan::kineto {
namespace {

using Json = nlohmann::json;

// The kind of value that the parser is in.
enum class Place { kRoot, kDistributed, kEvents, kEvent, kArguments, kShapes, kShape, kElements, kRanks, kElsewhere };

std::optional<std::int64_t> WholeNumber(double value) {
  if (!(std::abs(value) < 9e15) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

// "[0, 1, 2]". Kineto shortens long lists, which end in "...": those are none.
std::vector<int> RanksIn(std::string_view text) {
  std::vector<int> ranks;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == '.') return {};
    int rank = 0;
    const auto [next, problem] = std::from_chars(at, end, rank);
    if (problem != std::errc()) {
      ++at;
      continue;
    }
    if (rank < 0 || ranks.size() == kMostGroupRanks) return {};
    ranks.push_back(rank);
    at = next;
  }
  return ranks;
}

class EventHandler : public nlohmann::json_sax<Json> {
 public:
  EventHandler(TraceText& text, const std::function<Status(RawEvent&)>& take) : text_(text), take_(take) {}

  const Status& status() const { return status_; }
  const TraceHeader& header() const { return header_; }
  bool has_events() const { return has_events_; }

  bool null() override { return Done(); }
  bool boolean(bool) override { return Done(); }
  bool number_integer(number_integer_t value) override { return Number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool binary(binary_t&) override { return Done(); }

  bool string(string_t& value) override {
    switch (Here()) {
      case Place::kEvent: EventText(value); break;
      case Place::kArguments: ArgumentText(value); break;
      case Place::kElements:
        if (event_.elements.size() < kMostShapes) event_.elements.push_back(std::move(value));
        break;
      case Place::kShapes: AddShape({}); break;
      default: break;
    }
    return Done();
  }

  bool start_object(std::size_t) override {
    if (places_.empty()) return Enter(Place::kRoot);
    if (Here() == Place::kRoot && key_ == "distributedInfo") return Enter(Place::kDistributed);
    if (Here() == Place::kEvent && key_ == "args") return Enter(Place::kArguments);
    if (Here() != Place::kEvents) return Enter(Place::kElsewhere);
    event_ = {};
    event_.line = text_.Line();
    return Enter(Place::kEvent);
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return Done();
  }

  bool end_object() override {
    const Place ended = Leave();
    if (ended != Place::kEvent) return Done();
    ++header_.events;
    return Note(take_(event_)) && Done();
  }

  bool start_array(std::size_t) override {
    if (places_.empty()) {
      return Note(
          InvalidInput("found a list, expected an object with traceEvents: PyTorch without Kineto writes lists, "
                       "which have neither shapes nor kernels"));
    }
    if (Here() == Place::kRoot && key_ == "traceEvents") {
      has_events_ = true;
      return Enter(Place::kEvents);
    }
    if (Here() == Place::kShapes) {
      shape_ = Shape();
      return Enter(Place::kShape);
    }
    if (Here() == Place::kShape) shape_.reset();  // A list of tensors: no shape.
    if (Here() != Place::kArguments) return Enter(Place::kElsewhere);
    if (key_ == "Input Dims" || key_ == "Input dims") return Enter(Place::kShapes);
    if (key_ == "Input type") return Enter(Place::kElements);
    if (key_ == "Process Group Ranks") return Enter(Place::kRanks);
    return Enter(Place::kElsewhere);
  }

  bool end_array() override {
    if (Leave() == Place::kShape) AddShape(std::exchange(shape_, std::nullopt).value_or(Shape()));
    return Done();
  }

  bool parse_error(std::size_t, const std::string& last, const nlohmann::detail::exception&) override {
    return Note(InvalidInput(StrCat("line ", text_.Line(), ": found ",
                                    text_.has_ended() ? "the end" : StrCat("no JSON at ", last.substr(0, 40)),
                                    ", expected the rest of a trace: export it again when the profiler has stopped")));
  }

 private:
  Place Here() const { return places_.empty() ? Place::kElsewhere : places_.back(); }

  bool Enter(Place place) {
    if (places_.size() == kMaxJsonDepth) {
      return Note(InvalidInput(
          StrCat("line ", text_.Line(), ": found more than ", kMaxJsonDepth, " nested values, expected fewer")));
    }
    places_.push_back(place);
    return Done();
  }
  Place Leave() {
    const Place place = places_.back();
    places_.pop_back();
    return place;
  }
  bool Done() {
    text_.EndOfValue();
    return true;
  }
  bool Note(Status status) {
    if (status.ok()) return true;
    status_ = std::move(status);
    return false;
  }

  void AddShape(Shape shape) {
    if (event_.shapes.size() < kMostShapes) event_.shapes.push_back(std::move(shape));
  }

  void EventText(std::string& value) {
    if (key_ == "ph") event_.phase = std::move(value);
    if (key_ == "cat") event_.category = std::move(value);
    if (key_ == "name") event_.name = value.substr(0, kLongestEventName);
  }

  void ArgumentText(const std::string& value) {
    if (key_ == "Collective name") event_.call.name = value.substr(0, kLongestEventName);
    if (key_ == "dtype") event_.call.element = value.substr(0, kLongestEventName);
    if (key_ == "Process Group Ranks") event_.call.ranks = RanksIn(value);
  }

  bool Number(double value) {
    if (std::isfinite(value)) TakeNumber(value);
    return Done();
  }
  void TakeNumber(double value) {
    switch (Here()) {
      case Place::kDistributed:
        if (key_ == "rank" && value >= 0 && value < 1e9) header_.rank = static_cast<int>(value);
        break;
      case Place::kEvent: EventNumber(value); break;
      case Place::kArguments: ArgumentNumber(value); break;
      case Place::kShapes: AddShape({}); break;
      case Place::kShape: AddDimension(value); break;
      case Place::kRanks: AddRank(value); break;
      default: break;
    }
  }

  void EventNumber(double value) {
    if (key_ == "ts") event_.start_us = value;
    if (key_ == "dur") event_.duration_us = value;
    if (key_ == "pid") event_.process = WholeNumber(value);
    if (key_ == "tid") event_.thread = WholeNumber(value);
    if (key_ == "id") event_.id = WholeNumber(value);
  }

  void ArgumentNumber(double value) {
    if (key_ == "correlation") event_.correlation = WholeNumber(value);
    if (key_ == "External id" || key_ == "external id") event_.external_id = WholeNumber(value);
    if (key_ == "Sequence number") event_.sequence = WholeNumber(value);
    if (key_ == "Fwd thread id") event_.forward_thread = WholeNumber(value);
    if (key_ == "stream") event_.stream = WholeNumber(value);
    if (key_ == "In msg nelems") event_.call.in_elements = value;
    if (key_ == "Out msg nelems") event_.call.out_elements = value;
    if (key_ == "Group size" && value >= 1 && value < 1e9) event_.call.group_size = static_cast<int>(value);
  }

  void AddDimension(double value) {
    if (!shape_) return;
    if (value < 0 || shape_->size() == kMostDimensions) {
      shape_.reset();
    } else {
      shape_->push_back(value);
    }
  }
  void AddRank(double value) {
    const auto rank = WholeNumber(value);
    if (rank && *rank >= 0 && *rank < 1'000'000'000 && event_.call.ranks.size() < kMostGroupRanks) {
      event_.call.ranks.push_back(static_cast<int>(*rank));
    }
  }

  TraceText& text_;
  const std::function<Status(RawEvent&)>& take_;
  std::vector<Place> places_;  // Around the value that comes next.
  std::string key_;
  RawEvent event_;
  std::optional<Shape> shape_;
  TraceHeader header_;
  bool has_events_ = false;
  Status status_;
};

}  // namespace

StatusOr<TraceHeader> ParseEvents(TraceBytes& bytes, const std::function<Status(RawEvent&)>& take) {
  TraceText text(bytes);
  std::istream stream(&text);
  EventHandler handler(text, take);
  Json::sax_parse(stream, &handler);
  RETURN_IF_ERROR(text.status());
  RETURN_IF_ERROR(handler.status());
  if (!handler.has_events()) {
    return InvalidInput("found no traceEvents, expected what torch.profiler's export_chrome_trace writes");
  }
  return handler.header();
}

}  // namespace moeplan::kineto
