// Compares two dumps of a step, with any meshes, layouts, and devices: names the first tensor that differs, in the
// order in which the step made them, and its first differing element in global order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/checks/tensor_text.h"
#include "framework/dump/dump_reader.h"

namespace ringtrain {

/// Returns the location of an element of a dump's tensor: "sequence 3, position 17, column 5", or "element [2, 0]".
std::string location_of(const DumpIndex& index, const DumpedTensor& tensor, std::int64_t element);

/// A tensor that has the same shape in both dumps.
struct ComparedTensor {
  std::string name;
  std::int64_t elements = 0;
  TensorComparison values;
  std::string location;        // of its first difference: "sequence 3, position 17, column 5", or "element [2, 0]"
  int rank_a = 0, rank_b = 0;  // the ranks that wrote it
};

struct DumpComparison {
  std::vector<ComparedTensor> tensors;  // in the order of a's step
  std::vector<std::string> unlike;      // sentences about tensors that are missing in one dump or differ in shape

  /// Returns the first tensor that differs, null if none does.
  const ComparedTensor* first() const;
  std::int64_t differing() const;  // tensors
  bool agree() const { return differing() == 0 && unlike.empty(); }
};

/// Returns the default tolerance of a comparison: rounding's share of a tensor's maximum in the coarser dtype, and a
/// thousandth of that as an absolute tolerance, for gradients that are zero except for rounding.
Tolerance default_tolerance(const DumpIndex& a, const DumpIndex& b);

/// Throws Error(usage) if the two steps had other sequences.
DumpComparison compare_dumps(const DumpReader& a, const DumpReader& b, const Tolerance& tolerance);

/// Returns the text to print: the first difference with its values, and a table of all tensors that differ.
std::string report(const DumpComparison& comparison, const DumpReader& a, const DumpReader& b,
                   const Tolerance& tolerance);

}  // namespace ringtrain
