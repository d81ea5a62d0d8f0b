#include "framework/storage/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "framework/error.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

/// Returns a type's rank in the reference's order.
int rank_of(StoredType type) {
  return type == StoredType::float32 ? 0 : type == StoredType::bfloat16 ? 1 : 2;
}

/// Returns the header's text, padded. Sets each tensor's type_name, and the begin and end of its bytes, from the start
/// of the data.
std::string header_of(std::vector<StoredTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::int64_t end = 0;
  for (StoredTensor& tensor : tensors) {
    tensor.type_name = safetensors_name(tensor.type);
    tensor.offset = end;
    tensor.bytes = stored_bytes(tensor.type, tensor.elements());
    end += tensor.bytes;
    const nlohmann::ordered_json entry{
        {"dtype", tensor.type_name}, {"shape", tensor.shape}, {"data_offsets", {tensor.offset, end}}};
    text += "," + json_text(tensor.name) + ":" + json_text(entry);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

const char* safetensors_name(StoredType type) {
  ensure(type == StoredType::float32 || type == StoredType::float16 || type == StoredType::bfloat16,
         "safetensors are written in three types");
  return type == StoredType::float32 ? "F32" : type == StoredType::float16 ? "F16" : "BF16";
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<StoredTensor> tensors)
    : tensors_(std::move(tensors)) {
  std::ranges::sort(tensors_, {},
                    [](const StoredTensor& tensor) { return std::tuple(rank_of(tensor.type), tensor.name); });
  const std::string header = header_of(tensors_);
  const std::uint64_t length = header.size();
  const std::int64_t data = std::int64_t{sizeof length} + std::ssize(header);
  for (StoredTensor& tensor : tensors_) tensor.offset += data;
  end_ = tensors_.empty() ? data : tensors_.back().offset + tensors_.back().bytes;
  file_ = File::create(path, ExitCode::checkpoint);
  file_.reserve(end_);
  append(&length, sizeof length);
  append(header.data(), header.size());
}

void SafetensorsWriter::append(const void* data, std::size_t bytes) {
  file_.write_at(written_, data, bytes);
  written_ += static_cast<std::int64_t>(bytes);
}

void SafetensorsWriter::finish() {
  ensure(written_ == end_, "a safetensors file gets all bytes that its header describes");
  file_.sync();
  file_.close();
}

}  // namespace ringtrain
