// A model's file that somebody writes while it is read: the data may be from two models, so none of it is used.
#include <chrono>
#include <fstream>

#include "layers/model_parameters.h"
#include "tests/support/paths.h"
#include "tests/train/train_fixture.h"
#include "train/models/export_model.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {
namespace {

class OverwrittenModel : public TrainTest {
 protected:
  /// Copies a model of the tests. Returns its path.
  std::string copy_of(const std::string& name) const {
    fs::remove_all(at(name));
    fs::copy(source_folder() + "/tests/models/folders/" + name, at(name));
    return at(name);
  }
  /// Sets a file's time stamps to the past: a file system's clock may not distinguish two writes.
  static void age(const std::string& file) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  /// Reads the whole model except the tensors in `file`, changes the file, and expects the remaining reads to be
  /// refused.
  void expect_noticed(const std::string& model, const std::string& file,
                      const std::function<void(const std::string&)>& change) const {
    age(file);
    const ModelSource source = open_model(model);
    const ParameterTable table = make_parameter_table(source.model);
    const auto read_all = [&](const WeightReader& read) {
      for (const Parameter& parameter : table.all()) {
        std::vector<double> values(parameter.shape.numel());
        read(parameter, 0, host_view(values.data(), {parameter.shape.numel()}));
      }
    };
    const WeightReader begun = source.open_weights();
    read_all(begun);  // the last file is still open
    const WeightReader later = source.open_weights();
    change(file);
    for (const WeightReader& read : {begun, later}) {
      expect_error_holding(ExitCode::checkpoint,
                           {"was changed while it was being read", fs::path(file).filename().string()},
                           [&] { read_all(read); });
    }
    error_of(ExitCode::checkpoint, [&] { export_model(source, {.output = at("out")}); });
    EXPECT_FALSE(fs::exists(at("out")));
  }
};

/// Changes the last byte.
void overwrite(const std::string& path) {
  flip_bit(path, -1);
}

void lengthen(const std::string& path) {
  std::ofstream(path, std::ios::app) << "more";
}

/// Replaces it by another file.
void replace(const std::string& path) {
  fs::copy(path, path + ".new");
  overwrite(path + ".new");
  fs::rename(path + ".new", path);
}

/// Writes to it and restores its time stamp.
void overwrite_in_secret(const std::string& path) {
  const auto before = fs::last_write_time(path);
  overwrite(path);
  fs::last_write_time(path, before);
}

TEST_F(OverwrittenModel, IsNoticedInEveryForm) {
  const std::string data = write_tokens("text.h5", {});
  for (const auto change : {overwrite, lengthen, replace, overwrite_in_secret}) {
    expect_noticed(copy_of("llama"), at("llama/model.safetensors"), change);
    expect_noticed(copy_of("qwen3"), at("qwen3/model-00002-of-00003.safetensors"), change);
    fs::remove_all(at("run"));
    run(tiny(data, {"training.steps=1"}), "run");
    expect_noticed(at("run"), state_file(checkpoint("run", 1)), change);
  }
}

TEST_F(OverwrittenModel, ARunThatResumesNoticesItToo) {
  const std::string data = write_tokens("text.h5", {});
  run(tiny(data, {"training.steps=1"}), "run");
  age(state_file(checkpoint("run", 1)));
  const Checkpoint opened = open_checkpoint(at("run"));
  overwrite(state_file(checkpoint("run", 1)));
  expect_error(ExitCode::checkpoint, "was changed while it was being read", [&] { check_state(opened); });
}

}  // namespace
}  // namespace ringtrain::testing
