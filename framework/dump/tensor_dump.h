// The tensors of one training step by name, as one rank writes them (train --dump-step, docs/debugging.md). A Stream
// leads to the dump as it does to the timeline's row: null in all other steps, so that a call is one branch then. A
// dump only reads; a step has the same bits with and without it.
//
// A token-wise tensor has a row for each token of the rank's micro-batch. Rows carry global numbers, so that a reader
// puts the tensors of any mesh and layout into one order (framework/dump/dump_reader.h). Tensors of parameters are
// written in slices by those who own them.
//
// Memory: what is collected until a part of `part_bytes` is full, beside the run's plan.
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
  std::int64_t first_row = 0;  // the micro-batch's token that the tensor begins with
};

class TensorDump {
 public:
  static constexpr std::size_t default_part_bytes = std::size_t{256} << 20;

  /// Writes rank-NNNN.000.h5, rank-NNNN.001.h5, ... and the list of each into a folder that exists.
  TensorDump(std::string folder, int rank, std::size_t part_bytes = default_part_bytes);

  /// Tensors of other full names than these are not written from here on.
  void choose(std::function<bool(const std::string& name)> wanted) { wanted_ = std::move(wanted); }
  /// Begins a micro-batch, whose local token i (of B x T) is row rows[i] of all global tensors.
  void begin_micro_batch(std::vector<std::int64_t> rows);
  /// Takes tokens [first_row, first_row + n) of a token-wise tensor: x is [n], [n, W], or [B, H, T] for all tokens,
  /// which is written as [B * T, H]. Waits for the stream. Of a tensor that is computed again (recomputation in
  /// backward) the first counts; throws Error(internal) that names it if the second has other bits.
  void write(Stream& stream, const DumpLabel& label, const ConstTensorView& x);
  /// Takes elements [begin, begin + part.numel()) of a tensor of this shape. All ranks name it, and together they write
  /// each element once; part may be empty.
  void write_slice(Stream& stream, const std::string& name, const Shape& shape, std::int64_t begin,
                   const ConstTensorView& part);
  /// Writes what was collected. Every token of every tensor must have come.
  void finish();

  /// Returns all names, in the order in which they first came.
  const std::vector<DumpedTensor>& tensors() const { return tensors_; }

 private:
  /// A dataset to be written.
  struct Piece {
    Hdf5Dataset dataset;
    std::vector<std::byte> data;
    std::int64_t missing = 0;  // rows that have not come yet
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
  bool rows_written_ = false;                                         // they stand in some part
  std::map<std::string, Piece> open_;                                 // of the micro-batch, rows missing; by name
  std::map<std::pair<std::string, std::int64_t>, std::string> seen_;  // hashes by name and first row
  std::vector<Piece> complete_;                                       // of the part to be written next
  std::size_t bytes_ = 0;                                             // of complete_
};

/// Takes a tensor into the stream's dump, if there is one.
inline void dump(Stream& stream, const DumpLabel& label, const ConstTensorView& x) {
  if (TensorDump* const to = stream.dump()) [[unlikely]]
    to->write(stream, label, x);
}

}  // namespace ringtrain
