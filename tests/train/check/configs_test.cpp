// `check` of every config of configs/, reduced to a few seconds: each is correct as users get it.
#include <set>

#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "tests/support/paths.h"
#include "tests/train/check/check_fixture.h"
#include "train/run/config_lookup.h"

namespace ringtrain::testing {
namespace {

using CheckedConfigs = CheckTest;

TEST_F(CheckedConfigs, LongAllOfThemAreRight) {
  data = write_tokens("long.h5", {.longest = 400, .validation_documents = 20});
  const std::string model = source_folder() + "/tests/models/folders/llama";
  const std::string its_data = write_tokens("its.h5", {.vocab_size = 48, .longest = 400, .validation_documents = 20});
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const bool starts = std::set<std::string>{"extend", "lora"}.contains(entry.path().stem().string());  // from a model
    std::vector<std::string> settings{"data.train=" + (starts ? its_data : data), "mesh.threads_per_rank=1"};
    if (entry.path().stem() == "extend") settings.push_back("model.from=" + model);
    const bool on_gpu = entry.path().stem().string().ends_with("_gpu");
    if (on_gpu) {  // the same model and step on the CPU, except for a vocabulary that takes gigabytes
      settings.insert(settings.end(), {"training.device=cpu", "training.dtype=float32", "model.vocab_size=512"});
    }
    const auto ignored = [](const std::string&) {};
    CheckOptions options = options_of(read_config(entry.path().string(), settings, ConfigUse::run, check_model,
                                                  config_lookup(ignored, starts ? model : "")));
    options.tokens = on_gpu ? 8 : std::min<std::int64_t>(options.train.config.training.seq_len, 160);
    options.layers = on_gpu ? 1 : 0;
    const CheckReport report = check_run(options, ignored);
    EXPECT_EQ(wrong(report), "");
    EXPECT_GT(report.tensors.size(), 40U);
    ++checked;
  }
  EXPECT_GE(checked, 7);
}

}  // namespace
}  // namespace ringtrain::testing
