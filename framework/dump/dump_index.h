// The folder of a dump: index.json, which says what step of what run it holds and names all tensors in the order in
// which the step made them, and the ranks' HDF5 files, each with its list (rank-0002.000.h5.json). The index is there
// from the beginning, without tensors, and whole when all ranks have written: a dump that was broken off is known as
// one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/tensor.h"

namespace ringtrain {

enum class DumpKind {
  tokens,    // a row for each token of the step's sequences
  parameter  // as a parameter of the model
};

struct DumpedTensor {
  std::string name;
  DumpKind kind = DumpKind::tokens;
  Shape shape;  // tokens: of one row

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    std::string kind = self.kind == DumpKind::tokens ? "tokens" : "parameter";
    std::vector<std::int64_t> dims;
    for (int dim = 0; dim < self.shape.rank(); ++dim) dims.push_back(self.shape[dim]);
    visit("name", self.name);
    visit("kind", kind);
    visit("shape", dims);
    if constexpr (!std::is_const_v<Self>) self.take(kind, dims);
  }
  /// Takes what a file says. Throws for what no dump has.
  void take(const std::string& kind_name, const std::vector<std::int64_t>& dims);
};

struct DumpIndex {
  std::int64_t step = 0;
  std::int64_t data = 1, sequence = 1;  // the mesh
  std::string layout, device, dtype;
  std::int64_t sequences = 0, sequence_length = 0;  // of the step: row i is token i % length of sequence i / length
  std::vector<DumpedTensor> tensors;                // none: the dump was broken off

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("step", self.step);
    visit("data", self.data);
    visit("sequence", self.sequence);
    visit("layout", self.layout);
    visit("device", self.device);
    visit("dtype", self.dtype);
    visit("sequences", self.sequences);
    visit("sequence_length", self.sequence_length);
    visit("tensors", self.tensors);
  }
};

/// Returns the index of a dump. Throws Error(code) if the folder holds none, or one that cannot be read.
DumpIndex read_dump_index(const std::string& folder, ExitCode code);
/// Makes or replaces a dump's index.
void write_dump_index(const std::string& folder, const DumpIndex& index);

/// Returns the path of a part of a rank's tensors: rank-0002.000.h5.
std::string dump_part_path(const std::string& folder, int rank, int part);
/// Returns the rank of a part of this name, none if it is no part's.
std::optional<int> rank_of_dump_part(const std::string& name);

/// Throws Error(usage) if a dump must not be written to this path: something stands there that is no dump, or a dump
/// with other files beside it. Writes nothing.
void check_dump_folder(const std::string& path);
/// Makes the folder, or removes the dump in it, and writes an index without tensors. Returns what keeps other writers
/// out. Throws what check_dump_folder throws, and Error(usage) if another process writes a dump there.
[[nodiscard]] FileLock begin_dump_folder(const std::string& path, const DumpIndex& index);

/// Removes a dump, and its folder if asked. Throws what check_dump_folder throws.
void remove_dump(const std::string& path, bool with_folder);

}  // namespace ringtrain
