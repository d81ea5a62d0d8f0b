// The combined state files of a checkpoint: which slices of which tensors they hold, and at which offsets. Knows no
// rank and no mesh. Its input, the list of each file, may be hostile.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/parameter_table.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"
#include "framework/tensor.h"
#include "train/checkpoint/checkpoint_manifest.h"
#include "train/engine/optimizer.h"

namespace ringtrain {

/// The kinds of values that a checkpoint holds for each element: weights, then the optimizer's state.
inline constexpr std::array<const char*, 3> state_kinds{"weights", optimizer_state[0], optimizer_state[1]};

/// Returns the name that files use for a tensor's values of a kind.
std::string tensor_name(const std::string& kind, const Parameter& parameter);

class StateFiles {
 public:
  struct Piece {
    std::int64_t begin = 0, end = 0;  // elements of the flattened tensor
    Hdf5Type type = Hdf5Type::uint8;
    std::size_t file = 0;
    std::int64_t offset = 0;  // in bytes, in the file
  };

  /// Reads the lists of all state files of a checkpoint's folder. Throws Error(checkpoint) if one is damaged or belongs
  /// to another step than the manifest, which must have been verified.
  StateFiles(const std::string& folder, const CheckpointManifest& manifest);
  /// Returns the pieces of a tensor after checking that they hold each of its elements exactly once, in the right type.
  const std::vector<Piece>& whole_tensor(const std::string& kind, const Parameter& parameter, DType dtype) const;
  /// Reads elements [begin, begin + to.numel()) of a tensor into `to`: float32 or float64, on the host. dtype: the
  /// checkpoint's. Throws Error(checkpoint) if a file changed since it was verified. Only one file is open at a time: a
  /// checkpoint may have more files than a process may open.
  void read(const std::string& kind, const Parameter& parameter, DType dtype, std::int64_t begin, const TensorView& to);

 private:
  void add_file(std::size_t file);
  void read_piece(const Piece& piece, DType dtype, std::int64_t from, const TensorView& to);
  void read_bytes(std::size_t file, std::int64_t offset, void* data, std::size_t bytes);

  std::string path_;
  std::vector<CheckpointFile> files_;  // of the manifest
  std::int64_t step_;
  std::map<std::string, std::vector<Piece>> pieces_;
  File open_;
  std::size_t opened_ = 0;  // index of the open file
  std::string bytes_;       // a piece in the checkpoint's dtype, if the caller wants another one
};

}  // namespace ringtrain
