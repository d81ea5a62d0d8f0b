#include "extras/extend/extension.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/preparation/sources.h"
#include "data/token_file.h"
#include "data/token_manifest.h"
#include "extras/extend/extension_page.h"
#include "extras/planner/measure.h"
#include "extras/planner/plan.h"
#include "extras/planner/plan_report.h"
#include "framework/config/read_config.h"
#include "framework/config/yaml_tree.h"
#include "framework/profile/progress.h"
#include "framework/standard_streams.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "train/models/model_source.h"
#include "train/programs/program.h"
#include "train/run/config_lookup.h"
#include "train/run/run_folder.h"
#include "train/trainer.h"

namespace ringtrain {

namespace {

using Words = std::vector<std::string>;

Words joined(Words words, const Words& added) {
  words.insert(words.end(), added.begin(), added.end());
  return words;
}

/// Returns the length for which the model was made. Throws Error(usage) if there is nothing to extend, or if only
/// --theta can extend it.
std::int64_t known_length(const ExtensionRequest& request, const ModelConfig& model) {
  const RopeScalingConfig& rope = model.rope_scaling;
  if (request.theta == 0 && rope.type != RopeType::none && rope.type != RopeType::yarn) {
    fail(ExitCode::usage, "{} scales its rotary positions by {}, which extend keeps; give a larger base with --theta",
         request.model, name_of(rope.type));
  }
  const double scaled = rope.factor * static_cast<double>(rope.original_max_position_embeddings);
  const std::int64_t made_for = rope.type == RopeType::yarn ? std::llround(scaled) : model.max_position_embeddings;
  const std::int64_t from = request.from > 0 ? request.from : made_for;
  if (from == 0) fail(ExitCode::usage, "{} does not say how long its context is; give --from", request.model);
  if (request.to > from) return from;
  fail(ExitCode::usage, "--to {}: must be more than the {} tokens that {} was trained for (--from)", request.to, from,
       request.model);
}

class Extension {
 public:
  Extension(const ExtensionRequest& request, const OptionValues& options, const CommandRunner& run_command)
      : asked_(request),
        model_(open_model(request.model).model),
        from_(known_length(request, model_)),
        folder_(request.output, options),
        run_command_(run_command),
        scored_(at(asked_.held_out.empty() ? "long.h5" : "held-out.h5")) {}

  void run() {
    make_token_file("long", asked_.texts, asked_.held_out.empty() ? "0.1" : "0");
    make_token_file("held-out", asked_.held_out, "0");
    make_token_file("short", asked_.short_texts, "0");
    write_file(config_, config_text(), ExitCode::usage);
    say_what_it_takes();
    check_training();
    if (asked_.plan_only) return;
    const Words model_files = files_of_model(asked_.model), checkpoints{at("run/checkpoints")};
    evaluate("before", asked_.model, model_files, {});
    evaluate("scaled", asked_.model, model_files,
             {"--set", fmt::format("model.max_position_embeddings={}", asked_.to), "--set", "model." + scaling("=")});
    train(model_files);
    evaluate("after", at("run"), checkpoints, {});
    folder_.run({"export", "Exporting", folder_.hashes_of(checkpoints), {"model"}}, [&] {
      run_command_({"export", "--checkpoint", at("run"), "--output", at("model")});
    });
    show();
  }

 private:
  std::string at(const std::string& name) const { return folder_.at(name); }

  void make_token_file(const std::string& name, const Words& texts, const std::string& validation) {
    if (texts.empty()) return;
    FileHashes reads = folder_.hashes_of(files_of_model(asked_.model));
    for (const Source& source : find_sources(texts, {}).sources) {
      reads[source.path] = source.hash;
      const std::string& first = uses_.try_emplace(source.hash, name).first->second;
      if ((first == "held-out") != (name == "held-out"))
        fail(ExitCode::usage, "{}: --held-out names this text, and it is also to be trained on", source.path);
    }
    const std::string file = name + ".h5";
    folder_.run({name, "Tokenizing: " + name, reads, {file, file + ".manifest.json", file + ".tokenizer"}}, [&] {
      run_command_(joined({"prepare", "--tokenizer", asked_.model, "--validation-fraction", validation, "--output",
                           at(file), "--input"},
                          texts));
    });
  }

