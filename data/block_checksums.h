// The content of an open file, block by block: data that is read later is compared with the content at the time when
// the file was opened. So if somebody overwrites the file during a run, the run learns nothing from the changed
// content: a batch either has the bytes that were hashed at the start, or the run ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "framework/storage/files.h"

namespace ringtrain {

/// Checksums of all blocks of one open file: 8 bytes for each 32 KiB. read() may be called from several threads.
class BlockChecksums {
 public:
  static constexpr std::int64_t block_bytes = std::int64_t{1} << 15;

  /// Reads the whole file once. Throws the file's errors.
  explicit BlockChecksums(const File& file);
  /// Returns the XXH3-128 of the whole file at that time.
  const std::string& hash() const { return hash_; }

  /// Reads bytes [offset, offset + bytes) of the same file. Throws Error(data), which names the bytes and what to do,
  /// unless every block that it touches is the one that the constructor read and the file's length is unchanged. If the
  /// file has a new time stamp, it also compares other blocks again, 16 MiB per call.
  void read(const File& file, std::int64_t offset, void* data, std::size_t bytes) const;

 private:
  static constexpr std::size_t blocks_a_call = std::size_t{16 << 20} / block_bytes;
  std::size_t bytes_of(std::size_t block) const;
  void read_block(const File& file, std::size_t block, char* data) const;
  void look_again(const File& file) const;

  mutable std::mutex mutex_;          // guards stamp_ and compared_
  mutable FileStamp stamp_;           // as of the last check
  mutable std::size_t compared_ = 0;  // blocks compared since the stamp changed; if all, there is nothing to do
  const std::int64_t bytes_;
  std::string hash_;
  std::vector<std::uint64_t> checksums_;
};

}  // namespace ringtrain
