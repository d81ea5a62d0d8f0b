// The program `compare_dumps`: which tensor of two dumps of a step (train --dump-step) differs first, and where.
#include <string>

#include "framework/dump/dump_comparison.h"
#include "framework/standard_streams.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"

using namespace ringtrain;

namespace {

int run(int argc, char** argv) {
  CommandLine app{
      "Compare two dumps of a training step (train --dump-step N --dump DIR), of whatever meshes, layouts and "
      "devices.\n"
      "Prints the first tensor and element that differ, in the order of the step, and a table of all that do.\n"
      "Ends with 0 if the dumps agree, with 1 if they differ.",
      "compare_dumps"};
  std::string folder_a, folder_b;
  double relative = 0, absolute = 0;
  app.add_option("A", folder_a, "DIR", "a dump")->required();
  app.add_option("B", folder_b, "DIR", "another")->required();
  auto* const relative_option =
      app.add_real("--tolerance", relative, RealRange::at_least(0), "X",
                   "the largest difference that counts as none, as a part of the tensor's maximum (default: 1e-12 "
                   "between two float64 dumps, 1e-5 with float32, 0.05 with bfloat16)");
  auto* const absolute_option =
      app.add_real("--absolute", absolute, RealRange::at_least(0), "X",
                   "the largest difference that counts as none, whatever the maximum (default: a thousandth of the "
                   "tolerance; some gradients are zero but for rounding)");
  if (!parse_command_line(app, argc, argv)) return 0;
  const DumpReader a(folder_a), b(folder_b);
  Tolerance tolerance = default_tolerance(a.index(), b.index());
  if (relative_option->count() > 0) tolerance = {.relative = relative, .absolute = relative * 1e-3};
  if (absolute_option->count() > 0) tolerance.absolute = absolute;
  const DumpComparison comparison = compare_dumps(a, b, tolerance);
  print_result(report(comparison, a, b, tolerance));
  return comparison.agree() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("compare_dumps", [&] { return run(argc, argv); });
}
