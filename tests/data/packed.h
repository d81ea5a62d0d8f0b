// Compressed contents, for tests that read such files.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

namespace ringtrain {

/// Returns the .gz form of content.
inline std::string gzipped(const std::string& content) {
  z_stream state{};
  EXPECT_EQ(::deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(::deflateBound(&state, content.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  state.avail_in = static_cast<uInt>(content.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(::deflate(&state, Z_FINISH), Z_STREAM_END);
  packed.resize(state.total_out);
  ::deflateEnd(&state);
  return packed;
}

/// Returns the .zst form of content.
inline std::string zstandard(const std::string& content) {
  std::string packed(::ZSTD_compressBound(content.size()), '\0');
  packed.resize(::ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3));
  return packed;
}

}  // namespace ringtrain
