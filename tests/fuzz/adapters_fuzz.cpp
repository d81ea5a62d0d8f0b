// Fuzzes a folder of adapters: any adapter_config.json and adapter_model.safetensors are read together with their base,
// separately and merged, or refused with an Error. Adapters that PEFT can represent are read back unchanged. An input
// is adapter_config.json, a zero byte, and the safetensors file; the base is FOLDER/base, and the adapters
// FOLDER/adapters.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "framework/config/read_config.h"
#include "layers/model_parameters.h"
#include "tests/fuzz/fuzz_file.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/adapters/peft_folder.h"
#include "train/models/export_model.h"

namespace {

using namespace ringtrain;

/// Reads weights that are all equal.
void read_equal(const Parameter&, std::int64_t, const TensorView& to) {
  dispatch_float(to.dtype, [&]<class Real>() { std::fill_n(to.as<Real>(), to.numel(), Real{0.25}); });
}

/// Writes the base unless it exists. It has the size for which the inputs of the corpus are made.
void write_base() {
  const std::string folder = fuzz::folder() + "/base";
  if (std::filesystem::exists(folder)) return;
  ModelSource source;
  source.path = "a model in memory";
  source.context_length = 16;
  source.model = parse_hugging_face_config(R"({"model_type": "llama", "vocab_size": 6, "hidden_size": 4,
      "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
      "max_position_embeddings": 16})",
                                           "config.json")
                     .model;
  source.open_weights = [] { return read_equal; };
  export_model(source, {.output = folder});
}

void read_all(const ModelSource& source) {
  const WeightReader read = source.open_weights();
  const ParameterTable table = make_parameter_table(source.model);
  for (const Parameter& parameter : table.all()) {
    std::vector<double> values(parameter.shape.numel());
    read(parameter, 0, host_view(values.data(), {std::ssize(values)}));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  write_base();
  const std::string input(reinterpret_cast<const char*>(data), bytes), folder = fuzz::folder() + "/adapters";
  const std::size_t end = std::min(input.find('\0'), input.size());
  std::filesystem::create_directory(folder);
  fuzz::write(folder + "/" + adapter_config_file, input.substr(0, end));
  fuzz::write(folder + "/" + adapter_weights_file, input.substr(std::min(end + 1, input.size())));
  fuzz::accepted(ExitCode::checkpoint, [&] {
    const ModelSource source = open_model(folder);
    read_all(source);
    read_all(merged(source));
    std::string written;
    if (!fuzz::accepted(ExitCode::usage, [&] { written = write_adapter_config(source); })) return;
    fuzz::write(folder + "/" + adapter_config_file, written);
    Config read, again;
    read.model = source.model;
    again.model = open_model(folder).model;
    if (!differences(read, again).empty()) std::abort();
  });
  return 0;
}
