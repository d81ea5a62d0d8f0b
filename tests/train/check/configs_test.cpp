// `check` of every config of configs/, cut to what seconds do: each is right as it is given to users.
#include <filesystem>

#include "framework/config/read_config.h"
#include "tests/support/paths.h"
#include "tests/train/check/check_fixture.h"

namespace ringtrain::testing {
namespace {

using CheckedConfigs = CheckTest;

TEST_F(CheckedConfigs, LongAllOfThemAreRight) {
  const std::string data = write_tokens("text.h5", {.longest = 400, .validation_documents = 20});
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::vector<std::string> settings{"data.train=" + data, "mesh.threads_per_rank=1"};
    const bool on_gpu = entry.path().stem().string().ends_with("_gpu");
    if (on_gpu) {  // the same model and step on the CPU, but for a vocabulary that takes gigabytes
      settings.insert(settings.end(), {"training.device=cpu", "training.dtype=float32", "model.vocab_size=512"});
    }
    CheckOptions options = options_of(read_config(entry.path().string(), settings));
    options.tokens = on_gpu ? 8 : std::min<std::int64_t>(options.train.config.training.seq_len, 160);
    options.layers = on_gpu ? 1 : 0;
    const CheckReport report = check_run(options, [](const std::string&) {});
    EXPECT_EQ(wrong(report), "");
    EXPECT_GT(report.tensors.size(), 60U);
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

}  // namespace
}  // namespace ringtrain::testing
