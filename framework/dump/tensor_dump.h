// The tensors of one training step by name, as one rank writes them (train --dump-step, docs/debugging.md). A Stream
// points to the dump as it does to the timeline's row; the pointer is null in all other steps, so a call costs one
// branch. A dump only reads; a step has the same bits with and without it.
//
// A tensor of tokens has one row for each token of the rank's micro-batch. Rows carry global numbers, so a reader can
// put the tensors of any mesh and layout into one order (framework/dump/dump_reader.h). Tensors of parameters are
// written in slices by the ranks that own them.
//
// Memory: up to `part_bytes` of collected data, in addition to the run's plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/const_tensor_view.h"
#include "framework/dump/dump_index.h"
#include "framework/storage/hdf5_file.h"
#include "framework/stream.h"

namespace ringtrain {

/// Names a tensor: "query" of layer 2 is layer.2.query, its gradient grad.layer.2.query.
struct DumpLabel {
  const char* name = nullptr;
  int layer = -1;  // -1: of no layer
  bool gradient = false;
  std::int64_t first_row = 0;  // the first token of the micro-batch in the tensor
};

class TensorDump {
 public:
  static constexpr std::size_t default_part_bytes = std::size_t{256} << 20;

  /// Writes rank-NNNN.000.h5, rank-NNNN.001.h5, ... and the list of each into an existing folder.
  TensorDump(std::string folder, int rank, std::size_t part_bytes = default_part_bytes);

  /// From now on, only tensors with the chosen full names are written.
  void choose(std::function<bool(const std::string& name)> wanted) { wanted_ = std::move(wanted); }
  /// Begins a micro-batch, in which local token i (of B x T) is row rows[i] of all global tensors.
  void begin_micro_batch(std::vector<std::int64_t> rows);
  /// Takes tokens [first_row, first_row + n) of a tensor of tokens: x is [n], [n, W], or [B, H, T] for all tokens,
  /// which is written as [B * T, H]. Waits for the stream. If a tensor is computed twice (recomputation in backward),
  /// the first counts; throws Error(internal) that names the tensor if the second has other bits.
  void write(Stream& stream, const DumpLabel& label, const ConstTensorView& x);
  /// Takes elements [begin, begin + part.numel()) of a tensor of this shape. All ranks call this for the tensor, and
  /// together they write each element once; part may be empty.
  void write_slice(Stream& stream, const std::string& name, const Shape& shape, std::int64_t begin,
                   const ConstTensorView& part);
  /// Writes the collected data. Every token of every tensor must have been taken.
  void finish();

  /// Returns all names, in the order in which they were first taken.
  const std::vector<DumpedTensor>& tensors() const { return tensors_; }

 private:
  /// A dataset to write.
  struct Piece {
    Hdf5Dataset dataset;
    std::vector<std::byte> data;
    std::int64_t missing = 0;  // rows that have not been taken yet
  };
  void declare(DumpedTensor tensor);
  void collect(Piece piece);
  void write_part();

  std::string folder_;
  int rank_;
  std::size_t part_bytes_;
  int parts_ = 0;
  std::function<bool(const std::string& name)> wanted_;
  std::vector<DumpedTensor> tensors_;
  std::int64_t micro_ = -1;
  std::vector<std::int64_t> rows_;                                    // of the micro-batch
  bool rows_written_ = false;                                         // whether some part contains them
  std::map<std::string, Piece> open_;                                 // of the micro-batch, incomplete; by name
  std::map<std::pair<std::string, std::int64_t>, std::string> seen_;  // hashes by name and first row
  std::vector<Piece> complete_;                                       // to be written in the next part
  std::size_t bytes_ = 0;                                             // of complete_
};

/// Writes a tensor to the stream's dump, if there is one.
inline void dump(Stream& stream, const DumpLabel& label, const ConstTensorView& x) {
  if (TensorDump* const to = stream.dump()) [[unlikely]]
    to->write(stream, label, x);
}

}  // namespace ringtrain
