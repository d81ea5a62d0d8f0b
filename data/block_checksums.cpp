#include "data/block_checksums.h"

#include <algorithm>
#include <cstring>

#include "framework/error.h"
#include "framework/storage/hash.h"

namespace ringtrain {

constexpr const char* what_to_do =
    "restore the original file (and continue a training run with --resume); a file in use may be renamed or deleted, "
    "but not changed: write new content to another file";

BlockChecksums::BlockChecksums(const File& file) : stamp_(file.stamp()), bytes_(stamp_.bytes) {
  std::int64_t read = 0;
  hash_ = hash_file(file, [&](const char* data, std::size_t bytes) {  // all slices except the last are whole blocks
    for (std::size_t at = 0; at < bytes; at += block_bytes) {
      checksums_.push_back(hash_block(data + at, std::min(bytes - at, static_cast<std::size_t>(block_bytes))));
    }
    read += static_cast<std::int64_t>(bytes);
  });
  if (read != bytes_) {
    fail(ExitCode::data, "{} changed from {} to {} bytes while being opened; try again", file.path(), bytes_, read);
  }
  compared_ = checksums_.size();
}

std::size_t BlockChecksums::bytes_of(std::size_t block) const {
  return static_cast<std::size_t>(std::min(block_bytes, bytes_ - static_cast<std::int64_t>(block) * block_bytes));
}

void BlockChecksums::read_block(const File& file, std::size_t block, char* data) const {
  const std::size_t bytes = bytes_of(block);
  const std::int64_t begin = static_cast<std::int64_t>(block) * block_bytes;
  file.read_at(begin, data, bytes);
  if (hash_block(data, bytes) == checksums_[block]) return;
  fail(ExitCode::data,
       "{} was changed while it was in use: its bytes {} to {} are not those that were read at the start; {}",
       file.path(), begin, begin + static_cast<std::int64_t>(bytes) - 1, what_to_do);
}

/// Compares more blocks if the file's stamp has changed since the last check. A new time stamp by itself proves
/// nothing: `touch`, `chmod`, and `mv` do not change the content.
void BlockChecksums::look_again(const File& file) const {
  const FileStamp now = file.stamp();
  const std::scoped_lock lock(mutex_);
  if (now.bytes != bytes_) {
    fail(ExitCode::data, "{} was changed while it was in use: it had {} bytes and now has {}; {}", file.path(), bytes_,
         now.bytes, what_to_do);
  }
  if (now != stamp_) {
    stamp_ = now;
    compared_ = 0;
  }
  char block[block_bytes];
  const std::size_t end = std::min(checksums_.size(), compared_ + blocks_a_call);
  for (; compared_ < end; ++compared_) read_block(file, compared_, block);
}

void BlockChecksums::read(const File& file, std::int64_t offset, void* data, std::size_t bytes) const {
  look_again(file);
  char block[block_bytes];
  const std::int64_t end = offset + static_cast<std::int64_t>(bytes);
  for (std::int64_t at = offset; at < end;) {
    const auto index = static_cast<std::size_t>(at / block_bytes);
    read_block(file, index, block);
    const std::int64_t within = at % block_bytes;
    const std::int64_t count = std::min(block_bytes - within, end - at);
    std::memcpy(static_cast<char*>(data) + (at - offset), block + within, static_cast<std::size_t>(count));
    at += count;
  }
}

}  // namespace ringtrain
