// Writes the metadata of GGUF files (github.com/ggml-org/ggml, docs/gguf.md): alone, or in place of what a model's file
// says of its tokenizer.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace ringtrain::testing {

/// Keys, and their values with types.
class GgufMetadata {
 public:
  void put(const std::string& key, const std::string& value) { values_[key] = bytes_of(8U) + text(value); }
  void put(const std::string& key, std::uint32_t value) { values_[key] = bytes_of(4U) + bytes_of(value); }
  void put_number(const std::string& key, std::int64_t value) { values_[key] = bytes_of(11U) + bytes_of(value); }
  void put_truth(const std::string& key, bool value) { values_[key] = bytes_of(7U) + bytes_of(value); }
  void put(const std::string& key, const std::vector<std::string>& list) {
    values_[key] = bytes_of(9U) + bytes_of(8U) + bytes_of(std::uint64_t{list.size()});
    for (const std::string& value : list) values_[key] += text(value);
  }
  template <class T>
  void put_numbers(const std::string& key, std::uint32_t type, const std::vector<T>& list) {
    values_[key] = bytes_of(9U) + bytes_of(type) + bytes_of(std::uint64_t{list.size()});
    for (const T value : list) values_[key] += bytes_of(value);
  }
  void remove(const std::string& key) { values_.erase(key); }

  /// Writes a file that holds nothing else.
  void write(const std::string& path) const {
    std::string file = "GGUF" + bytes_of(3U) + bytes_of(std::uint64_t{0}) + bytes_of(std::uint64_t{values_.size()});
    file += entries();
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    std::ofstream(path, std::ios::binary) << file;
  }

  /// Writes the file of a model with these keys before its own, of which those of its tokenizer lose their names.
  void write_into(const std::string& model, const std::string& path) const {
    std::ifstream stream(model, std::ios::binary);
    std::string file{std::istreambuf_iterator<char>(stream), {}};
    const std::string name = "tokenizer.ggml.", lost = "tokenizer.lost.";
    for (std::size_t at = 0; (at = file.find(name, at)) != std::string::npos;) file.replace(at, name.size(), lost);
    std::uint64_t count = 0;
    std::memcpy(&count, file.data() + 16, sizeof count);
    // Tensors keep their places only if all moves by a multiple of the alignment.
    GgufMetadata padded = *this;
    padded.put("padding", "");
    padded.put("padding", std::string(alignment - padded.entries().size() % alignment, ' '));
    count += padded.values_.size();
    std::memcpy(file.data() + 16, &count, sizeof count);
    file.insert(24, padded.entries());
    std::ofstream(path, std::ios::binary) << file;
  }

 private:
  static constexpr std::size_t alignment = 32;

  template <class T>
  static std::string bytes_of(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string text(const std::string& value) { return bytes_of(std::uint64_t{value.size()}) + value; }
  std::string entries() const {
    std::string all;
    for (const auto& [key, value] : values_) all += text(key) + value;
    return all;
  }

  std::map<std::string, std::string> values_;
};

}  // namespace ringtrain::testing
