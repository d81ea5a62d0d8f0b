// `train` on a machine whose memory loses one bit: for tests, as processes of an MPI launcher.
//   flipping_train CONFIG OUTPUT RANK LAYER TOKEN HEAD ELEMENT
// In every audited step, rank RANK has another bit than its kernel computed: the highest bit of the mantissa of this
// element of this layer's attention, of its token TOKEN (float64). RANK -1: no rank. Each process that ends with an
// error prints it on stderr.
#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "framework/config/read_config.h"
#include "framework/standard_streams.h"
#include "layers/audit/attention_audit.h"
#include "layers/check_model.h"
#include "train/engine/rank_state.h"
#include "train/programs/program.h"
#include "train/trainer.h"

using namespace ringtrain;

namespace {

struct Element {
  std::int64_t rank = -1, layer = 0, token = 0, head = 0, element = 0;
};

/// attention: [B, T, H, D].
void flip(const TensorView& attention, const Element& location) {
  constexpr std::uint64_t highest = std::uint64_t{1} << 51;
  double& value =
      attention.as<double>()[(location.token * attention.dim(2) + location.head) * attention.dim(3) + location.element];
  value = std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ highest);
}

int run(char** argv, Launcher& launcher) {
  const Element location{std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5]), std::atoll(argv[6]),
                         std::atoll(argv[7])};
  const Log log = [&](const std::string& line) {
    if (launcher.is_rank_zero()) write_message(stderr, "train: " + line + "\n");
  };
  TrainOptions options;
  options.config = read_config(argv[1], {}, ConfigUse::run, check_model);
  options.output = argv[2];
  ringtrain::Run prepared = prepare_run(options, log, launcher);
  prepared.before_forward = [location](RankState& state, std::int64_t) {
    if (state.rank != location.rank) return;
    state.model->audit().before_comparison =
        [location, flipped = false](AuditedTensor tensor, const AuditLocation& audited, const TensorView& x) mutable {
          if (flipped || tensor != AuditedTensor::attention || audited.layer != location.layer) return;
          flip(x, location);
          flipped = true;
        };
  };
  try {
    return static_cast<int>(train(prepared, log, launcher));
  } catch (const Error& error) {
    write_message(stderr, fmt::format("process {} ends with {}\n", launcher.process(), static_cast<int>(error.code())));
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_rank_program(
      "train",
      [&](Launcher& launcher) {
        if (argc != 8) fail(ExitCode::usage, "flipping_train: wants CONFIG OUTPUT RANK LAYER TOKEN HEAD ELEMENT");
        return run(argv, launcher);
      },
      OnSignal::end);
}
