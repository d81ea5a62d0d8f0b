// What the tests of runs share (train_fixture.h): token files, the tiny config, runs, and their outputs.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "data/token_file_writer.h"
#include "framework/config/read_config.h"
#include "framework/random.h"
#include "framework/storage/hdf5_datasets.h"
#include "layers/model/model_definition.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {

std::string TrainTest::write_tokens(const std::string& name, const TextPlan& plan) const {
  std::uint64_t draws = 0;
  const auto draw = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(plan.seed, Purpose::test, draws++, static_cast<std::uint64_t>(bound)));
  };
  const std::int64_t letters = plan.vocab_size - 1;
  std::vector<std::vector<std::int32_t>> documents;
  TokenFilePlan file;
  file.vocab_size = plan.vocab_size;
  file.documents = plan.documents;
  file.first_validation_document = plan.documents - plan.validation_documents;
  file.weights = plan.weights;
  for (std::int64_t d = 0; d < plan.documents; ++d) {
    std::vector<std::int32_t> text;
    const std::int64_t length = plan.shortest + draw(plan.longest - plan.shortest + 1) - 1;
    std::int64_t token = draw(letters);
    for (std::int64_t i = 0; i < length; ++i) {
      text.push_back(static_cast<std::int32_t>(token));
      token = draw(3) == 0 ? draw(letters) : (token * 5 + 3) % letters;
    }
    file.tokens += length + 1;
    documents.push_back(std::move(text));
  }
  file.byte_count = 2 * (file.tokens - file.documents);
  TokenFileWriter writer(at(name), file);
  for (const auto& text : documents) {
    if (plan.weights) {
      std::vector<float> weights;
      for (std::size_t i = 0; i < text.size(); ++i)
        weights.push_back(static_cast<float>(draw(2)) * 0.5f * static_cast<float>(1 + draw(2)));
      writer.append(text, weights);
    } else {
      writer.append(text);
    }
    writer.end_document();
  }
  writer.finish();
  return at(name);
}

std::string TrainTest::write_document(const std::string& name, std::int64_t vocab_size,
                                      const std::vector<std::int32_t>& tokens) const {
  TokenFilePlan plan;
  plan.vocab_size = vocab_size;
  plan.tokens = std::ssize(tokens);
  plan.documents = plan.first_validation_document = 1;
  TokenFileWriter writer(at(name), plan);
  writer.append({tokens.data(), tokens.size() - 1});
  writer.end_document();
  writer.finish();
  return at(name);
}

Config TrainTest::tiny(const std::string& data, const std::vector<std::string>& settings) const {
  const std::string text = fmt::format(R"(
model: {{vocab_size: 23, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 24}}
data: {{train: "{}", packing: documents}}
mesh: {{threads_per_rank: 1}}
training: {{seq_len: 37, global_batch_size: 24, micro_batch_size: 1, steps: 30, dtype: float64, feedforward_chunk: 10, loss_chunk: 7}}
optimizer: {{name: adamw, lr: 1.0e-2, max_grad_norm: 0.5}}
lr_scheduler: {{type: cosine, warmup_steps: 3, min_lr_ratio: 0.1}}
)",
                                       data);
  std::vector<std::string> all = settings;
  // scripts/torture repeats the faults with another policy than the default.
  if (const char* const shard = std::getenv("RINGTRAIN_TORTURE_SHARD")) {
    all.insert(all.begin(), std::string("training.shard=") + shard);
  }
  return parse_config(text, "tiny.yaml", all);
}

std::string TrainTest::Outcome::logged(const std::string& part) const {
  for (const std::string& log : logs)
    if (log.find(part) != std::string::npos) return log;
  return "";
}

TrainTest::Outcome TrainTest::run(const Config& config, const std::string& output, const StartRequest& start,
                                  std::int64_t stop_after) const {
  return run_with({.config = config, .output = at(output), .start = start, .stop_after = stop_after});
}

TrainTest::Outcome TrainTest::run_with(const TrainOptions& options, const Hook& before_forward) const {
  Outcome outcome;
  const Log log = [&](const std::string& line) { outcome.logs.push_back(line); };
  ringtrain::Run prepared = prepare_run(options, log);
  prepared.before_forward = before_forward;
  outcome.code = train(prepared, log);
  return outcome;
}

