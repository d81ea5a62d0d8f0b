// A GGUF file as a folder: the numbers of transformers (make_gguf.py), every weight to the bit, the tokenizer's ids,
// and what becomes of files that somebody has changed. By the program where a user meets it.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "data/token_file_writer.h"
#include "data/tokenizer/tokenizer.h"
#include "extras/gguf/gguf_model.h"
#include "framework/threads.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launch.h"
#include "tests/extras/gguf/gguf_metadata.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_manifest.h"
#include "train/evaluation/evaluator.h"
#include "train/models/export_model.h"
#include "train/models/load_weights.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string tiny_model() {
  return source_folder() + "/tests/extras/gguf/model/model.gguf";
}

class GgufModel : public TrainTest {
 protected:
  /// Returns the nll at each context length of the model's golden numbers.
  std::vector<double> nll(const ModelSource& source, const json& expected, std::int64_t ring) {
    const std::vector<std::int32_t> tokens = expected["tokens"];
    if (!path_exists(at("tokens.h5"))) {
      TokenFilePlan plan;
      plan.vocab_size = expected["vocab_size"];
      plan.tokens = std::ssize(tokens);
      plan.documents = plan.first_validation_document = 1;
      TokenFileWriter writer(at("tokens.h5"), plan);
      writer.append({tokens.data(), tokens.size() - 1});
      writer.end_document();
      writer.finish();
    }
    const auto file = TokenFile::open(at("tokens.h5"));
    Config config;
    config.model = source.model;
    config.training.dtype = DType::float64;
    config.mesh.sequence = ring;
    const EvaluationRequest request{expected["context_lengths"], expected["target_tokens"], 1};
    const EvaluationTargets targets = choose_targets(*file, request);
    const RankPurpose purpose{.training = false, .evaluation_lengths = request.context_lengths};
    const ParameterTable table = make_parameter_table(config.model);
    std::vector<double> values;
    launch_threads({static_cast<int>(ring), 600}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState state(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
      load_weights(state, source);
      const auto results = evaluate_targets(state, *file, request, targets, nullptr, nullptr).value();
      if (world.rank() != 0) return;
      for (const LengthResult& result : results) values.push_back(result.nll.value);
    });
    return values;
  }
  ChildResult convert(const std::string& file, const std::string& output) const {
    return run_child("gguf", {"--input", file, "--output", output}, folder);
  }
  static std::vector<double> read_all(WeightSource& weights, const Parameter& parameter) {
    std::vector<double> values(parameter.shape.numel());
    weights.read(parameter, 0, host_view(values.data(), {parameter.shape.numel()}));
    return values;
  }
};

TEST_F(GgufModel, ComputesWhatTransformersDoes) {
  const json expected = json::parse(content_of(source_folder() + "/tests/extras/gguf/model/expected.json"));
  const std::vector<double> theirs = expected["nll"];
  for (const std::int64_t ring : {1, 2, 3}) {
    EXPECT_LT(relative_difference(nll(open_gguf_model(GgufFile::open(tiny_model())), expected, ring), theirs), 1e-9)
        << ring << " ranks";
  }
  ASSERT_EQ(convert(tiny_model(), "out").code, 0);
  EXPECT_LT(relative_difference(nll(open_model(at("out")), expected, 1), theirs), 1e-6);  // rounded to float32
}

TEST_F(GgufModel, TheFolderHoldsEveryWeightRoundedOnce) {
  ASSERT_EQ(convert(tiny_model(), "out").code, 0);
  const ModelSource from = open_gguf_model(GgufFile::open(tiny_model())), to = open_model(at("out"));
  const auto exact = from.open_weights(), written = to.open_weights();
  const ParameterTable table = make_parameter_table(to.model);
  for (const Parameter& parameter : table.all()) {
    const std::vector<double> weights = read_all(*exact, parameter), theirs = read_all(*written, parameter);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_EQ(static_cast<double>(static_cast<float>(weights[i])), theirs[i]) << parameter.name << " " << i;
    }
    // A slice that begins and ends within a row and within a block.
    std::vector<float> slice(weights.size() - 10);
    exact->read(parameter, 5, host_view(slice.data(), {std::ssize(slice)}));
    EXPECT_TRUE(std::equal(slice.begin(), slice.end(), theirs.begin() + 5)) << parameter.name;
  }
  EXPECT_EQ(from.end_tokens, to.end_tokens);
  EXPECT_EQ(from.context_length, to.context_length);
}

