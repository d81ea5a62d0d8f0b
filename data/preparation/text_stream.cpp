#include "data/preparation/text_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "framework/storage/files.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

constexpr std::size_t buffer_bytes = 1 << 16;

/// A file as it lies there.
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
  std::int64_t file_bytes_read() const override { return file_.file_bytes_read(); }
  std::string hash() const override { return file_.hash(); }

 protected:
  /// Fills the empty buffer. Returns false at the file's end.
  bool refill() {
    begin_ = 0;
    end_ = file_.read(buffer_.data(), buffer_.size());
    return end_ > 0;
  }
  [[noreturn]] void damaged(const char* why) const {
    fail(ExitCode::data, "{} is damaged or cut short after {} bytes: {}", file_.path(), file_.file_bytes_read(), why);
  }

  PlainStream file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is still to be used
};

class GzipStream final : public CompressedStream {
 public:
  explicit GzipStream(const std::string& path) : CompressedStream(path) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { ::inflateEnd(&state_); }
  std::size_t read(char* data, std::size_t bytes) override {
    std::size_t done = 0;
    while (done == 0) {
      if (begin_ == end_ && !refill()) {
        if (inside_) damaged("its last member has no end");
        return 0;
      }
      if (!inside_) {  // a file may hold several members, one after the other
        ::inflateReset(&state_);
        inside_ = true;
      }
      state_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + begin_);
      state_.avail_in = static_cast<uInt>(end_ - begin_);
      state_.next_out = reinterpret_cast<Bytef*>(data);
      state_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes, 1 << 30));
      const uInt room = state_.avail_out;
      const int result = ::inflate(&state_, Z_NO_FLUSH);
      begin_ = end_ - state_.avail_in;
      done = room - state_.avail_out;
      if (result == Z_STREAM_END) {
        inside_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        damaged(state_.msg ? state_.msg : "no gzip file");
      }
    }
    return done;
  }

 private:
  z_stream state_{};
  bool inside_ = false;  // a member has begun and not ended
};

class ZstdStream final : public CompressedStream {
 public:
  explicit ZstdStream(const std::string& path) : CompressedStream(path), state_(::ZSTD_createDStream()) {
    if (!state_) throw std::bad_alloc();
    ::ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, max_window_log);
  }
  std::size_t read(char* data, std::size_t bytes) override {
    ZSTD_outBuffer output{data, bytes, 0};
    while (output.pos == 0) {
      if (begin_ == end_ && !refill()) {
        if (inside_) damaged("its last frame has no end");
        return 0;
      }
      ZSTD_inBuffer input{buffer_.data(), end_, begin_};
      const std::size_t result = ::ZSTD_decompressStream(state_.get(), &output, &input);
      if (::ZSTD_isError(result)) damaged(::ZSTD_getErrorName(result));
      begin_ = input.pos;
      inside_ = result != 0;
    }
    return output.pos;
  }

 private:
  static constexpr int max_window_log = 26;  // 64 MiB
  struct Free {
    void operator()(ZSTD_DStream* state) const { ::ZSTD_freeDStream(state); }
  };
  std::unique_ptr<ZSTD_DStream, Free> state_;
  bool inside_ = false;  // a frame has begun and not ended
};

}  // namespace

Compression compression_of(std::string_view path) {
  if (path.ends_with(".gz")) return Compression::gzip;
  if (path.ends_with(".zst")) return Compression::zstd;
  return Compression::none;
}

std::string_view without_compression(std::string_view path) {
  const Compression kind = compression_of(path);
  if (kind != Compression::none) path.remove_suffix(kind == Compression::gzip ? 3 : 4);
  return path;
}

std::unique_ptr<TextStream> TextStream::open(const std::string& path) {
  switch (compression_of(path)) {
    case Compression::gzip:
      return std::make_unique<GzipStream>(path);
    case Compression::zstd:
      return std::make_unique<ZstdStream>(path);
    case Compression::none:
      break;
  }
  return std::make_unique<PlainStream>(path);
}

}  // namespace ringtrain
