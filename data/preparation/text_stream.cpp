#include "data/preparation/text_stream.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <vector>

#include "framework/storage/files.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

constexpr std::string_view gzip_ending = ".gz", zstd_ending = ".zst";
constexpr std::size_t buffer_bytes = 1 << 16;

/// A file that is not compressed.
class PlainStream : public TextStream {
 public:
  explicit PlainStream(const std::string& path) : file_(File::open(path, ExitCode::data)), bytes_(file_.size()) {}
  std::size_t read(char* data, std::size_t bytes) override {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(bytes), bytes_ - at_));
    if (count == 0) return 0;
    file_.read_at(at_, data, count);
    hasher_.update(data, count);
    at_ += static_cast<std::int64_t>(count);
    return count;
  }
  std::int64_t file_bytes_read() const override { return at_; }
  std::string hash() const override { return hasher_.digest(); }
  const std::string& path() const { return file_.path(); }

 private:
  File file_;
  std::int64_t bytes_, at_ = 0;
  Hasher hasher_;
};

/// A file that is decompressed through a buffer.
class CompressedStream : public TextStream {
 public:
  explicit CompressedStream(const std::string& path) : file_(path), buffer_(buffer_bytes) {}
  std::size_t read(char* data, std::size_t bytes) final {
    std::size_t done = 0;
    while (done == 0) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = file_.read(buffer_.data(), buffer_.size());
        if (end_ == 0 && inside_) damaged("the compressed data has no end");
        if (end_ == 0) return 0;
      }
      done = decompress(data, bytes);
    }
    return done;
  }
  std::int64_t file_bytes_read() const override { return file_.file_bytes_read(); }
  std::string hash() const override { return file_.hash(); }

 protected:
  /// Decompresses from the buffer and updates inside_. Returns the resulting bytes of text.
  virtual std::size_t decompress(char* data, std::size_t bytes) = 0;
  [[noreturn]] void damaged(const char* why) const {
    fail(ExitCode::data, "{} is damaged or cut short after {} bytes: {}", file_.path(), file_.file_bytes_read(), why);
  }

  PlainStream file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // the unused part of the buffer
  bool inside_ = false;              // within a gzip member or a zstd frame
};

class GzipStream final : public CompressedStream {
 public:
  explicit GzipStream(const std::string& path) : CompressedStream(path) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { ::inflateEnd(&state_); }

 private:
  std::size_t decompress(char* data, std::size_t bytes) override {
    if (!inside_) ::inflateReset(&state_);  // a file may contain several consecutive members
    state_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + begin_);
    state_.avail_in = static_cast<uInt>(end_ - begin_);
    state_.next_out = reinterpret_cast<Bytef*>(data);
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes, 1 << 30));
    const uInt room = state_.avail_out;
    const int result = ::inflate(&state_, Z_NO_FLUSH);
    begin_ = end_ - state_.avail_in;
    inside_ = result != Z_STREAM_END;
    if (inside_ && result != Z_OK && result != Z_BUF_ERROR) damaged(state_.msg ? state_.msg : "not a gzip file");
    return room - state_.avail_out;
  }

  z_stream state_{};
};

class ZstdStream final : public CompressedStream {
 public:
  explicit ZstdStream(const std::string& path) : CompressedStream(path), state_(::ZSTD_createDStream()) {
    if (!state_) throw std::bad_alloc();
  }

 private:
  std::size_t decompress(char* data, std::size_t bytes) override {
    ZSTD_outBuffer output{data, bytes, 0};
    ZSTD_inBuffer input{buffer_.data(), end_, begin_};
    const std::size_t result = ::ZSTD_decompressStream(state_.get(), &output, &input);
    if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      fail(ExitCode::data, "{} has a window of more than 128 MiB; decompress it with zstd -d --long=31", file_.path());
    }
    if (::ZSTD_isError(result)) damaged(::ZSTD_getErrorName(result));
    begin_ = input.pos;
    inside_ = result != 0;
    return output.pos;
  }

  struct Free {
    void operator()(ZSTD_DStream* state) const { ::ZSTD_freeDStream(state); }
  };
  std::unique_ptr<ZSTD_DStream, Free> state_;
};

}  // namespace

std::string_view without_compression(std::string_view path) {
  for (const std::string_view ending : {gzip_ending, zstd_ending}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

std::unique_ptr<TextStream> TextStream::open(const std::string& path) {
  if (path.ends_with(gzip_ending)) return std::make_unique<GzipStream>(path);
  if (path.ends_with(zstd_ending)) return std::make_unique<ZstdStream>(path);
  return std::make_unique<PlainStream>(path);
}

}  // namespace ringtrain
