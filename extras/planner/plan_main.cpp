// The program `plan`: what a run would need and how fast it would go on given hardware, before there is a run.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "extras/planner/advice.h"
#include "extras/planner/card_report.h"
#include "extras/planner/decision.h"
#include "extras/planner/measure.h"
#include "extras/planner/plan.h"
#include "extras/planner/plan_report.h"
#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/output/output_file.h"
#include "framework/standard_streams.h"
#include "framework/storage/strict_json.h"
#include "framework/text/text_reader.h"
#include "layers/check_model.h"
#include "train/models/model_source.h"
#include "train/programs/command_line.h"
#include "train/programs/program.h"

using namespace ringtrain;

namespace {

constexpr std::int64_t max_ranks = 65536;
constexpr double most_tokens = 1e18;
constexpr std::int64_t max_batch = 1048576;  // as of training.global_batch_size
constexpr const char* writer = "ringtrain plan";

bool take_real(std::string_view& text, double& value) {
  return take_number(text, value) && std::isfinite(value);
}

void read_mesh(const std::string& given, MeshConfig& mesh) {
  if (take_pair(given, mesh.data, 'x', mesh.sequence) && mesh.data >= 1 && mesh.sequence >= 1 &&
      mesh.data <= max_ranks && mesh.sequence <= max_ranks && mesh.data * mesh.sequence <= max_ranks) {
    return;
  }
  fail(ExitCode::usage, "--mesh {}: must be DATAxSEQUENCE, together at most {} ranks, e.g. 8x16", given, max_ranks);
}

/// Returns "1.5B" as 1.5e9.
double read_tokens(const std::string& given) {
  std::string_view text = given;
  double value = 0;
  if (take_real(text, value) && value > 0) {
    const std::size_t unit = text.empty() ? 0 : std::string_view(" KMBT").find(text.front());
    constexpr double units[] = {1, 1e3, 1e6, 1e9, 1e12};
    if (text.size() <= 1 && unit != std::string_view::npos && value * units[unit] <= most_tokens) {
      return value * units[unit];
    }
  }
  fail(ExitCode::usage, "--tokens {}: must be a number above 0, at most {:g}, perhaps with K, M, B or T, e.g. 1.5B",
       given, most_tokens);
}

/// Reads NAME=PRICE into the offer of that name.
void read_price(const std::string& given, std::vector<Offer>& offers) {
  const std::size_t equals = given.find('=');
  const auto offer = std::ranges::find(offers, given.substr(0, equals), &Offer::name);
  double price = 0;
  std::string_view text = equals == std::string::npos ? std::string_view() : std::string_view(given).substr(equals + 1);
  if (!take_real(text, price) || !text.empty() || price <= 0 || price > 1e9) {
    fail(ExitCode::usage, "--price {}: must be HARDWARE=PRICE of a device's hour, above 0, e.g. h100=2.5", given);
  }
  if (offer == offers.end()) {
    fail(ExitCode::usage, "--price {}: {} is not among --hardware", given, given.substr(0, equals));
  }
  offer->device_price = price;
}

Disturbance::Straggler read_straggler(const std::string& given) {
  std::string_view text = given;
  Disturbance::Straggler straggler;
  if (take_number(text, straggler.rank) && take(text, ':') && take_real(text, straggler.factor) && text.empty() &&
      straggler.rank >= 0 && straggler.factor > 0) {
    return straggler;
  }
  fail(ExitCode::usage, "--straggler {}: must be RANK:FACTOR, e.g. 3:1.5", given);
}

Disturbance::SlowLink read_slow_link(const std::string& given) {
  std::string_view text = given;
  Disturbance::SlowLink link;
  if (take_number(text, link.from) && take(text, ':') && take_number(text, link.to) && take(text, ':') &&
      take_real(text, link.factor) && text.empty() && link.from >= 0 && link.to >= 0 && link.factor > 0) {
    return link;
  }
  fail(ExitCode::usage, "--slow-link {}: must be FROM:TO:FACTOR, two ranks and how many times as long, e.g. 3:4:10",
       given);
}

/// What the program says, to people and to programs.
struct Told {
  std::string text;
  nlohmann::ordered_json json;
  bool fits = false;
};

Told planned(const PlanRequest& request) {
  const MeshConfig& mesh = request.config.mesh;
  check_disturbance(request.disturbance, mesh.data * mesh.sequence, mesh.sequence);
  const Plan plan = make_plan(request);
  Told told{plan_report(plan), plan_json(plan), plan.fits};
  if (plan.fits) return told;
  const std::vector<std::string> sentences = advice(plan.request.config, request.hardware);
  for (const std::string& sentence : sentences) told.text += "does not fit: " + sentence + "\n";
  told.text += "--search looks for a way to run it on as many devices\n";
  told.json["advice"] = sentences;
  return told;
}

Told decided(PlanRequest request, const std::vector<Offer>& offers, std::vector<std::int64_t> devices,
             const std::vector<std::int64_t>& batches) {
  if (!request.config.training.stages.empty()) {
    request.tell("--search looks at the stage with the longest sequences alone");
    request.config = config_of_stage(request.config, longest_stage(request.config.training));
  }
  if (devices.empty()) devices = {request.config.mesh.data * request.config.mesh.sequence};
  const std::vector<Decision> decisions = decide(request, offers, devices, batches);
  Told told{decision_table(decisions), {}, std::ranges::any_of(decisions, &Decision::fits)};
  if (decisions.size() == 1) {  // all of it
    const SearchResult& found = decisions.front().search;
    told.text = search_report(found) + "\n" + told.text + "\n";
    request.config = config_of(request.config, found.candidates.front());
    if (told.fits) {
      const Plan plan = make_plan(request);
      told.text += plan_report(plan);
      told.json = plan_json(plan);
    }
    told.json["search"] = search_json(found);
    told.json["why"] = found.why;
    told.json["levers"] = nlohmann::ordered_json::array();
    for (const Lever& lever : found.levers) told.json["levers"].push_back({{"what", lever.what}, {"gain", lever.gain}});
  }
  told.json["kind"] = "plan";
  told.json["decisions"] = decisions_json(decisions);
  return told;
}

int run(int argc, char** argv) {
  CommandLine app{
      "Predict a run before you pay for it: memory of each kind of rank, FLOPs, the time of every hop, what the ring "
      "hides, step time, tokens/s, MFU and hours. Nothing is trained, and no data is read. E.g.:\n"
      "  plan --config configs/long_ctx_gpu.yaml --hardware h200 --mesh 1x8 --tokens 1B\n"
      "  plan --config configs/long_ctx_gpu.yaml --hardware h100,h200 --search --devices 8,16 --price h100=2.5\n"
      "Ends with 2 if nothing fits.",
      "plan"};
  PlanRequest request;
  request.tell = [](const std::string& sentence) { write_message(stderr, "plan: " + sentence + "\n"); };
  std::string config_path, mesh, tokens, output, bench_report;
  std::vector<std::string> settings, stragglers, slow_links, hardware, prices;
  bool overwrite = false, searching = false, measure = false;
  std::vector<std::int64_t> devices, batches;
  app.add_option("--config", config_path, "FILE", "the YAML config of the run");
  app.add_option("--set", settings, "KEY.PATH=VALUE", "change one key of the config, as of train; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--hardware", hardware, "NAME|FILE[,...]",
                 "hardware files, or names of some of configs/hardware; with --search, several (default: cpu, or h200 "
                 "for a config of GPUs)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--mesh", mesh, "DATAxSEQUENCE", "data ranks x sequence ranks, instead of the config's");
  app.add_option("--tokens", tokens, "N", "of the whole training, e.g. 1B (default: those of the config's steps)");
  auto* const search_flag = app.add_flag(
      "--search", searching,
      "decide: rank meshes, layouts, recompute, offload, batches and micro-batches, and plan the best of them");
  app.add_option("--devices", devices, "N[,...]", "with --search: ranks, one number or several (default: the mesh's)")
      ->needs(search_flag)
      ->check(within(1, max_ranks))
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option(
         "--batch", batches, "N[,...]",
         "with --search: sequences of a step, one number or several (default: the config's, and twice, four and "
         "eight times that, up to a sequence a device)")
      ->needs(search_flag)
      ->check(within(1, max_batch))
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--price", prices, "HARDWARE=PRICE[,...]",
                 "of a device's hour, in whatever currency, e.g. h100=2.5; may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_real("--documents", request.mean_document, RealRange::above(0), "N",
               "mean tokens of a document, with data.packing documents (default: one document a sequence)");
  app.add_real("--jitter", request.disturbance.jitter, RealRange::within(0, 2), "X",
               "simulate kernel calls whose times vary: the standard deviation of their logarithm");
  app.add_option("--seed", request.disturbance.seed, "N", "of --jitter and --documents")->capture_default_str();
  app.add_option("--straggler", stragglers, "RANK:FACTOR",
                 "simulate a rank that is FACTOR times as slow; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--slow-link", slow_links, "FROM:TO:FACTOR",
                 "simulate a link that is FACTOR times as slow; may be repeated")
      ->allow_extra_args(false);
  auto* const output_option =
      app.add_option("--output", output, "FILE.json", "write the plan as JSON, too; replaces a former plan");
  app.add_flag("--overwrite", overwrite, "let --output replace any file that this plan does not read")
      ->needs(output_option);
  auto* const measure_flag =
      app.add_flag("--measure", measure,
                   "measure this machine for about a minute, and write its hardware file to --output FILE.yaml");
  app.add_option("--gpu-bench", bench_report, "REPORT.json",
                 "with --measure: of a card instead, from what gpu_bench --json wrote there; its peak, links and node "
                 "are those of --hardware, a file of the same kind of card")
      ->needs(measure_flag);
  if (!parse_command_line(app, argc, argv)) return 0;
  const Overwrite rule = overwrite ? Overwrite::yes : Overwrite::no;
  if (measure) {
    if (output.empty()) fail(ExitCode::usage, "--measure needs --output FILE.yaml, for the hardware file");
    std::optional<Hardware> card;
    if (!bench_report.empty()) {
      if (hardware.size() != 1) {
        fail(ExitCode::usage, "--gpu-bench needs one --hardware: a file of the same kind of card, as h100");
      }
      card = hardware_of_card(read_hardware(find_hardware(hardware[0])), read_file(bench_report, ExitCode::data),
                              bench_report);
    }
    // Without a mark: people edit hardware files.
    OutputFile file(output,
                    OutputRules({"a hardware file", "--output"}, OutputMark::none(),
                                OutputInputs::none("what it reads has been read by then"), rule),
                    ExitCode::usage);
    const std::string text = hardware_yaml(card ? *card : measure_hardware());
    file.file().write(text);
    file.publish();
    print_result(text);
    return 0;
  }
  if (config_path.empty()) fail(ExitCode::usage, "--config is required; see plan --help");

