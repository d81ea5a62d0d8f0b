// What the tests of runs share (train_fixture.h): token files, the tiny config, runs, and what they left.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/token_file_writer.h"
#include "framework/config/read_config.h"
#include "framework/random.h"
#include "framework/storage/hdf5_datasets.h"
#include "tests/train/train_fixture.h"

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

StartRequest TrainTest::from(const std::string& path) {
  StartRequest start;
  start.init_from = path;
  return start;
}

StartRequest TrainTest::resumed() {
  StartRequest start;
  start.resume = true;
  return start;
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
  // scripts/torture runs the faults once more with another policy than the default.
  if (const char* const shard = std::getenv("RINGTRAIN_TORTURE_SHARD")) {
    all.insert(all.begin(), std::string("training.shard=") + shard);
  }
  return parse_config(text, "tiny.yaml", all);
}

std::string TrainTest::Outcome::logged(const std::string& part) const {
  for (const std::string& log : logs) {
    if (log.find(part) != std::string::npos) return log;
  }
  return "";
}

TrainTest::Outcome TrainTest::run(const Config& config, const std::string& output, const StartRequest& start,
                                  std::int64_t stop_after) const {
  Outcome outcome;
  const Log log = [&](const std::string& line) { outcome.logs.push_back(line); };
  TrainOptions options;
  options.config = config;
  options.output = at(output);
  options.start = start;
  options.stop_after = stop_after;
  outcome.code = train(prepare_run(options, log), log);
  return outcome;
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

}  // namespace ringtrain::testing