std::string TrainTest::run_dumped(const Config& config, const std::string& name, std::int64_t step,
                                  const Hook& before_forward) const {
  std::string dump = at(name) + ".dump";
  const TrainOptions options{.config = config, .output = at(name), .dump = {.folder = dump, .step = step}};
  EXPECT_EQ(run_with(options, before_forward).code, ExitCode::done);
  return dump;
}

void TrainTest::write_config(const Config& config, const std::string& name) const {
  std::ofstream(at(name)) << to_yaml(config);
}

std::vector<nlohmann::json> TrainTest::metrics(const std::string& output, const std::string& kind) const {
  std::vector<nlohmann::json> lines;
  std::ifstream file(at(output) + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto json = nlohmann::json::parse(line);
    if (json.at("kind") == kind) lines.push_back(std::move(json));
  }
  return lines;
}

std::vector<double> TrainTest::numbers(const std::string& output, const std::string& field) const {
  std::vector<double> values;
  for (const auto& line : metrics(output)) values.push_back(line.at(field).get<double>());
  return values;
}

std::vector<std::vector<std::int64_t>> TrainTest::samples(const std::string& output) const {
  std::vector<std::vector<std::int64_t>> all;
  for (const auto& line : metrics(output)) all.push_back(line.at("samples"));
  return all;
}

std::map<std::string, std::vector<double>> TrainTest::state(const std::string& checkpoint) const {
  std::map<std::string, std::vector<double>> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".h5") continue;
    const File file = File::open(entry.path().string(), ExitCode::checkpoint);
    for (const Hdf5Dataset& dataset : read_dataset_list(file.path(), ExitCode::checkpoint).datasets) {
      const std::size_t bracket = dataset.name.find('[');
      const auto begin = bracket == std::string::npos ? 0 : std::stoll(dataset.name.substr(bracket + 1));
      std::vector<double>& values = tensors[dataset.name.substr(0, bracket)];
      values.resize(std::max(values.size(), static_cast<std::size_t>(begin + dataset.count())), NAN);
      if (dataset.type == Hdf5Type::float64) {
        file.read_at(dataset.offset, values.data() + begin, static_cast<std::size_t>(dataset.bytes()));
      } else {
        std::vector<float> narrow(dataset.count());
        file.read_at(dataset.offset, narrow.data(), static_cast<std::size_t>(dataset.bytes()));
        std::copy(narrow.begin(), narrow.end(), values.begin() + begin);
      }
    }
  }
  return tensors;
}

std::string TrainTest::state_file(const std::string& checkpoint, int rank, int ranks) {
  return fmt::format("{}/state-{:05}-of-{:05}.h5", checkpoint, rank, ranks);
}

std::string TrainTest::checkpoint(const std::string& output, std::int64_t step) const {
  return fmt::format("{}/checkpoints/step-{:08}", at(output), step);
}

std::int64_t TrainTest::last_step(const std::string& output) const {
  return metrics(output).back().at("step");
}

std::int64_t TrainTest::saved_step(const std::string& output) const {
  return open_checkpoint(at(output)).manifest.step;
}

std::vector<std::int64_t> TrainTest::saved_steps(const std::string& output) const {
  return CheckpointFolder(at(output + "/checkpoints")).steps();
}

std::vector<nlohmann::json> TrainTest::evaluations(const std::string& output) const {
  std::vector<nlohmann::json> lines = metrics(output, "evaluation");
  for (nlohmann::json& line : lines) line.erase("time");
  return lines;
}

void TrainTest::expect_same_bits(const std::string& found, const std::string& reference) const {
  const std::int64_t last = last_step(reference);
  EXPECT_EQ(samples(found), samples(reference)) << found;
  EXPECT_EQ(losses(found), losses(reference)) << found;
  EXPECT_EQ(state(checkpoint(found, last)), state(checkpoint(reference, last))) << found;
}

void TrainTest::expect_same_numbers(const std::string& found, const std::string& reference, double tolerance) const {
  const std::int64_t last = last_step(reference);
  expect_close(losses(found), losses(reference), tolerance);
  expect_same_state(state(checkpoint(found, last)), state(checkpoint(reference, last)), "weights/", tolerance);
}

void TrainTest::expect_resumes(const Config& config, const std::vector<std::int64_t>& stops,
                               const std::string& prefix) const {
  run(config, prefix + "whole");
  run(config, prefix + "parts", {}, stops.front());
  for (std::size_t i = 1; i < stops.size(); ++i) run(config, prefix + "parts", resumed(), stops[i]);
  run(config, prefix + "parts", resumed());
  expect_same_bits(prefix + "parts", prefix + "whole");
}