  request.config = read_config(config_path, settings, ConfigUse::know, check_model, planned_model_reader(request.tell));
  if (!mesh.empty()) read_mesh(mesh, request.config.mesh);
  if (request.mean_document > 0 && !parts_documents(request.config.data.packing)) {
    fail(ExitCode::usage,
         "--documents: with data.packing concat every token sees all before it, whatever its document; choose --set "
         "data.packing=documents, or leave it out");
  }
  if (hardware.empty()) hardware = {request.config.training.device == Device::Kind::cuda ? "h200" : "cpu"};
  std::vector<Offer> offers;
  for (const std::string& name : hardware) offers.push_back({name, read_hardware(find_hardware(name))});
  if (offers.size() > 1 && !searching) fail(ExitCode::usage, "--hardware: several need --search, which compares them");
  for (const std::string& price : prices) read_price(price, offers);
  request.hardware = offers.front().hardware;
  request.device_price = offers.front().device_price;
  if (!tokens.empty()) request.tokens = read_tokens(tokens);
  for (const std::string& given : stragglers) request.disturbance.stragglers.push_back(read_straggler(given));
  for (const std::string& given : slow_links) request.disturbance.slow_links.push_back(read_slow_link(given));
  std::optional<OutputFile> file;
  if (output_option->count() > 0) {
    file.emplace(output,
                 OutputRules({"a plan", "--output"}, OutputMark::json(writer),
                             OutputInputs::none("config and hardware have been read by now"), rule),
                 ExitCode::usage);
  }
  const Told told = searching ? decided(request, offers, devices, batches) : planned(request);
  print_result(told.text);
  if (file) {
    file->file().write(marked_json(writer, json_text(told.json, 2)) + "\n");
    file->publish();
  }
  if (!told.fits) fail(ExitCode::usage, "nothing of it fits; the lines above say why, and what would help");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("plan", [&] { return run(argc, argv); });
}
