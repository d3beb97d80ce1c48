// FNV-1a, 64 bits: a digest that is the same in every build, unlike std::hash. Every step is a bijection of the state,
// so one changed byte always changes it. Not for secrets. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace moeplan {

class Fnv1a {
 public:
  void Add(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  void Add(std::string_view text) {
    for (const char byte : text) Add(static_cast<unsigned char>(byte));
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace moeplan
