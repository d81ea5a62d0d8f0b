// TensorBoard's event file of a run, made from the lines of metrics.jsonl: records with masked CRC32C, each an Event in
// protocol buffers (TensorFlow's record_writer.h and event.proto). It holds what metrics.jsonl holds, as float32, and
// nothing else. A run that goes on writes it anew from the lines that are kept, so that steps which were cut off are in
// neither.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/storage/appended_file.h"

namespace ringtrain {

/// Returns the CRC-32C (Castagnoli) of bytes.
std::uint32_t crc32c(std::string_view bytes);
/// Returns bytes as a record: length, masked checksum of the length, the bytes, their masked checksum.
std::string tensorboard_record(std::string_view bytes);
/// Returns an Event of scalars, as its serialized bytes.
std::string scalar_event(double wall_time, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars);

/// The scalars of one line of metrics.jsonl.
struct MetricsScalars {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;  // "train/loss"; "evaluation/nll/4096"
};
/// Returns them; none for a line that is no metrics of a run.
MetricsScalars scalars_of(const std::string& metrics_line);

class TensorBoardFile {
 public:
  /// Writes DIR/events.out.tfevents.0.ringtrain with the lines of the metrics file as it stands; replaces a former one.
  /// Throws Error(checkpoint), as append() does.
  TensorBoardFile(const std::string& folder, const std::string& metrics_path);
  /// Takes the scalars of a line, which wait for append().
  void add(const std::string& metrics_line);
  /// Appends what waits; what the disk refuses waits on.
  void append() { file_.append(); }
  /// Returns the bytes that wait.
  std::size_t waiting() const { return file_.waiting(); }

 private:
  AppendedFile file_;
};

}  // namespace ringtrain