  /// Returns the change of the rotary positions: a key of the section model, and its value after a separator.
  std::string scaling(const char* separator) const {
    if (asked_.theta > 0) return fmt::format("rope_theta{}{}", separator, asked_.theta);
    const bool again = model_.rope_scaling.type == RopeType::yarn;  // its other keys do not change
    const std::int64_t original = again ? model_.rope_scaling.original_max_position_embeddings : from_;
    const double factor = static_cast<double>(asked_.to) / static_cast<double>(original);
    return fmt::format("rope_scaling{}{{{}factor: {}, original_max_position_embeddings: {}}}", separator,
                       again ? "" : "type: yarn, ", factor, original);
  }

  std::string config_text() const {
    const auto source = [&](const char* name, double weight) {
      return fmt::format("\n    - {{path: {}, weight: {}}}", quoted_yaml(at(name)), weight);
    };
    return fmt::format(R"(# Made by extend: from {} to {} tokens.
model:
  from: {}
  max_position_embeddings: {}
  {}
data:
  train:{}
mesh: {{data: 1, sequence: {}, layout: zigzag}}
training:
  seq_len: {}
  global_batch_size: 2          # as many tokens as one sequence of the new length
  steps: {}
  stages: [{{from_step: {}, seq_len: {}, global_batch_size: 1}}]
optimizer: {{lr: {}, weight_decay: 0.0}}
lr_scheduler: {{type: cosine, warmup_steps: 1, min_lr_ratio: 0.1}}
checkpoint: {{interval: 1, keep: 2}}
)",
                       from_, asked_.to, quoted_yaml(asked_.model), asked_.to, scaling(": "),
                       source("long.h5", 1 - share_) + (share_ > 0 ? source("short.h5", share_) : ""), asked_.ring,
                       asked_.to / 2, asked_.half_steps + asked_.steps, asked_.half_steps + 1, asked_.to, asked_.lr);
  }

  // ---- Cost ----

  Plan plan(const Words& settings = {}, double mean_document = 0) const {
    const ConfigLookup lookup = config_lookup([](const std::string&) {});
    return make_plan({.config = read_config(config_, settings, ConfigUse::plan, check_model, lookup),
                      .hardware = read_hardware(asked_.hardware.empty() ? at("machine.yaml") : asked_.hardware),
                      .mean_document = mean_document,
                      .longest_context = false});
  }
  /// Returns the seconds of training if all sequences came from one token file. Packed documents do not see each other,
  /// which saves attention.
  double training_seconds(const char* name) const {
    const std::unique_ptr<TokenFile> file = TokenFile::open(at(name));
    const auto documents = static_cast<double>(std::ssize(file->document_offsets()) - 1);
    return plan({}, static_cast<double>(file->token_count()) / documents).hours * 3600;
  }
  double evaluation_seconds(const std::string& lengths, std::int64_t blocks) const {
    const auto key = [](const char* name, auto value) { return fmt::format("evaluation.{}={}", name, value); };
    return plan({key("interval", asked_.half_steps + asked_.steps), key("context_lengths", "[" + lengths + "]"),
                 key("target_tokens", targets()), key("target_blocks", blocks)})
        .evaluation_seconds;
  }

  void say_what_it_takes() {
    if (asked_.hardware.empty()) {
      folder_.run({"machine", "Measuring this machine, for about a minute", {}, {"machine.yaml"}},
                  [&] { write_file(at("machine.yaml"), hardware_yaml(measure_hardware()), ExitCode::usage); });
    }
    const Plan whole = plan();
    write_file(at("plan.json"), json_text(plan_json(whole), 2) + "\n", ExitCode::usage);
    const double training =
        (1 - share_) * training_seconds("long.h5") + (share_ > 0 ? share_ * training_seconds("short.h5") : 0);
    const double longer = evaluation_seconds(long_lengths(), asked_.long_blocks);
    // Needles are scored twice, each time in a text of every length, which costs as much as another window.
    const double needles = 2 * static_cast<double>(asked_.needles) / static_cast<double>(asked_.long_blocks);
    const double evaluations = 3 * (evaluation_seconds(short_length(), asked_.blocks) + longer) + needles * longer;
    expected_ = fmt::format("training {}, evaluations {}", human_duration(training), human_duration(evaluations));
    print_result(plan_report(whole) + "\nexpected in total: " + expected_ + "\n");
    flush_results();
  }

  /// Throws the errors that would end training at its beginning, because the evaluations before it take long: texts too
  /// short, and too little memory (unless only a plan is asked for, which reports the memory of its own hardware).
  void check_training() const {
    if (path_exists(at("run/checkpoints"))) return;
    const Log quiet = [](const std::string&) {};
    TrainOptions options;
    options.config = read_config(config_, {}, ConfigUse::run, check_model, config_lookup(quiet));
    options.output = at("run");
    options.start.init_from = asked_.model;
    const Run run = prepare_run(options, quiet);
    if (!asked_.plan_only) check_plan_memory(run);
  }

