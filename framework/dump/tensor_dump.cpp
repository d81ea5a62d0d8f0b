#include "framework/dump/tensor_dump.h"

#include <cstring>
#include <span>

#include "framework/storage/hash.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#endif

namespace ringtrain {

namespace {

/// Returns the elements of x in host memory, with bfloat16 as float32 of the same value.
std::vector<std::byte> elements_of(const Stream& stream, const ConstTensorView& x) {
  std::vector<std::byte> bytes(x.bytes());
  if (bytes.empty()) return bytes;
  if (x.device.is_cpu()) {
    stream.synchronize();
    std::memcpy(bytes.data(), x.data, bytes.size());
  } else {
#if RINGTRAIN_CUDA
    stream.cuda().copy_to_host(bytes.data(), x.data, bytes.size());
#endif
  }
  if (x.dtype != DType::bfloat16) return bytes;
  std::vector<std::byte> wide(2 * bytes.size(), std::byte{0});  // little-endian: becomes the upper half of a float32
  for (std::size_t i = 0; i < bytes.size(); i += 2) std::memcpy(&wide[2 * i + 2], &bytes[i], 2);
  return wide;
}

/// Returns [B, H, T] as [B, T, H].
std::vector<std::byte> with_rows_of_tokens(const std::vector<std::byte>& bytes, const Shape& shape) {
  const auto B = static_cast<std::size_t>(shape[0]), H = static_cast<std::size_t>(shape[1]);
  const auto T = static_cast<std::size_t>(shape[2]), element = bytes.empty() ? 0 : bytes.size() / (B * H * T);
  std::vector<std::byte> result(bytes.size());
  for (std::size_t b = 0; b < B; ++b) {
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t t = 0; t < T; ++t) {
        std::memcpy(&result[((b * T + t) * H + h) * element], &bytes[((b * H + h) * T + t) * element], element);
      }
    }
  }
  return result;
}

Hdf5Type file_type(DType dtype) {
  return hdf5_type(dtype == DType::bfloat16 ? DType::float32 : dtype);
}

std::string full_name(const DumpLabel& label) {
  const std::string layer = label.layer < 0 ? "" : fmt::format("layer.{}.", label.layer);
  return (label.gradient ? "grad." : "") + layer + label.name;
}

}  // namespace

TensorDump::TensorDump(std::string folder, int rank, std::size_t part_bytes)
    : folder_(std::move(folder)), rank_(rank), part_bytes_(part_bytes) {}

void TensorDump::begin_micro_batch(std::vector<std::int64_t> rows) {
  ensure(open_.empty(), "a micro-batch's tensors are dumped whole");
  ++micro_;
  rows_ = std::move(rows);
  rows_written_ = false;
  seen_.clear();
}

void TensorDump::write(Stream& stream, const DumpLabel& label, const ConstTensorView& x) {
  const std::string name = full_name(label);
  if (wanted_ && !wanted_(name)) return;
  const int rank = x.shape.rank();
  ensure(rank >= 1 && rank <= 3, "a token-wise tensor has one to three dimensions");
  const std::int64_t rows = rank == 3 ? x.dim(0) * x.dim(2) : x.dim(0), width = rank == 1 ? 1 : x.dim(1);
  std::vector<std::byte> data = elements_of(stream, x);
  if (rank == 3) data = with_rows_of_tokens(data, x.shape);

  const std::string hash = hash_bytes({reinterpret_cast<const char*>(data.data()), data.size()});
  if (const auto [known, first] = seen_.try_emplace({name, label.first_row}, hash); !first) {
    if (known->second == hash) return;
    fail(ExitCode::internal,
         "internal error: rank {}, micro-batch {}: {}, tokens from {} on, was computed again in backward and has other "
         "bits than in forward",
         rank_, micro_, name, label.first_row);
  }
  const auto all = static_cast<std::int64_t>(rows_.size());
  ensure(label.first_row >= 0 && rows <= all - label.first_row, "dumped rows lie within the micro-batch");
  declare({.name = name, .kind = DumpKind::tokens, .shape = {width}});
  const std::size_t row_bytes = rows == 0 ? 0 : data.size() / static_cast<std::size_t>(rows);
  Piece& piece = open_[name];
  if (piece.data.empty()) {
    piece.dataset = {.name = fmt::format("{}/{}", name, micro_), .type = file_type(x.dtype), .dims = {all, width}};
    piece.data.resize(all * row_bytes);
    piece.missing = all;
  }
  std::memcpy(piece.data.data() + static_cast<std::size_t>(label.first_row) * row_bytes, data.data(), data.size());
  piece.missing -= rows;
  if (piece.missing > 0) return;
  collect(std::move(piece));
  open_.erase(name);
}

void TensorDump::write_slice(Stream& stream, const std::string& name, const Shape& shape, std::int64_t begin,
                             const ConstTensorView& part) {
  if (wanted_ && !wanted_(name)) return;
  declare({.name = name, .kind = DumpKind::parameter, .shape = shape});
  if (part.numel() == 0) return;
  collect(
      {.dataset = {.name = fmt::format("{}[{}]", name, begin), .type = file_type(part.dtype), .dims = {part.numel()}},
       .data = elements_of(stream, part)});
}

void TensorDump::finish() {
  ensure(open_.empty(), "a micro-batch's tensors are dumped whole");
  if (!complete_.empty()) write_part();
}

void TensorDump::declare(DumpedTensor tensor) {
  for (const DumpedTensor& known : tensors_) {
    if (known.name == tensor.name) return ensure(known.shape == tensor.shape, "a tensor has one shape");
  }
  tensors_.push_back(std::move(tensor));
}

void TensorDump::collect(Piece piece) {
  if (!rows_written_ && micro_ >= 0) {
    const auto bytes = std::as_bytes(std::span(rows_));
    complete_.push_back(
        {.dataset = {.name = fmt::format("rows/{}", micro_), .type = Hdf5Type::int64, .dims = {std::ssize(rows_)}},
         .data = {bytes.begin(), bytes.end()}});
    rows_written_ = true;
  }
  bytes_ += piece.data.size();
  complete_.push_back(std::move(piece));
  if (bytes_ >= part_bytes_) write_part();
}

void TensorDump::write_part() {
  std::vector<Hdf5Dataset> datasets;
  datasets.reserve(complete_.size());
  for (const Piece& piece : complete_) datasets.push_back(piece.dataset);
  const std::string path = dump_part_path(folder_, rank_, parts_++);
  Hdf5Writer file = Hdf5Writer::create(path, datasets, {}, ExitCode::usage);
  for (std::size_t i = 0; i < complete_.size(); ++i) file.write(i, 0, complete_[i].data.data(), datasets[i].count());
  file.finish();
  write_dataset_list(path, {.datasets = file.datasets()}, ExitCode::usage);
  complete_.clear();
  bytes_ = 0;
}

}  // namespace ringtrain