TEST_F(GgufModel, NothingElseReadsTheFile) {
  const std::string told = "ringtrain gguf --input " + tiny_model() + " --output FOLDER";
  const std::vector<std::pair<std::string, std::vector<std::string>>> commands{
      {"export", {"--checkpoint", tiny_model(), "--output", "out"}},
      {"generate", {"--checkpoint", tiny_model(), "--tokens", "1", "--max-new-tokens", "1"}},
      {"prepare", {"--input", folder, "--tokenizer", tiny_model(), "--output", "tokens.h5"}}};
  for (const auto& [program, arguments] : commands) {
    const ChildResult result = run_child(program, arguments, folder);
    EXPECT_EQ(result.code, program == "prepare" ? 3 : 4) << result.err;
    EXPECT_NE(result.err.find(told), std::string::npos) << result.err;
  }
}

/// A model whose tokenizer is a few pieces, by SentencePiece's rules.
class GgufPieces : public GgufModel {
 protected:
  void SetUp() override {
    GgufModel::SetUp();
    fs::create_directory(at("texts"));
    for (int i = 0; i < 3; ++i) {
      std::ofstream text(at("texts/") + std::to_string(i));
      for (int k = 0; k < 400; ++k) text << (k % 7 == 3 ? "ab ab " : k % 5 == 2 ? "bab " : "a ");
    }
    std::ofstream(at("run.yaml")) << "model: {from: out}\n"
                                     "data: {train: pieces.h5}\n"
                                     "training: {seq_len: 16, global_batch_size: 2, steps: 1, dtype: float64}\n";
  }
  void write(const std::vector<float>& scores) const {
    GgufMetadata metadata;
    metadata.put("tokenizer.ggml.model", "llama");
    metadata.put("tokenizer.ggml.tokens", {"<unk>", "</s>", "\u2581", "a", "b", "\u2581a", "ab"});
    metadata.put_numbers("tokenizer.ggml.scores", 6, scores);
    metadata.put_numbers("tokenizer.ggml.token_type", 5, std::vector<std::int32_t>{2, 3, 1, 1, 1, 1, 1});
    metadata.put("tokenizer.ggml.eos_token_id", 1U);
    metadata.put("tokenizer.chat_template", "{{ messages }}");
    metadata.write_into(tiny_model(), at("model.gguf"));
  }
};

TEST_F(GgufPieces, GoAlongAsATokenizerJson) {
  write({0, 0, -9, -9, -9, -2, -1});
  const ChildResult result = convert("model.gguf", "out");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_NE(result.out.find("carried along: chat_template.jinja, generation_config.json, tokenizer.json, "
                            "tokenizer_config.json\n"),
            std::string::npos)
      << result.out;
  EXPECT_EQ(json::parse(content_of(at("out/tokenizer_config.json"))),
            json({{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"clean_up_tokenization_spaces", false},
                  {"eos_token", "</s>"},
                  {"unk_token", "<unk>"}}));
  EXPECT_EQ(content_of(at("out/chat_template.jinja")), "{{ messages }}");
  const auto tokenizer = load_tokenizer(at("out"));
  // "ab" (-1) is merged before "\u2581a" (-2); what no piece stands for is unknown.
  EXPECT_EQ(tokenizer->encode("ab a b?"), (std::vector<std::int32_t>{2, 6, 5, 2, 4, 0}));
  EXPECT_EQ(tokenizer->end_of_document(), 1);
  const ChildResult prepared =
      run_child("prepare", {"--input", "texts", "--tokenizer", "out", "--output", "pieces.h5"}, folder);
  EXPECT_EQ(prepared.code, 0) << prepared.err;
  const ChildResult trained =
      run_child("train", {"--config", "run.yaml", "--init-from", "out", "--output", "run"}, folder);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_checkpoint_manifest(checkpoint("run", 1)).tokenizer_hash, tokenizer->identity());
}

TEST_F(GgufPieces, ThatNoTokenizerJsonHoldsStayBehindAndItIsSaid) {
  write({0, 0, -9, -9, -9, -1, -1});
  const ChildResult result = convert("model.gguf", "out");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("gguf: the tokenizer does not go along: model.gguf: the pieces 5 and 6 have one score"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.out.find("carried along: generation_config.json\n"), std::string::npos) << result.out;
  EXPECT_FALSE(fs::exists(at("out/tokenizer.json")));
}

