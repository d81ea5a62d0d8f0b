#include "extras/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/stored_tensor.h"

namespace ringtrain {

namespace {

constexpr std::string_view magic = "GGUF";
constexpr std::int64_t longest_text = std::int64_t{16} << 20;     // bytes; a chat template may have some 10^5
constexpr std::int64_t longest_list = std::int64_t{1} << 22;      // a vocabulary may have some 10^5
constexpr std::int64_t longest_header = std::int64_t{256} << 20;  // bytes
constexpr std::uint32_t max_dimensions = 4;                       // the format's
constexpr std::int64_t default_alignment = 32;

/// A file's header, read from its begin on in pieces of 64 KiB.
class HeaderBytes {
 public:
  explicit HeaderBytes(const std::string& path)
      : file_(File::open(path, ExitCode::checkpoint)), stamp_(file_.stamp()), size_(stamp_.bytes) {}

  /// Returns the stamp of the file, of which the whole header has been read.
  const FileStamp& stamp() const {
    require_unchanged(file_, stamp_);
    return stamp_;
  }

  std::int64_t position() const { return position_; }
  std::int64_t size() const { return size_; }
  std::int64_t left() const { return std::min(size_, longest_header) - position_; }
  /// What is being read, for messages.
  void set_subject(std::string subject) { subject_ = std::move(subject); }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::checkpoint, "{}: {} {}", file_.path(), subject_, fmt::format(format, std::forward<Args>(args)...));
  }

  void read(void* to, std::int64_t bytes) {
    if (bytes > left()) refuse("ends beyond the file or its first 256 MiB: the file is cut off, or is no GGUF file");
    for (auto* out = static_cast<char*>(to); bytes > 0;) {
      if (position_ < begin_ || position_ >= begin_ + std::ssize(piece_)) fill();
      const std::int64_t count = std::min(bytes, begin_ + std::ssize(piece_) - position_);
      std::memcpy(out, piece_.data() + (position_ - begin_), static_cast<std::size_t>(count));
      out += count;
      position_ += count;
      bytes -= count;
    }
  }
  template <class T>
  T number() {
    T value;
    read(&value, sizeof value);
    return value;
  }
  /// Returns a count that may be at most `most`, of things that need at least `each` bytes.
  std::int64_t count(std::int64_t most, std::int64_t each, const char* what) {
    const auto value = number<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::min(most, left() / each))) {
      refuse("would have {} {}, more than the file can hold or this program takes", value, what);
    }
    return static_cast<std::int64_t>(value);
  }
  std::string text() {
    std::string value(static_cast<std::size_t>(count(longest_text, 1, "bytes of text")), '\0');
    read(value.data(), std::ssize(value));
    return value;
  }

 private:
  void fill() {
    constexpr std::int64_t piece = 65536;
    begin_ = position_;
    piece_.resize(std::min(piece, size_ - begin_));
    file_.read_at(begin_, piece_.data(), piece_.size());
  }

  File file_;
  FileStamp stamp_;
  std::int64_t size_, position_ = 0, begin_ = 0;
  std::string piece_, subject_ = "its header";
};

// Numbers of the format's types of values.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };

