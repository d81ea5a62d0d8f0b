// The folder of a dump: index.json and the ranks' HDF5 files, each with its list (rank-0002.000.h5.json). The index
// says which step of which run the dump holds, and names all tensors in the order in which the step made them. It
// exists from the beginning, without tensors, and is completed when all ranks have written, so an interrupted dump can
// be recognized.
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
  tokens,    // one row for each token of the step's sequences
  parameter  // the shape of a parameter of the model
};

struct DumpedTensor {
  std::string name;
  DumpKind kind = DumpKind::tokens;
  Shape shape;  // tokens: the shape of one row

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    std::string kind = self.kind == DumpKind::tokens ? "tokens" : "parameter";
    std::vector<std::int64_t> dims = self.shape.dims();
    visit("name", self.name);
    visit("kind", kind);
    visit("shape", dims);
    if constexpr (!std::is_const_v<Self>) self.take(kind, dims);
  }
  /// Takes the values from a file. Throws for values that no dump has.
  void take(const std::string& kind_name, const std::vector<std::int64_t>& dims);
};

struct DumpIndex {
  std::int64_t step = 0;
  std::int64_t data = 1, sequence = 1;  // the mesh
  std::string layout, device, dtype;
  std::int64_t sequences = 0, sequence_length = 0;  // of the step: row i is token i % length of sequence i / length
  std::vector<DumpedTensor> tensors;                // empty: the dump was interrupted

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

/// Returns the index of a dump. Throws Error(code) if the folder holds no dump, or its index cannot be read.
DumpIndex read_dump_index(const std::string& folder, ExitCode code);
/// Creates or replaces a dump's index.
void write_dump_index(const std::string& folder, const DumpIndex& index);

/// Returns the path of a part of a rank's tensors: rank-0002.000.h5.
std::string dump_part_path(const std::string& folder, int rank, int part);
/// Returns the rank in the name of a part; nothing if the name is not that of a part.
std::optional<int> rank_of_dump_part(const std::string& name);

/// Throws Error(usage) if a dump must not be written to this path: the path exists and is not a dump, or is a dump that
/// contains other files. Writes nothing.
void check_dump_folder(const std::string& path);
/// Makes the folder, or removes the dump in it, and writes an index without tensors. Returns a lock that keeps other
/// writers out. Throws the errors of check_dump_folder, and Error(usage) if another process is writing a dump there.
[[nodiscard]] FileLock begin_dump_folder(const std::string& path, const DumpIndex& index);

/// Removes a dump, and its folder on request. Throws the errors of check_dump_folder.
void remove_dump(const std::string& path, bool with_folder);

}  // namespace ringtrain
