// Ids that do not exist in a table: an error before any kernel uses them as indices, from any source.
#include <cstdint>

#include "tests/layers/harness.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

TEST(BatchIds, OutsideTheTablesAreAnErrorBeforeAKernelSeesThem) {
  for (const Architecture architecture : {Architecture::llama, Architecture::gpt2}) {
    const ModelConfig config = small_model(architecture);
    const auto vocabulary = static_cast<std::int32_t>(config.vocab_size);
    const Sequences good = random_sequences(config, 2, 9, false, 1);
    const auto refused = [&](std::vector<std::int32_t> Sequences::*ids, std::int32_t bad) {
      Sequences sequences = good;
      (sequences.*ids).back() = bad;
      expect_error(ExitCode::internal, "a batch has", [&] { run_training(config, {}, sequences, 1.0); });
      expect_error(ExitCode::internal, "a batch has", [&] { run_evaluation(config, {}, sequences); });
    };
    for (const std::int32_t bad : {vocabulary, -1, INT32_MAX, INT32_MIN}) refused(&Sequences::tokens, bad);
    for (const std::int32_t bad : {vocabulary, -2, INT32_MAX, INT32_MIN}) refused(&Sequences::labels, bad);
    if (architecture == Architecture::gpt2) {
      const auto rows = static_cast<std::int32_t>(config.max_position_embeddings);
      for (const std::int32_t bad : {rows, -1, INT32_MAX}) refused(&Sequences::positions, bad);
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