std::int64_t bytes_of(ValueType type) {
  constexpr std::array<std::int64_t, 13> bytes{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return bytes[static_cast<std::size_t>(type)];
}

ValueType read_type(HeaderBytes& bytes) {
  const auto type = bytes.number<std::uint32_t>();
  if (type > static_cast<std::uint32_t>(ValueType::f64)) bytes.refuse("has a value of the unknown type {}", type);
  return static_cast<ValueType>(type);
}

std::int64_t read_integer(HeaderBytes& bytes, ValueType type) {
  using enum ValueType;
  std::uint64_t value = 0;  // its low bytes come first, as in the file
  bytes.read(&value, bytes_of(type));
  if (type == i8 || type == i16 || type == i32 || type == i64) {
    const auto missing = 64 - 8 * bytes_of(type);  // bits, which are those of the sign
    return static_cast<std::int64_t>(value << missing) >> missing;
  }
  if (value > INT64_MAX) bytes.refuse("holds {}, too large a number", value);
  return static_cast<std::int64_t>(value);
}

bool is_real(ValueType type) {
  return type == ValueType::f32 || type == ValueType::f64;
}

double read_real(HeaderBytes& bytes, ValueType type) {
  return type == ValueType::f32 ? static_cast<double>(bytes.number<float>()) : bytes.number<double>();
}

template <class T, class Read>
std::vector<T> read_list(std::int64_t count, Read&& read) {
  std::vector<T> values;
  values.reserve(count);
  for (std::int64_t i = 0; i < count; ++i) values.push_back(read());
  return values;
}

GgufValue read_value(HeaderBytes& bytes, ValueType type) {
  if (type == ValueType::text) return bytes.text();
  if (type == ValueType::boolean) return bytes.number<std::uint8_t>() != 0;
  if (is_real(type)) return read_real(bytes, type);
  if (type != ValueType::list) return read_integer(bytes, type);
  const ValueType element = read_type(bytes);
  if (element == ValueType::list) bytes.refuse("is a list of lists, which nothing here needs");
  const std::int64_t count = bytes.count(longest_list, bytes_of(element), "elements");
  if (element == ValueType::text) return read_list<std::string>(count, [&] { return bytes.text(); });
  if (is_real(element)) return read_list<double>(count, [&] { return read_real(bytes, element); });
  if (element == ValueType::boolean) {
    return read_list<std::int64_t>(count, [&] { return std::int64_t{bytes.number<std::uint8_t>() != 0}; });
  }
  return read_list<std::int64_t>(count, [&] { return read_integer(bytes, element); });
}

/// Sets the bytes of a tensor of a type that is read.
void set_bytes(GgufTensor& tensor, const HeaderBytes& bytes) {
  std::int64_t elements = 1, all = 0;
  bool fits = true;
  for (const std::int64_t size : tensor.shape) fits = fits && !__builtin_mul_overflow(elements, size, &elements);
  fits = fits && !__builtin_mul_overflow(elements, std::int64_t{8}, &all);
  if (!fits || elements / 2 > bytes.size())
    bytes.refuse("has the shape {}, too large for this file", shape_text(tensor.shape));
  if (tensor.shape.empty() || tensor.shape.back() % tensor.type->elements != 0) {
    bytes.refuse("has the shape {}, whose rows are no whole blocks of {}", shape_text(tensor.shape), tensor.type_name);
  }
  tensor.bytes = elements / tensor.type->elements * tensor.type->bytes;
}

GgufTensor read_tensor(HeaderBytes& bytes) {
  GgufTensor tensor;
  tensor.name = bytes.text();
  bytes.set_subject("tensor " + plain_text(tensor.name));
  const auto dimensions = bytes.number<std::uint32_t>();
  if (dimensions > max_dimensions) bytes.refuse("has {} dimensions", dimensions);
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto size = bytes.number<std::uint64_t>();
    if (size > INT64_MAX) bytes.refuse("has a dimension of {}", size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto type = bytes.number<std::uint32_t>();
  tensor.type = find_gguf_type(type);
  tensor.type_name = gguf_type_name(type);
  if (tensor.type) set_bytes(tensor, bytes);
  const auto offset = bytes.number<std::uint64_t>();
  if (offset > static_cast<std::uint64_t>(bytes.size())) bytes.refuse("begins beyond the file, at {}", offset);
  tensor.offset = static_cast<std::int64_t>(offset);  // from the data's start, as yet
  return tensor;
}

/// Throws unless the tensors lie in the file, one behind the other.
void check_places(std::vector<GgufTensor>& tensors, std::int64_t data, std::int64_t alignment, HeaderBytes& bytes) {
  std::ranges::sort(tensors, {}, [](const GgufTensor& tensor) { return std::pair(tensor.offset, tensor.bytes); });
  std::int64_t end = 0;
  for (GgufTensor& tensor : tensors) {
    bytes.set_subject("tensor " + plain_text(tensor.name));
    if (tensor.offset % alignment != 0) bytes.refuse("begins at {}, no multiple of {}", tensor.offset, alignment);
    if (tensor.offset < end) bytes.refuse("begins at {}, inside the one before it", tensor.offset);
    end = tensor.offset + tensor.bytes;
    if (end > bytes.size() - data) bytes.refuse("ends beyond the file, which is cut off");
    tensor.offset += data;
  }
}

}  // namespace

GgufFile GgufFile::open(const std::string& path) {
  GgufFile file;
  file.path_ = path;
  HeaderBytes bytes(path);
  std::array<char, magic.size()> first{};
  bytes.read(first.data(), first.size());
  if (std::string_view(first.data(), first.size()) != magic) bytes.refuse("does not begin with {}", magic);
  const auto version = bytes.number<std::uint32_t>();
  if (version != 2 && version != 3) bytes.refuse("is of version {}; 2 and 3 are read (little-endian)", version);
  constexpr std::int64_t min_tensor = 24, min_entry = 13;  // bytes
  const std::int64_t tensor_count = bytes.count(longest_list, min_tensor, "tensors");
  const std::int64_t entries = bytes.count(longest_list, min_entry, "entries");
  for (std::int64_t i = 0; i < entries; ++i) {
    bytes.set_subject("its header");
    std::string key = bytes.text();
    bytes.set_subject("key " + plain_text(key));
    const ValueType type = read_type(bytes);
    if (!file.metadata_.emplace(std::move(key), read_value(bytes, type)).second) bytes.refuse("stands there twice");
  }
  std::vector<GgufTensor> tensors;
  for (std::int64_t i = 0; i < tensor_count; ++i) {
    bytes.set_subject("its header");
    tensors.push_back(read_tensor(bytes));
  }
  bytes.set_subject("its header");
  const std::int64_t alignment = file.get("general.alignment", default_alignment);
  if (alignment < 1 || alignment > 65536 || !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    bytes.refuse("says general.alignment is {}, no power of two up to 65536", alignment);
  }
  const std::int64_t data = (bytes.position() + alignment - 1) / alignment * alignment;
  check_places(tensors, data, alignment, bytes);
  file.stamp_ = bytes.stamp();
  for (GgufTensor& tensor : tensors) {
    bytes.set_subject("tensor " + plain_text(tensor.name));
    std::string name = tensor.name;
    if (!file.tensors_.emplace(std::move(name), std::move(tensor)).second) bytes.refuse("stands there twice");
  }
  return file;
}

File GgufFile::reopen() const {
  File opened = File::open(path_, ExitCode::checkpoint);
  require_unchanged(opened);
  return opened;
}

void GgufFile::require_unchanged(const File& opened) const {
  ringtrain::require_unchanged(opened, stamp_);
}

std::string_view GgufFile::wanted(const GgufValue& value) {
  constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> names{
      "a whole number",          "a real number",          "true or false",  "text",
      "a list of whole numbers", "a list of real numbers", "a list of texts"};
  return names[value.index()];
}

}  // namespace ringtrain
