#include "train/step/tensorboard_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"
#include "train/run/metrics_lines.h"
#include "train/run/run_folder.h"

namespace ringtrain {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}

/// Returns CRC-32C as records carry it: rotated and moved, so that a checksum of data with checksums is not weak.
std::uint32_t masked(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

template <class Integer>
void append_little_endian(std::string& text, Integer value) {
  for (std::size_t byte = 0; byte < sizeof(Integer); ++byte) {
    text += static_cast<char>(static_cast<unsigned char>(value >> (8 * byte)));
  }
}

// Protocol buffers: a field is its number and wire type, then a varint, 4 or 8 bytes, or a length and bytes.
enum class Wire : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_varint(std::string& text, std::uint64_t value) {
  for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
  text += static_cast<char>(value);
}
void append_key(std::string& text, std::uint32_t field, Wire wire) {
  append_varint(text, field << 3 | static_cast<std::uint32_t>(wire));
}
void append_bytes(std::string& text, std::uint32_t field, std::string_view bytes) {
  append_key(text, field, Wire::bytes);
  append_varint(text, bytes.size());
  text += bytes;
}
void append_double(std::string& text, std::uint32_t field, double value) {
  append_key(text, field, Wire::fixed64);
  append_little_endian(text, std::bit_cast<std::uint64_t>(value));
}

/// Returns the first event of every file.
std::string version_event() {
  std::string event;
  append_double(event, 1, 0);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> table = make_table();
  std::uint32_t value = ~0U;
  for (const char byte : bytes) value = (value >> 8) ^ table[(value ^ static_cast<unsigned char>(byte)) & 255];
  return ~value;
}

std::string tensorboard_record(std::string_view bytes) {
  std::string length, record;
  append_little_endian(length, static_cast<std::uint64_t>(bytes.size()));
  record = length;
  append_little_endian(record, masked(length));
  record += bytes;
  append_little_endian(record, masked(bytes));
  return record;
}

std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_key(value, 2, Wire::fixed32);
    append_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)));
    append_bytes(summary, 1, value);
  }
  std::string event;
  append_double(event, 1, wall_time);
  append_key(event, 2, Wire::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  append_bytes(event, 5, summary);
  return event;
}

MetricsScalars scalars_of(const std::string& metrics_line) {
  const std::optional<MetricsEntry> entry = parse_metrics_line(metrics_line);
  if (!entry) return {};
  const nlohmann::json& line = entry->json;
  MetricsScalars scalars;
  scalars.step = entry->step;
  scalars.wall_time = wall_time_of(line).value_or(0);
  if (!entry->evaluation) {
    for (const auto& [key, value] : line.items()) {
      if (key != "step" && value.is_number()) scalars.values.emplace_back("train/" + key, value.get<double>());
    }
  } else if (line.contains("results") && line["results"].is_array()) {
    for (const nlohmann::json& result : line["results"]) {
      if (!result.contains("context_length")) continue;
      const auto context = whole_number(result["context_length"]);
      for (const char* key : {"nll", "perplexity", "bits_per_byte"}) {
        if (!context || !result.contains(key) || !result[key].is_number()) continue;
        scalars.values.emplace_back(fmt::format("evaluation/{}/{}", key, *context), result[key].get<double>());
      }
    }
  }
  return scalars;
}

TensorBoardFile::TensorBoardFile(const std::string& folder, const std::string& metrics_path) {
  const std::string path = RunFolder(folder).events_path();
  require_regular_or_absent(path, ExitCode::checkpoint);
  remove_tree(path, ExitCode::checkpoint);
  file_ = AppendedFile(path, ExitCode::checkpoint);
  file_.add(tensorboard_record(version_event()));
  if (path_exists(metrics_path, ExitCode::checkpoint)) {
    read_metrics_lines(File::open(metrics_path, ExitCode::checkpoint), [&](const MetricsLine& line) {
      add(line.text);
      if (file_.waiting() > (std::size_t{1} << 20)) file_.append();
    });
  }
  file_.append();
}

void TensorBoardFile::add(const std::string& metrics_line) {
  const MetricsScalars scalars = scalars_of(metrics_line);
  if (scalars.values.empty()) return;
  file_.add(tensorboard_record(scalar_event(scalars.wall_time, scalars.step, scalars.values)));
}

}  // namespace ringtrain
