// The program `plan`: predicts the needs and the speed of a run on given hardware, before it starts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "extras/planner/measure.h"
#include "extras/planner/plan.h"
#include "extras/planner/plan_report.h"
#include "extras/planner/search.h"
#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/output/output_file.h"
#include "framework/standard_streams.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "layers/model_spec.h"
#include "train/models/model_source.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"
#include "train/run/config_lookup.h"
#include "train/run/run_start.h"

using namespace ringtrain;

namespace {

constexpr std::int64_t max_ranks = 65536;
constexpr const char* writer = "ringtrain plan";

void say(const std::string& sentence) {
  write_message(stderr, "plan: " + sentence + "\n");
}

/// The program's output, for users and for programs.
struct Answer {
  std::string text;
  nlohmann::ordered_json json;
  bool fits = false;
};

/// Adds what would help a config that does not fit.
void add_advice(const Config& config, const Hardware& hardware, Answer& answer) {
  const std::vector<std::string> sentences = advice(config, hardware);
  for (const std::string& sentence : sentences) answer.text += "memory: " + sentence + "\n";
  answer.json["advice"] = sentences;
}

Answer planned(const PlanRequest& request) {
  const Plan plan = make_plan(request);
  Answer answer{plan_report(plan), plan_json(plan), plan.fits};
  if (plan.fits) return answer;
  add_advice(plan.request.config, request.hardware, answer);
  answer.text += "--search looks for a way to run it on the same number of devices\n";
  return answer;
}

/// Plans the best way to run the request's config.
Answer searched(PlanRequest request, std::int64_t devices) {
  if (!request.config.training.stages.empty()) {
    say("--search looks only at the stage with the longest sequences");
    request.config = config_of_stage(request.config, longest_stage(request.config.training));
  }
  const Config before = request.config;
  const Candidates found = search_plans(request, devices, say);
  request.config = found.front().config;
  Answer answer{search_report(found) + "\n", {{"kind", "plan"}}, found.front().fits};
  if (answer.fits) {
    const Plan plan = make_plan(request);
    if (request.tokens > 0) request.config.training.steps = static_cast<std::int64_t>(plan.steps);
    const std::string flags = set_flags(before, request.config);
    answer.text += fmt::format("flags of this choice:{}\n\n", flags.empty() ? " none; it is the config itself" : flags);
    answer.text += plan_report(plan);
    answer.json = plan_json(plan);
    answer.json["flags"] = flags;
  } else {
    add_advice(request.config, request.hardware, answer);
  }
  answer.json["search"] = search_json(found);
  return answer;
}

/// The command line as the user gave it.
struct Given {
  std::string config, hardware, output;
  std::vector<std::string> settings;
  bool search = false, measure = false;
  std::int64_t devices = 0;  // 0: the mesh's
  PlanRequest request;       // inputs other than the config and the hardware
};

void add_options(CommandLine& app, Given& given) {
  app.add_option("--config", given.config, "FILE", "the YAML config of the run");
  add_settings(app, given.settings, max_ranks);
  app.add_option("--hardware", given.hardware, "NAME|FILE",
                 "a hardware file, or a name in configs/hardware (default: cpu, or h200 if training.device is cuda)");
  app.add_real("--total-tokens", given.request.tokens, real_within(1, 1e18), "N",
               "tokens in the whole run, e.g. 1e9 (default: those of the config's steps)");
  app.add_old_name("--total-tokens", "--tokens");
  auto* const search = app.add_flag("--search", given.search,
                                    "find the fastest mesh, layout, recompute, offload, sharding, and micro-batch");
  app.add_option("--devices", given.devices, "N", "with --search: number of ranks (default: the mesh's)")
      ->needs(search)
      ->check(within(1, max_ranks));
  app.add_real("--document-tokens", given.request.mean_document, real_above(0), "N",
               "mean tokens per document, with data.packing documents (default: one document per sequence)");
  app.add_old_name("--document-tokens", "--documents");
  app.add_option("--output", given.output, "FILE.json", "also write the plan as JSON; replaces an earlier plan");
  app.add_flag("--measure", given.measure,
               "measure this machine for about a minute, and write its hardware file to --output FILE.yaml");
}

OutputRules rules_of(const char* what, const OutputMark& mark, const char* inputs) {
  return {{what, "--output"}, mark, OutputInputs::none(inputs)};
}

void measure(const Given& given) {
  if (given.output.empty()) fail(ExitCode::usage, "--measure needs --output FILE.yaml, for the hardware file");
  // Without a mark, because people edit hardware files.
  OutputFile file(given.output, rules_of("a hardware file", OutputMark::none(), "what it reads has been read by then"),
                  ExitCode::usage);
  const std::string text = hardware_yaml(measure_hardware());
  file.publish(text);
  print_result(text);
}

PlanRequest request_of(const Given& given) {
  PlanRequest request = given.request;
  std::optional<ModelConfig> source;
  std::int64_t made_for = 0;
  ConfigLookup lookup = config_lookup(say);
  lookup.model = [&, read = lookup.model](const std::string& from) {
    if (has_only_sizes(from)) {
      source = read(from);
      made_for = source->max_position_embeddings;
    } else {
      const ModelSource opened = open_model(from);
      for (const std::string& line : opened.logs) say(line);
      source = opened.model;
      made_for = opened.context_length;  // for a run, the length of its sequences
    }
    return *source;
  };
  request.config = read_config(given.config, given.settings, ConfigUse::plan, check_model, lookup);
  const ModelConfig& model = request.config.model;
  if (!source) made_for = model.max_position_embeddings;
  const bool scaled = source ? rescales(*source, model) : model.rope_scaling.type != RopeType::none;
  if (!scaled && model_spec(model).positions == Positions::rope) request.made_for = made_for;
  if (request.mean_document > 0 && !parts_documents(request.config.data.packing)) {
    fail(ExitCode::usage,
         "--document-tokens has no effect with data.packing concat, where a token attends to all documents before it; "
         "add --set data.packing=documents, or leave it out");
  }
  const char* const usual = request.config.training.device == Device::Kind::cuda ? "h200" : "cpu";
  request.hardware = read_hardware(find_hardware(given.hardware.empty() ? usual : given.hardware));
  return request;
}

int run(int argc, char** argv) {
  CommandLine app{
      "Predict a run before you pay for it: memory, FLOPs, what the ring sends and how much of that computation hides, "
      "time, MFU. It reads data only for training.epochs and a missing model.vocab_size (257 without data). E.g.:\n"
      "  plan --config configs/long_ctx_gpu.yaml --hardware h200 --mesh 1x8 --total-tokens 1e9\n"
      "  plan --config configs/long_ctx_gpu.yaml --hardware h100 --search --devices 8\n"
      "The exit code is 2 if nothing fits.",
      "plan"};
  Given given;
  add_options(app, given);
  if (!parse_command_line(app, argc, argv)) return 0;
  if (given.measure) {
    measure(given);
    return 0;
  }
  if (given.config.empty()) fail(ExitCode::usage, "--config is required; see plan --help");
  const PlanRequest request = request_of(given);
  const MeshConfig& mesh = request.config.mesh;
  std::optional<OutputFile> file;
  if (!given.output.empty()) {
    file.emplace(given.output,
                 rules_of("a plan", OutputMark::json(writer), "config and hardware have been read by now"),
                 ExitCode::usage);
  }
  const std::int64_t devices = given.devices > 0 ? given.devices : mesh.data * mesh.sequence;
  const Answer answer = given.search ? searched(request, devices) : planned(request);
  print_result(answer.text);
  if (file) file->publish(marked_json(writer, json_text(answer.json, 2)) + "\n");
  if (!answer.fits) fail(ExitCode::usage, "this run does not fit; the lines above say why, and what would help");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("plan", [&] { return run(argc, argv); });
}
