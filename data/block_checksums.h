// The content of an open file, block by block: what is read later is compared with what stood there when the file was
// opened. So a file that somebody overwrites during a run cannot change what the run learns: a batch either has the
// bytes that were hashed at the start, or the run ends.
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

  /// Reads the whole file once. Throws what the file throws.
  explicit BlockChecksums(const File& file);
  /// Returns the XXH3-128 of the whole file, as it was then.
  const std::string& hash() const { return hash_; }

  /// Reads bytes [offset, offset + bytes) of the same file. Every block that it touches must still be the one that the
  /// constructor read, and the file as long; else it throws Error(data), which names the bytes and what to do. If the
  /// file's time stamps are new, it also compares the other blocks again, 16 MiB a call.
  void read(const File& file, std::int64_t offset, void* data, std::size_t bytes) const;

 private:
  static constexpr std::size_t blocks_a_call = std::size_t{16 << 20} / block_bytes;
  std::size_t bytes_of(std::size_t block) const;
  void read_block(const File& file, std::size_t block, char* data) const;
  void look_again(const File& file) const;

  mutable std::mutex mutex_;          // guards stamp_ and compared_
  mutable FileStamp stamp_;           // as the file last said
  mutable std::size_t compared_ = 0;  // blocks compared since the stamp was new; all of them: nothing to do
  const std::int64_t bytes_;
  std::string hash_;
  std::vector<std::uint64_t> checksums_;
};

}  // namespace ringtrain