TEST_F(GgufModel, AnIdThatIsNoTokenIsNotWritten) {
  for (const std::int64_t id : {std::int64_t{48}, std::int64_t{-1}, std::int64_t{4294967301}, INT64_MAX}) {
    GgufMetadata metadata;
    metadata.put_number("tokenizer.ggml.bos_token_id", id);
    metadata.put_number("tokenizer.ggml.eos_token_id", id);
    metadata.write_into(tiny_model(), at("bad.gguf"));
    fs::remove_all(at("out"));
    const ChildResult result = convert("bad.gguf", "out");
    EXPECT_EQ(result.code, 0) << result.err;
    for (const char* role : {"bos", "eos"}) {
      const std::string told =
          fmt::format("bad.gguf: tokenizer.ggml.{}_token_id: {} is no token of this model", role, id);
      EXPECT_NE(result.err.find(told), std::string::npos) << result.err;
      EXPECT_EQ(json::parse(content_of(at("out/config.json")))[fmt::format("{}_token_id", role)], nullptr);
    }
  }
}

TEST_F(GgufModel, ItsTokenTableIsAVocabulary) {
  std::string file = content_of(tiny_model());
  const std::string name = "token_embd.weight";
  const std::size_t rows = file.find(name) + name.size() + sizeof(std::uint32_t) + sizeof(std::uint64_t);
  const std::uint64_t one = 1;
  std::memcpy(file.data() + rows, &one, sizeof one);
  std::ofstream(at("one.gguf"), std::ios::binary) << file;
  const std::string sentence = error_of(ExitCode::checkpoint, [&] { open_gguf_model(GgufFile::open(at("one.gguf"))); });
  EXPECT_NE(sentence.find("token_embd.weight has 1 rows, but a vocabulary has 2 to"), std::string::npos) << sentence;
}

TEST_F(GgufModel, ItsSizesAreThoseThatAConfigMayHave) {
  for (const char* key : {"block_count", "feed_forward_length"}) {
    std::string file = content_of(tiny_model());
    const std::string name = std::string("llama.") + key;
    const std::size_t value = file.find(name) + name.size() + sizeof(std::uint32_t);  // behind its type
    const std::uint32_t many = 160'000'000;  // layers: 4 GB of their descriptions
    std::memcpy(file.data() + value, &many, sizeof many);
    std::ofstream(at("many.gguf"), std::ios::binary) << file;
    const std::string sentence =
        error_of(ExitCode::checkpoint, [&] { open_gguf_model(GgufFile::open(at("many.gguf"))); });
    EXPECT_NE(sentence.find("many.gguf"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("160000000"), std::string::npos) << sentence;
  }
}

TEST_F(GgufModel, ATensorThatIsMissingOrMoreIsNamed) {
  for (const auto& [name, part] : {std::pair{"blk.0.attn_q.weight", "has no tensor blk.0.attn_q.weight"},
                                   std::pair{"output.weight", "has xutput.weight, which a model of these keys"}}) {
    std::string file = content_of(tiny_model());
    file[file.find(std::string(8, '\0').replace(0, 1, 1, static_cast<char>(std::strlen(name))) + name) + 8] = 'x';
    std::ofstream(at("other.gguf"), std::ios::binary) << file;
    const std::string sentence =
        error_of(ExitCode::checkpoint, [&] { open_gguf_model(GgufFile::open(at("other.gguf"))); });
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  }
}

TEST_F(GgufModel, AFileThatSomebodyWritesToIsNotUsed) {
  const std::string file = at("model.gguf");
  fs::copy(tiny_model(), file);
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const ModelSource source = open_gguf_model(GgufFile::open(file));
  const ParameterTable table = make_parameter_table(source.model);
  const auto begun = source.open_weights();
  read_all(*begun, table.all()[1]);
  std::ofstream(file, std::ios::app) << "more";
  for (const std::string& sentence :
       {error_of(ExitCode::checkpoint, [&] { read_all(*begun, table.all()[1]); }),
        error_of(ExitCode::checkpoint, [&] { source.open_weights(); }),
        error_of(ExitCode::checkpoint, [&] { export_model(source, {.output = at("out")}); })}) {
    EXPECT_NE(sentence.find("model.gguf"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("was changed while it was being read"), std::string::npos) << sentence;
  }
  EXPECT_FALSE(fs::exists(at("out")));
}

}  // namespace
}  // namespace ringtrain::testing
