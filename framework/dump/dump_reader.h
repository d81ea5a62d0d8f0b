// Reads a dump and puts its tensors into global order: the rows of all ranks and micro-batches by their numbers, the
// slices of parameters by their offsets. Missing or duplicate elements are an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/dump/dump_index.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"

namespace ringtrain {

class DumpReader {
 public:
  /// Opens all files of a dump. Throws Error(data) if it was interrupted or is damaged.
  explicit DumpReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const DumpIndex& index() const { return index_; }
  /// Returns a tensor's entry in the index, or null if there is none with this name.
  const DumpedTensor* find(const std::string& name) const;
  /// Returns all elements of a tensor of the index; for a tensor of tokens, one row for each token of the step. Throws
  /// Error(data) unless the files hold each element exactly once.
  std::vector<double> read(const DumpedTensor& tensor) const;
  /// Returns the elements of tokens [first, last) of a tensor of tokens. Reads only the ranks' micro-batches that have
  /// some of them. Throws the errors of read().
  std::vector<double> read_tokens(const DumpedTensor& tensor, std::int64_t first, std::int64_t last) const;
  /// Returns the rank that wrote an element.
  int rank_of(const DumpedTensor& tensor, std::int64_t element) const;

 private:
  /// A dataset that holds elements of a tensor.
  struct Piece {
    std::size_t file = 0, dataset = 0;
    std::int64_t at = 0;  // tokens: its micro-batch; parameter: its first element
  };
  struct Part {
    int rank = 0;
    File file;
    std::vector<Hdf5Dataset> datasets;
  };
  class Collected;
  using RowsKey = std::pair<int, std::int64_t>;  // rank and micro-batch
  void add(Part part);
  [[noreturn]] void refuse(const std::string& what) const;
  const Hdf5Dataset& dataset_of(const Piece& piece) const { return parts_[piece.file].datasets[piece.dataset]; }
  const std::vector<std::int64_t>& rows_of(const Piece& piece) const;
  std::vector<double> elements_of(const Piece& piece) const;
  const std::vector<Piece>& pieces_of(const DumpedTensor& tensor) const;

  std::string folder_;
  DumpIndex index_;
  std::vector<Part> parts_;
  std::map<std::string, std::vector<Piece>> pieces_;  // by tensor
  std::map<RowsKey, std::vector<std::int64_t>> rows_;
};

}  // namespace ringtrain
