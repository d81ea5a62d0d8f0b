// Reads TensorBoard's event files, by the descriptions of the formats: records, and protocol buffers in them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "train/step/tensorboard_file.h"

namespace ringtrain::testing {

/// Takes values from the front of bytes.
struct EventReader {
  std::string_view bytes;
  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  std::string_view part(std::size_t size) {
    const std::string_view head = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return head;
  }
};
inline std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t sum = crc32c(bytes);
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}
using Scalars = std::map<std::pair<std::string, std::uint64_t>, float>;
inline Scalars read_events(const std::string& file, double* last_time) {
  Scalars scalars;
  EventReader records{file};
  for (int record = 0; !records.bytes.empty(); ++record) {
    EXPECT_EQ(masked(records.bytes.substr(0, 8)), [&] {
      EventReader copy{records.bytes.substr(8)};
      return copy.fixed<std::uint32_t>();
    }());
    const auto size = records.fixed<std::uint64_t>();
    records.fixed<std::uint32_t>();
    const std::string_view body = records.part(size);
    EXPECT_EQ(records.fixed<std::uint32_t>(), masked(body));
    EventReader event{body};
    std::uint64_t step = 0;
    while (!event.bytes.empty()) {
      const std::uint64_t key = event.varint();
      if (key == (1 << 3 | 1)) {
        *last_time = event.fixed<double>();
      } else if (key == (2 << 3 | 0)) {
        step = event.varint();
      } else if (key == (3 << 3 | 2)) {
        EXPECT_EQ(event.part(event.varint()), "brain.Event:2");
        EXPECT_EQ(record, 0);
      } else if (key == (5 << 3 | 2)) {
        EventReader summary{event.part(event.varint())};
        while (!summary.bytes.empty()) {
          EXPECT_EQ(summary.varint(), 1u << 3 | 2);
          EventReader value{summary.part(summary.varint())};
          EXPECT_EQ(value.varint(), 1u << 3 | 2);
          const std::string tag(value.part(value.varint()));
          EXPECT_EQ(value.varint(), 2u << 3 | 5);
          scalars[{tag, step}] = value.fixed<float>();
        }
      } else {
        ADD_FAILURE() << "field " << key;
        return scalars;
      }
    }
  }
  return scalars;
}

}  // namespace ringtrain::testing