void TrainTest::expect_planned_peaks(const std::string& output, const Config& config) const {
  const auto peaks = metrics(output).at(0).at("peak_bytes");
  std::size_t ranks = 0;
  for (const RankPlan& plan : plan_ranks(config, transformer_definition().table(config), training_purpose(config))) {
    ranks += plan.ranks.size();
    for (const int rank : plan.ranks) {
      for (int tag = 0; tag < tag_count; ++tag) {
        const std::string name = name_of(static_cast<Tag>(tag));
        EXPECT_EQ(peaks.at(rank).at(name), plan.peak[static_cast<Tag>(tag)]) << name << " of rank " << rank;
      }
    }
  }
  EXPECT_EQ(peaks.size(), ranks);
}

void negate_query_row(RankState& state, bool here) {
  const std::vector<Parameter>& all = state.parameters.table().all();
  const auto query = std::ranges::find(all, "model.layers.1.self_attn.q_proj.weight", &Parameter::name);
  const WeightsGuard weights(state.parameters, query->bucket);
  if (!here) return;
  const TensorView row = state.parameters.weight(static_cast<int>(query - all.begin())).rows(5, 6);
  for (std::int64_t i = 0; i < row.numel(); ++i) row.as<double>()[i] = -row.as<double>()[i];
}

std::vector<std::string> joined(std::vector<std::string> one, const std::vector<std::string>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

std::vector<std::string> mesh_of(std::int64_t data, std::int64_t sequence) {
  return {fmt::format("mesh.data={}", data), fmt::format("mesh.sequence={}", sequence)};
}

EvaluationSummary evaluate_on_threads(const EvaluationOptions& options) {
  Launcher launcher;
  return evaluate_checkpoint(options, launcher);
}

std::string generated_text(const GenerationOptions& options, GenerationSummary* summary) {
  std::string text;
  Launcher launcher;
  const auto made = generate_from_checkpoint(options, launcher, [&](std::string_view piece) { text += piece; });
  if (summary) *summary = made;
  return text;
}

DumpComparison expect_dumps_agree(const std::string& found, const std::string& reference,
                                  std::optional<Tolerance> tolerance) {
  const DumpReader a(found), b(reference);
  if (!tolerance) tolerance = default_tolerance(a.index(), b.index());
  DumpComparison comparison = compare_dumps(a, b, *tolerance);
  EXPECT_TRUE(comparison.agree()) << report(comparison, a, b, *tolerance);
  return comparison;
}

void expect_close(const std::vector<double>& found, const std::vector<double>& reference, double tolerance) {
  ASSERT_EQ(found.size(), reference.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], reference[i], tolerance * std::abs(reference[i])) << "step " << i + 1;
  }
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : INFINITY);
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

void expect_same_state(const std::map<std::string, std::vector<double>>& found,
                       const std::map<std::string, std::vector<double>>& reference, const std::string& prefix,
                       double tolerance) {
  double worst = 0;
  int compared = 0;
  ASSERT_EQ(found.size(), reference.size());
  for (const auto& [name, values] : reference) {
    if (!name.starts_with(prefix)) continue;
    ASSERT_TRUE(found.contains(name)) << name;
    const double difference = relative_difference(found.at(name), values);
    EXPECT_LE(difference, tolerance) << name;
    worst = std::max(worst, difference);
    ++compared;
  }
  EXPECT_GT(compared, 0);
  ::testing::Test::RecordProperty("worst " + prefix, fmt::format("{:.3g} of {:.3g}", worst, tolerance));
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void flip_bit(const std::string& path, std::int64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto origin = byte < 0 ? std::ios::end : std::ios::beg;
  file.seekg(byte, origin);
  const int before = file.get();
  file.seekp(byte, origin);
  file.put(static_cast<char>(before ^ (1 << bit)));
}

void seal_checkpoint(const std::string& path, const std::function<void(CheckpointManifest&)>& change) {
  CheckpointManifest manifest = parse_manifest(content_of(path + "/manifest.json"), path);
  for (CheckpointFile& file : manifest.files) file = describe_file(path, file.name);
  change(manifest);
  std::ofstream(path + "/manifest.json", std::ios::binary) << to_json(manifest);
}

}  // namespace ringtrain::testing
