#include "framework/dump/dump_comparison.h"

#include <algorithm>
#include <cmath>

namespace ringtrain {

namespace {

constexpr std::size_t max_lines = 30;  // of the table

ComparedTensor compare(const DumpReader& a, const DumpReader& b, const DumpedTensor& tensor,
                       const Tolerance& tolerance) {
  const std::vector<double> of_a = a.read(tensor), of_b = b.read(tensor);
  ComparedTensor result;
  result.name = tensor.name;
  result.elements = std::ssize(of_a);
  const Shape flat{result.elements};
  result.values = compare_tensors(host_view(of_a.data(), flat), host_view(of_b.data(), flat), tolerance);
  if (const std::int64_t first = result.values.first; first >= 0) {
    result.location = location_of(a.index(), tensor, first);
    result.rank_a = a.rank_of(tensor, first);
    result.rank_b = b.rank_of(tensor, first);
  }
  return result;
}

std::string line_of(const ComparedTensor& tensor, std::size_t width) {
  const TensorComparison& values = tensor.values;
  return fmt::format("  {:{}}  {} of {} elements, greatest difference {:.2g} of the maximum\n", tensor.name, width,
                     values.differing, tensor.elements, values.relative(values.greatest));
}

std::string mesh_text(const DumpIndex& index) {
  return fmt::format("step {}, {} x {} {}, {}, {}", index.step, index.data, index.sequence, index.layout, index.device,
                     index.dtype);
}

}  // namespace

std::string location_of(const DumpIndex& index, const DumpedTensor& tensor, std::int64_t element) {
  if (tensor.kind == DumpKind::parameter) return "element " + location_text(tensor.shape, element);
  const std::int64_t width = tensor.shape.numel(), row = element / width;
  std::string text = fmt::format("sequence {}, position {}", row / index.sequence_length, row % index.sequence_length);
  if (width > 1) text += fmt::format(", column {}", element % width);
  return text;
}

const ComparedTensor* DumpComparison::first() const {
  const auto found = std::ranges::find_if(tensors, [](const ComparedTensor& t) { return t.values.differing > 0; });
  return found == tensors.end() ? nullptr : &*found;
}

std::int64_t DumpComparison::differing() const {
  return std::ranges::count_if(tensors, [](const ComparedTensor& t) { return t.values.differing > 0; });
}

Tolerance default_tolerance(const DumpIndex& a, const DumpIndex& b) {
  const auto either_is = [&](const char* dtype) { return a.dtype == dtype || b.dtype == dtype; };
  const double relative = either_is("bfloat16") ? 5e-2 : either_is("float32") ? 1e-5 : 1e-12;
  return {.relative = relative, .absolute = relative * 1e-3};
}

DumpComparison compare_dumps(const DumpReader& a, const DumpReader& b, const Tolerance& tolerance) {
  const DumpIndex &of_a = a.index(), &of_b = b.index();
  if (of_a.sequences != of_b.sequences || of_a.sequence_length != of_b.sequence_length) {
    fail(ExitCode::usage,
         "{} is a step of {} sequences of {} tokens, but {} has {} sequences of {} tokens: they cannot be compared",
         a.folder(), of_a.sequences, of_a.sequence_length, b.folder(), of_b.sequences, of_b.sequence_length);
  }
  DumpComparison result;
  for (const DumpedTensor& tensor : of_a.tensors) {
    const DumpedTensor* const other = b.find(tensor.name);
    if (other == nullptr) {
      result.unlike.push_back(fmt::format("{} is only in {}", tensor.name, a.folder()));
    } else if (other->kind != tensor.kind || other->shape != tensor.shape) {
      result.unlike.push_back(fmt::format("{} is {} in {} and {} in {}", tensor.name, tensor.shape.to_string(),
                                          a.folder(), other->shape.to_string(), b.folder()));
    } else {
      result.tensors.push_back(compare(a, b, tensor, tolerance));
    }
  }
  for (const DumpedTensor& tensor : of_b.tensors) {
    if (a.find(tensor.name) == nullptr) {
      result.unlike.push_back(fmt::format("{} is only in {}", tensor.name, b.folder()));
    }
  }
  return result;
}

std::string report(const DumpComparison& comparison, const DumpReader& a, const DumpReader& b,
                   const Tolerance& tolerance) {
  std::string text =
      fmt::format("A: {} ({})\nB: {} ({})\n", a.folder(), mesh_text(a.index()), b.folder(), mesh_text(b.index()));
  for (const std::string& line : comparison.unlike) text += line + "\n";
  const std::string limit = fmt::format("{:g} of a tensor's maximum (or {:g})", tolerance.relative, tolerance.absolute);
  const ComparedTensor* const first = comparison.first();
  if (first == nullptr) {
    const auto greatest = std::ranges::max_element(comparison.tensors, {}, [](const ComparedTensor& tensor) {
      return tensor.values.relative(tensor.values.greatest);
    });
    text += fmt::format("all {} tensors agree within {}", comparison.tensors.size(), limit);
    if (greatest == comparison.tensors.end()) return text + "\n";
    return text + fmt::format("; the greatest difference is {:.2g} of the maximum, in {}\n",
                              greatest->values.relative(greatest->values.greatest), greatest->name);
  }
  const TensorComparison& values = first->values;
  text += fmt::format(
      "first difference: {} at {}\n  A {} (rank {})\n  B {} (rank {})\n  they differ by {:.2g} of the maximum {:.6g}\n",
      first->name, first->location, values.a, first->rank_a, values.b, first->rank_b,
      values.relative(std::abs(values.a - values.b)), values.maximum);
  text += fmt::format("{} of {} tensors differ by more than {}:\n", comparison.differing(), comparison.tensors.size(),
                      limit);
  std::size_t width = 0, lines = 0;
  for (const ComparedTensor& tensor : comparison.tensors) {
    if (tensor.values.differing > 0) width = std::max(width, tensor.name.size());
  }
  for (const ComparedTensor& tensor : comparison.tensors) {
    if (tensor.values.differing > 0 && lines++ < max_lines) text += line_of(tensor, width);
  }
  if (lines > max_lines) text += fmt::format("  and {} more\n", lines - max_lines);
  return text;
}

}  // namespace ringtrain