  // ---- Evaluations and training ----

  // Short windows are cheap, and long ones are not, so there are fewer long ones.
  std::string short_length() const { return std::to_string(asked_.to / 8); }
  std::string long_lengths() const { return fmt::format("{},{},{}", asked_.to / 4, asked_.to / 2, asked_.to); }
  std::int64_t targets() const { return std::min<std::int64_t>(asked_.to / 16, 1024); }

  void score(const std::string& name, const std::string& checkpoint, const Words& files, const Words& flags) {
    const FileHashes reads = folder_.hashes_of(joined(files, {scored_, manifest_path(scored_)}));
    const std::string part = asked_.held_out.empty() ? "validation" : "whole", json = name + ".json",
                      scores = name + ".jsonl";
    folder_.run({name, "Evaluating: " + name, reads, {json, scores}}, [&] {
      run_command_(joined({"evaluate", "--checkpoint", checkpoint, "--mesh", fmt::format("1x{}", asked_.ring), "--data",
                           scored_, "--part", part, "--target-tokens", std::to_string(targets()), "--output", at(json),
                           "--per-token", at(scores)},
                          flags));
    });
  }

  /// Scores short windows as NAME-short, and long ones as NAME. files: those of the model. Needles are included unless
  /// the model is only scaled.
  void evaluate(const std::string& name, const std::string& checkpoint, const Words& files, const Words& scaled) {
    score(name + "-short", checkpoint, files,
          joined({"--context-lengths", short_length(), "--target-blocks", std::to_string(asked_.blocks)}, scaled));
    const Words needles{"--tasks", "multiquery",    "--task-samples",
                        "1",       "--task-depths", std::to_string(asked_.needles)};
    score(name, checkpoint, files,
          joined({"--context-lengths", long_lengths(), "--target-blocks", std::to_string(asked_.long_blocks),
                  "--by-position"},
                 scaled.empty() && asked_.needles > 0 ? needles : scaled));
  }

  void train(const Words& model_files) {
    Words reads = joined(model_files, {at("long.h5"), manifest_path(at("long.h5"))});
    if (!asked_.short_texts.empty()) reads = joined(reads, {at("short.h5"), manifest_path(at("short.h5"))});
    folder_.run({"train", "Training", folder_.hashes_of(reads), {"run/checkpoints"}, true}, [&] {
      run_command_({"train", "--config", config_, "--output", at("run"), "--init-from", asked_.model, "--resume"});
    });
  }

  void show() {
    double evaluated = 0;
    for (const char* const name : evaluation_names) evaluated += folder_.seconds(name);
    const std::string taken =
        fmt::format("training {}, evaluations {}", human_duration(folder_.seconds("train")), human_duration(evaluated));
    const auto list = [](const Words& paths) { return fmt::format("{}", fmt::join(paths, " ")); };
    const ExtensionPage page = extension_page(
        asked_.output, from_, asked_.to,
        {{"", ""},
         {"model", asked_.model},
         {"rotary positions", scaling(": ")},
         {"trained on", list(joined(asked_.texts, asked_.short_texts))},
         {"evaluated on", asked_.held_out.empty() ? "the validation part of these" : list(asked_.held_out)},
         {"expected", expected_},
         {"time taken, without interrupted commands", taken}});
    write_file(at("index.html"), page.html, ExitCode::usage);
    print_result(fmt::format("\n{}\npage: {}\nmodel: {}\nnext: {}report {} --plan {}\n", page.text, at("index.html"),
                             at("model"), command_prefix(), at("run"), at("plan.json")));
  }

  const ExtensionRequest& asked_;
  const ModelConfig model_;
  const double share_ = asked_.short_texts.empty() ? 0 : asked_.short_share;  // of sequences from short texts
  const std::int64_t from_;
  ExtensionFolder folder_;
  FileHashes uses_;  // the token file of each text, by the hash of its content
  const CommandRunner& run_command_;
  const std::string scored_, config_ = at("config.yaml");
  std::string expected_;  // the time, in words
};

}  // namespace

void extend(const ExtensionRequest& request, const OptionValues& options, const CommandRunner& run_command) {
  Extension(request, options, run_command).run();
}

}  // namespace ringtrain
