#include "train/models/checkpoint_weights.h"

#include <algorithm>
#include <vector>

#include "framework/storage/stored_tensor.h"
#include "train/checkpoint/state_files.h"

namespace ringtrain {

namespace {

class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(const Checkpoint& checkpoint)
      : files_(checkpoint.path, checkpoint.manifest), dtype_(accumulator(checkpoint.config.training.dtype)) {}

  void read(const Parameter& parameter, std::int64_t begin, const TensorView& to) override {
    const std::int64_t end = begin + to.numel();
    for (const StateFiles::Piece& piece : files_.whole_tensor(weights_kind, parameter, dtype_)) {
      const std::int64_t from = std::max(begin, piece.begin), until = std::min(end, piece.end);
      if (from < until) read_piece(piece, from, to.flat(from - begin, until - begin));
    }
  }

 private:
  void read_piece(const StateFiles::Piece& piece, std::int64_t from, const TensorView& to) {
    const std::int64_t offset = piece.offset + (from - piece.begin) * static_cast<std::int64_t>(size_of(dtype_));
    if (to.dtype == dtype_) return files_.read(piece.file, offset, to.data, to.bytes());
    bytes_.resize(to.numel() * size_of(dtype_));
    files_.read(piece.file, offset, bytes_.data(), bytes_.size());
    const StoredType type = dtype_ == DType::float64 ? StoredType::float64 : StoredType::float32;
    dispatch_float(to.dtype,
                   [&]<class Real>() { decode(type, bytes_.data(), to.numel(), static_cast<Real*>(to.data)); });
  }

  StateFiles files_;
  DType dtype_;  // of the checkpoint
  std::string bytes_;
};

}  // namespace

std::unique_ptr<WeightSource> read_checkpoint_weights(const Checkpoint& checkpoint) {
  return std::make_unique<CheckpointWeights>(checkpoint);
}

}  // namespace ringtrain
