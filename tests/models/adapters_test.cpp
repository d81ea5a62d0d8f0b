// Runs with lora on a Hugging Face folder: what they train, save, resume, and refuse; adapters as a PEFT folder and
// merged with their base.
#include <algorithm>
#include <fstream>

#include "framework/storage/safetensors.h"
#include "framework/storage/safetensors_writer.h"
#include "layers/model_parameters.h"
#include "tests/support/paths.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_manifest.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/adapters/peft_folder.h"
#include "train/models/export_model.h"
#include "train/models/model_source.h"
#include "train/run/run_folder.h"

namespace ringtrain::testing {
namespace {

using Values = std::map<std::string, std::vector<double>>;

/// Returns all parameters of a model's table.
Values weights_of(const ModelSource& source) {
  Values values;
  const WeightReader read = source.open_weights();
  const ParameterTable table = make_parameter_table(source.model);
  for (const Parameter& parameter : table.all()) {
    std::vector<double>& to = values[parameter.name];
    to.resize(parameter.shape.numel());
    read(parameter, 0, host_view(to.data(), {std::ssize(to)}));
  }
  return values;
}

bool is_adapter(const std::string& name) {
  return name.find(".lora_") != std::string::npos;
}

class Adapters : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    fs::copy(source_folder() + "/tests/models/folders/llama", base());
    data_ = write_tokens("text.h5", {.validation_documents = 20});
  }
  std::string base() const { return at("base"); }

  /// Returns a config of 12 steps of adapters of the base.
  Config config(const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> all{"training.steps=12", "training.global_batch_size=4", "checkpoint.interval=4",
                                 "optimizer.lr=0.02"};
    all.insert(all.end(), settings.begin(), settings.end());
    Config config = tiny(data_, all);
    const LoraConfig lora = config.model.lora;
    config.model = open_model(base()).model;
    config.model.lora = lora;
    return config;
  }
  static std::vector<std::string> lora(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"lora.rank=3", "lora.alpha=6", "lora.targets=[q_proj, v_proj, down_proj]"});
    return more;
  }
  double nll(const std::string& model) const { return nll(model, data_, 32, 8); }
  /// The same for the last 8 tokens of a file, or for 8 before each of several positions.
  static double nll(const std::string& model, const std::string& data, std::int64_t length = 64, int blocks = 1) {
    EvaluationOptions options;
    options.checkpoint = model;
    options.data = data;
    options.request = {
        .context_lengths = {length}, .target_tokens = 8, .target_blocks = blocks, .part = ScoredPart::whole};
    options.dtype = "float64";
    return evaluate_on_threads(options).results.at(0).nll.value;
  }

  std::string data_;
};

TEST_F(Adapters, AreAllThatIsTrainedAndSaved) {
  const Values before = weights_of(open_model(base()));
  TrainOptions options;
  options.config = config(lora({"training.trainable=[\"*norm*\"]"}));
  options.output = at("run");
  options.start.init_from = base();
  const Log log = [](const std::string&) {};
  ringtrain::Run prepared = prepare_run(options, log);
  std::map<std::int64_t, Values> frozen;  // by step
  prepared.before_forward = [&](RankState& state, std::int64_t step) {
    for (const ParameterSlice& slice : state.parameters.frozen_slices()) {
      const TensorView values = state.parameters.weights(slice);
      frozen[step][state.parameters.table()[slice.parameter].name].assign(values.as<double>(),
                                                                          values.as<double>() + values.numel());
    }
  };
  train(prepared, log);
  EXPECT_GT(frozen.at(1).size(), 5u);
  for (const auto& [name, values] : frozen.at(1)) {
    EXPECT_EQ(values, before.at(name)) << name;
    EXPECT_EQ(frozen.at(12).at(name), values) << name;
  }
  EXPECT_LT(losses("run").back(), losses("run").front());

  for (const auto& [name, values] : state(checkpoint("run", 12))) {
    EXPECT_TRUE(is_adapter(name) || name.find("norm") != std::string::npos) << name;
  }
  const Values after = weights_of(open_model(at("run")));
  EXPECT_GT(after.size(), before.size());
  for (const auto& [name, values] : before) {
    EXPECT_EQ(after.at(name) == values, name.find("norm") == std::string::npos) << name;
  }
  verify_checkpoints(at("run"), log, [](const Checkpoint&) {});
}

TEST_F(Adapters, GoOnToTheBit) {
  const StartRequest begin = from(base()), resume = resumed();
  run(config(lora()), "whole", begin);
  for (const std::string shard : {"optimizer", "weights"}) {
    const Config one = config(lora({"training.shard=" + shard}));
    run(one, shard, begin, 4);
    run(one, shard, resume);
    EXPECT_EQ(losses(shard), losses("whole"));
    expect_same_state(state(checkpoint(shard, 12)), state(checkpoint("whole", 12)), "", 0);
    const Config two = config(lora({"mesh.sequence=2", "training.shard=" + shard}));
    run(two, "ring-" + shard, begin);
    run(two, "cut-" + shard, begin, 4);
    run(two, "cut-" + shard, resume);
    EXPECT_EQ(losses("cut-" + shard), losses("ring-" + shard));
    expect_same_state(state(checkpoint("cut-" + shard, 12)), state(checkpoint("ring-" + shard, 12)), "", 0);
    EXPECT_LT(relative_difference(losses("ring-" + shard), losses("whole")), 1e-9);
  }
}

TEST_F(Adapters, NeedTheirVeryBase) {
  run(config(lora()), "run", from(base()), 4);
  const double before = nll(at("run"));
  const Config again = config(lora());
  fs::rename(base(), at("elsewhere"));
  const std::string missing = error_of(ExitCode::checkpoint, [&] { open_model(at("run")); });
  EXPECT_NE(missing.find("does not exist; restore it"), std::string::npos) << missing;
  EXPECT_EQ(error_of(ExitCode::checkpoint, [&] { run(again, "run", resumed()); }), missing);
  fs::copy(at("elsewhere"), base());
  EXPECT_EQ(nll(at("run")), before);

  std::fstream weights(base() + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-3, std::ios::end);
  weights.put('\1');
  weights.close();
  for (const auto& use :
       std::vector<std::function<void()>>{[&] { nll(at("run")); }, [&] { run(config(lora()), "run", resumed()); },
                                          [&] { run(config(lora()), "next", from(at("run"))); }}) {
    expect_error(ExitCode::checkpoint, "it was replaced or changed", use);
  }
}

TEST_F(Adapters, TakeTheirBaseFromWhereItIsNamed) {
  run(config(lora()), "run", from(base()), 4);
  const Config same = config(lora()), without = config({"training.steps=2"});
  fs::rename(base(), at("moved"));
  StartRequest request = resumed();
  request.init_from = source_folder() + "/tests/models/folders/llama_float64";
  expect_error(ExitCode::checkpoint, "the base of its adapters has the hash", [&] { run(same, "run", request, 8); });
  request.init_from = at("moved");
  EXPECT_EQ(run(same, "run", request, 8).code, ExitCode::done);
  EXPECT_EQ(open_model(at("run")).base->path, at("moved"));
  // A run without adapters continues with its own weights, and says so.
  run(without, "plain", from(at("moved")), 1);
  request.init_from = source_folder() + "/tests/models/folders/llama_float64";
  const Outcome outcome = run(without, "plain", request);
  EXPECT_NE(outcome.logged("--init-from " + request.init_from + " is ignored"), "");
  run(without, "whole", from(at("moved")));
  expect_same_bits("plain", "whole");
}

// Adapters are passed to other people, to whom a path in somebody's home means nothing.
TEST_F(Adapters, NameTheirBaseAsTheUserOrTheHubDoes) {
  const auto name_of = [&](const std::string& model) {
    fs::remove_all(at("exported"));
    export_model(open_model(model), {.output = at("exported")});
    return nlohmann::json::parse(content_of(at("exported/adapter_config.json")))["base_model_name_or_path"]
        .get<std::string>();
  };
  const std::string given = fs::relative(base()).string();
  run(config(lora()), "run", from(given), 4);
  EXPECT_EQ(name_of(at("run")), given);
  EXPECT_EQ(read_checkpoint_manifest(checkpoint("run", 4)).base->path, base());
  const std::string cached = at("hub/models--some-one--Llama-3/snapshots/0123abcd");
  fs::create_directories(fs::path(cached).parent_path());
  fs::copy(base(), cached);
  run(config(lora()), "of_hub", from(cached), 4);
  EXPECT_EQ(name_of(at("of_hub")), "some-one/Llama-3");
  fs::rename(at("exported"), at("peft"));  // it has no base next to it
  fs::create_directory(at("together"));
  fs::rename(at("peft"), at("together/peft"));
  fs::copy(base(), at("together/Llama-3"));
  run(config(lora()), "again", from(at("together/peft")), 4);
  EXPECT_EQ(name_of(at("again")), "some-one/Llama-3");
  EXPECT_EQ(name_of(at("together/peft")), "some-one/Llama-3");
  // For an earlier version's checkpoint, only the path is known.
  CheckpointManifest manifest = read_checkpoint_manifest(checkpoint("run", 4));
  manifest.base->name.reset();
  std::ofstream(checkpoint("run", 4) + "/manifest.json") << to_json(manifest);
  EXPECT_EQ(name_of(at("run")), base());
}

TEST_F(Adapters, InAFolderAreFilesThatNoOutputReplaces) {
  run(config(lora()), "run", from(base()), 4);
  export_model(open_model(at("run")), {.output = at("peft")});
  std::ofstream(at("peft/tokenizer.json")) << "{}";
  const std::vector<std::string> files = files_of_model(at("peft"));
  for (const std::string name : {"tokenizer.json", "adapter_config.json", "adapter_model.safetensors"}) {
    EXPECT_TRUE(std::ranges::find(files, at("peft/" + name)) != files.end()) << name;
  }
}

TEST_F(Adapters, InAFolderHaveTheirOwnTokenizerAndEnds) {
  run(config(lora()), "run", from(base()), 4);
  export_model(open_model(at("run")), {.output = at("peft")});
  std::ofstream(at("peft/tokenizer.json")) << "{}";
  std::ofstream(at("peft/generation_config.json")) << R"({"eos_token_id": 7})";
  nlohmann::json config = nlohmann::json::parse(content_of(base() + "/config.json"));
  config["attention_dropout"] = 0.1;  // opening the base logs that it has no effect
  std::ofstream(base() + "/config.json") << config;
  const ModelSource source = open_model(at("peft"));
  EXPECT_EQ(source.tokenizer, at("peft"));
  EXPECT_EQ(source.ends.ends.back(), 7);
  EXPECT_EQ(source.logs.size(), 1u);
}

TEST_F(Adapters, AreRefusedWhereTheyCannotBeMeant) {
  expect_error(ExitCode::usage, "--init-from", [&] { run(config(lora()), "alone"); });
  run(config(lora()), "run", from(base()), 4);
  Config other = config(lora());
  other.model.lora.alpha = 12;
  for (const StartRequest& start : {resumed(), from(at("run"))}) {
    expect_error(ExitCode::checkpoint, "lora.alpha was 6 and is now 12",
                 [&] { run(other, start.resume ? "run" : "other", start); });
  }
  for (const auto& [settings, key] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {lora({"training.trainable=[\"*norm*\"]"}), "training.trainable"},
           {{"lora.rank=2", "lora.alpha=6", "lora.targets=[q_proj, v_proj, down_proj]"}, "rank was 3 and is now 2"},
           {{"lora.rank=3", "lora.alpha=6", "lora.targets=[q_proj, v_proj]"}, "lora.targets"},
           {{}, "lora.rank was 3 and is now 0"}}) {
    expect_error(ExitCode::checkpoint, key, [&, &with = settings] { run(config(with), "run", resumed()); });
  }
}

TEST_F(Adapters, GoOnWithAnotherShardAndMesh) {
  run(config(lora()), "whole", from(base()));
  run(config(lora()), "parts", from(base()), 4);
  run(config(lora({"mesh.data=2", "training.shard=weights"})), "parts", resumed(), 8);
  run(config(lora({"mesh.sequence=3", "training.shard=gradients"})), "parts", resumed());
  EXPECT_LT(relative_difference(losses("parts"), losses("whole")), 1e-9);
  expect_same_state(state(checkpoint("parts", 12)), state(checkpoint("whole", 12)), "weights/", 1e-9);
}

TEST_F(Adapters, TakeAlongWhatWasTrainedWithThem) {
  const Config norms = config(lora({"training.trainable=[\"*norm*\"]"}));
  run(norms, "norms", from(base()), 1);
  expect_error(ExitCode::checkpoint, "layernorm.weight was trained in addition to the adapters",
               [&] { run(config(lora()), "none", from(at("norms"))); });
  EXPECT_EQ(run(norms, "same", from(at("norms")), 1).code, ExitCode::done);
}

TEST_F(Adapters, BecomeAPeftFolderAndComeBack) {
  const Config norms = config(lora({"training.trainable=[\"*norm*\"]"}));
  run(norms, "run", from(base()));
  const ModelSource trained = open_model(at("run"));
  export_model(trained, {.output = at("peft")});
  const ModelSource back = open_model(at("peft"));
  EXPECT_EQ(back.model.lora.rank, 3);
  EXPECT_EQ(back.model.lora.alpha, 6);
  const Values expected = weights_of(trained), found = weights_of(back);
  for (const auto& [name, values] : expected) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(found.at(name)[i], static_cast<double>(static_cast<float>(values[i]))) << name;
    }
  }
  EXPECT_NEAR(nll(at("peft")), nll(at("run")), 1e-6);
  export_model(back, {.output = at("again")});
  EXPECT_EQ(content_of(at("again/adapter_model.safetensors")), content_of(at("peft/adapter_model.safetensors")));

  // The base is also found next to the folder, and a run begins with the folder's weights.
  fs::create_directory(at("moved"));
  fs::rename(base(), at("moved/base"));
  fs::rename(at("peft"), at("moved/peft"));
  EXPECT_EQ(weights_of(open_model(at("moved/peft"))), found);
  fs::copy(at("moved/base"), base());
  run(norms, "next", from(at("moved/peft")), 1);
  EXPECT_LT(losses("next").front(), losses("run").front());
}

TEST_F(Adapters, AreAllocatedAsPlannedWithEachShard) {
  for (const std::string shard : {"optimizer", "gradients", "weights"}) {
    const Config one = config(lora({"mesh.sequence=2", "training.shard=" + shard, "training.recompute=full"}));
    run(one, shard, from(base()), 1);
    const auto peaks = metrics(shard).at(0).at("peak_bytes");
    for (const RankPlan& plan : plan_ranks(one, transformer_definition().table(one), training_purpose(one))) {
      for (const int rank : plan.ranks) {
        for (int tag = 0; tag < tag_count; ++tag) {
          EXPECT_EQ(peaks[rank].at(name_of(static_cast<Tag>(tag))).get<std::size_t>(), plan.peak[static_cast<Tag>(tag)])
              << shard << " " << name_of(static_cast<Tag>(tag));
        }
      }
    }
  }
}

TEST_F(Adapters, MergeWithTheirBaseRoundedOnce) {
  run(config(lora()), "run", from(base()));
  const ModelSource trained = open_model(at("run"));
  const Values parts = weights_of(trained);
  export_model(merged(trained), {.output = at("merged")});
  const ModelSource whole = open_model(at("merged"));
  EXPECT_FALSE(whole.model.lora.on());
  const Values found = weights_of(whole);
  int adapted = 0;
  for (const auto& [name, values] : found) {
    const std::string stem = name.substr(0, name.size() - std::string(".weight").size());
    std::vector<double> expected = parts.at(name);
    if (parts.contains(stem + ".lora_A.weight")) {
      ++adapted;
      const std::vector<double>&a = parts.at(stem + ".lora_A.weight"), &b = parts.at(stem + ".lora_B.weight");
      const std::int64_t in = std::ssize(a) / 3;
      for (std::int64_t i = 0; i < std::ssize(expected); ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < 3; ++k) sum += b[i / in * 3 + k] * a[k * in + i % in];
        expected[i] += 2 * sum;
      }
    }
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(expected[i])) << name;
  }
  EXPECT_EQ(adapted, 3 * 2);
  EXPECT_NEAR(nll(at("merged")), nll(at("run")), 1e-6);
  error_of(ExitCode::usage, [&] { merged(whole); });

  run(config(), "full", from(at("run")), 1);  // without lora: a run of the sum
  run(config(), "sum", from(at("merged")), 1);
  EXPECT_LT(relative_difference(losses("full"), losses("sum")), 1e-6);
}

TEST_F(Adapters, AreNoPeftFolderOfAnotherModel) {
  Config scaled = config(lora({"training.seq_len=64"}));
  scaled.model.rope_scaling.type = RopeType::yarn;
  scaled.model.rope_scaling.factor = 4;
  scaled.model.rope_scaling.original_max_position_embeddings = 128;
  run(scaled, "run", from(base()));
  const ModelSource trained = open_model(at("run"));
  const std::string error = error_of(ExitCode::usage, [&] { export_model(trained, {.output = at("peft")}); });
  for (const std::string& part : {at("run"), base(), std::string("model.rope_scaling.type is yarn, the base's none"),
                                  std::string("factor is 4, the base's 1"), std::string("--merge")}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
  EXPECT_FALSE(fs::exists(at("peft")));
  export_model(merged(trained), {.output = at("merged")});
  // The results of PEFT 0.21.2 on transformers 5.24 in float64 for these adapters of the base with yarn in its
  // config.json (peft_test.py compares others with it).
  const auto expected = nlohmann::json::parse(content_of(base() + "/expected.json"));
  const std::string document = write_document("document.h5", 48, expected["tokens"]);
  const double of_run = 4.592430547536;
  EXPECT_NEAR(nll(at("run"), document), of_run, 1e-6);
  EXPECT_NEAR(nll(at("merged"), document), of_run, 1e-6);
}

TEST_F(Adapters, LoseWhatChangesOnlyTheirModel) {
  const ModelSource plain = open_model(base());
  const auto lost = [&](const std::function<void(ModelConfig&)>& change) {
    ModelSource source = plain;
    source.base = std::make_shared<const ModelSource>(plain);
    source.model.lora.rank = 2;
    change(source.model);
    std::string keys;
    for (const ConfigDifference& difference : lost_in_peft_folder(source)) keys += difference.key + " ";
    return keys;
  };
  EXPECT_EQ(lost([](ModelConfig&) {}), "");
  EXPECT_EQ(lost([](ModelConfig& model) { model.max_position_embeddings = 4096; }), "");
  EXPECT_EQ(lost([](ModelConfig& model) { model.initializer_range = 0.5; }), "");
  EXPECT_EQ(lost([](ModelConfig& model) { model.layer_types = {LayerType::full_attention}; }), "");  // no window at all
  EXPECT_EQ(lost([](ModelConfig& model) { model.query_pre_attn_scalar = 8; }), "");                  // as head_dim
  EXPECT_EQ(lost([](ModelConfig& model) { model.rope_theta = 20000; }), "model.rope_theta ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.rms_norm_eps = 1e-6; }), "model.rms_norm_eps ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.sliding_window = 16; }), "model.sliding_window ");
  EXPECT_EQ(lost([](ModelConfig& model) {
              model.sliding_window = 16;
              model.layer_types = {LayerType::sliding_attention, LayerType::full_attention};
            }),
            "model.sliding_window model.layer_types ");
  EXPECT_EQ(lost([](ModelConfig& model) {
              model.layer_positions = {LayerPositions::rope, LayerPositions::none};
            }),
            "model.layer_positions ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.attention_softcap = 50; }), "model.attention_softcap ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.final_softcap = 30; }), "model.final_softcap ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.query_pre_attn_scalar = 24; }), "model.query_pre_attn_scalar ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.embedding_multiplier = 12; }), "model.embedding_multiplier ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.residual_multiplier = 0.5; }), "model.residual_multiplier ");
  EXPECT_EQ(lost([](ModelConfig& model) { model.logits_scaling = 8; }), "model.logits_scaling ");
}

TEST_F(Adapters, ChangeAnyKindOfBase) {
  run(config(), "whole", {}, 1);
  const std::string kept = at("run/base/step-00000001");  // the run keeps a base that is a checkpoint there
  for (const auto& [path, named] : std::vector<std::pair<std::string, std::string>>{
           {base(), base()}, {at("whole"), kept}, {checkpoint("whole", 1), kept}}) {
    Config other = config(lora());
    const LoraConfig adapters = other.model.lora;
    other.model = open_model(path).model;
    other.model.lora = adapters;
    other.model.rope_theta *= 2;
    run(other, "run", from(path), 1);
    expect_error(ExitCode::usage, "its base " + named + ": model.rope_theta is",
                 [&] { export_model(open_model(at("run")), {at("peft")}); });
    fs::remove_all(at("run"));
  }
}

TEST_F(Adapters, AreInOnlySomeLayers) {
  const std::string names = R"(["layers.1.self_attn.q_proj", "mlp.up_proj"])";
  Config some = config(lora());
  some.model.lora.targets = {"layers.1.self_attn.q_proj", "mlp.up_proj"};
  run(some, "run", from(base()), 4);
  for (const auto& [name, values] : weights_of(open_model(at("run")))) {
    const bool adapted =
        name.find("mlp.up_proj") != std::string::npos || name.find("1.self_attn.q_proj") != std::string::npos;
    EXPECT_TRUE(!is_adapter(name) || adapted) << name;
  }
  export_model(open_model(at("run")), {.output = at("peft")});
  EXPECT_NEAR(nll(at("peft")), nll(at("run")), 1e-6);
  auto text = nlohmann::json::parse(content_of(at("peft/adapter_config.json")));
  EXPECT_EQ(text["target_modules"], nlohmann::json::parse(names));
  const Values expected = weights_of(open_model(at("peft")));
  text["target_modules"] = R"(.*(layers\.1\.self_attn\.q|mlp\.up)_proj)";
  std::ofstream(at("peft/adapter_config.json")) << text.dump();
  const ModelSource by_pattern = open_model(at("peft"));
  EXPECT_EQ(weights_of(by_pattern), expected);
  EXPECT_EQ(by_pattern.model.lora.targets, (std::vector<std::string>{"model.layers.1.self_attn.q_proj", "up_proj"}));
  export_model(by_pattern, {.output = at("again")});
  EXPECT_EQ(weights_of(open_model(at("again"))), expected);
  text["target_modules"] = R"(.*mlp\.up_proj)";  // the folder has an adapter that this does not include
  std::ofstream(at("peft/adapter_config.json")) << text.dump();
  expect_error(ExitCode::checkpoint, "1.self_attn.q_proj.lora_A.weight", [&] { open_model(at("peft")); });
  expect_error(ExitCode::usage, "lora.targets: layers.9.mlp.up_proj is not one of the projections", [&] {
    some.model.lora.targets = {"layers.9.mlp.up_proj"};
    run(some, "none", from(base()), 1);
  });
}

// As PEFT 0.21.2 saves them: modules_to_save are copies, which a tied base does not tie.
TEST_F(Adapters, UntieABaseWhoseTwoMatricesTheyHold) {
  fs::remove_all(base());
  fs::copy(source_folder() + "/tests/models/folders/llama_tied", base());
  run(config(lora()), "run", from(base()), 2);
  export_model(open_model(at("run")), {.output = at("peft")});
  const StoredTensors stored = read_safetensors_of_folder(at("peft"), "adapter_model.safetensors");
  StoredTensorReader reader(stored);
  std::map<std::string, std::vector<float>> tensors;
  std::vector<StoredTensor> entries;
  for (const auto& [name, tensor] : stored.tensors) {
    tensors[name].resize(static_cast<std::size_t>(tensor.elements()));
    reader.read(tensor, 0, tensor.elements(), tensors[name].data());
    entries.push_back({name, StoredType::float32, "", tensor.shape});
  }
  const ModelConfig model = open_model(base()).model;
  const auto elements = static_cast<std::size_t>(model.vocab_size * model.hidden_size);
  const auto write = [&](const std::vector<std::string>& modules) {
    auto all = entries;
    for (const std::string& module : modules) {
      const std::string name = "base_model.model." + module + ".weight";
      for (std::size_t i = 0; i < elements; ++i)
        tensors[name].push_back(static_cast<float>(i % 7 * module.size()) / 64);
      all.push_back({name, StoredType::float32, "", {model.vocab_size, model.hidden_size}});
    }
    fs::remove(at("peft/adapter_model.safetensors"));
    SafetensorsWriter file(at("peft/adapter_model.safetensors"), all);
    for (const StoredTensor& tensor : file.tensors()) {
      file.append(tensors[tensor.name].data(), tensors[tensor.name].size() * sizeof(float));
    }
    file.finish();
    auto text = nlohmann::json::parse(content_of(at("peft/adapter_config.json")));
    text["modules_to_save"] = modules;
    std::ofstream(at("peft/adapter_config.json")) << text.dump();
  };
  write({"lm_head"});
  expect_error(ExitCode::checkpoint,
               "modules_to_save has lm_head without model.embed_tokens, which the base ties to it",
               [&] { open_model(at("peft")); });
  tensors.erase("base_model.model.lm_head.weight");
  write({"model.embed_tokens", "lm_head"});
  const ModelSource source = open_model(at("peft"));
  EXPECT_FALSE(source.model.tie_word_embeddings);
  const Values found = weights_of(source);
  EXPECT_EQ(found.at("lm_head.weight")[6], 6 * 7 / 64.0);
  EXPECT_EQ(found.at("model.embed_tokens.weight")[6], 6 * 18 / 64.0);
  export_model(source, {.output = at("again")});
  EXPECT_EQ(weights_of(open_model(at("again"))), found);
  export_model(merged(open_model(at("peft"))), {.output = at("merged")});
  EXPECT_NEAR(nll(at("merged")), nll(at("peft")), 1e-6);
}

TEST_F(Adapters, OfOtherKindsAreRefusedByName) {
  run(config(lora()), "run", from(base()), 1);
  export_model(open_model(at("run")), {.output = at("peft")});
  const auto text = nlohmann::json::parse(content_of(at("peft/adapter_config.json")));
  const auto refused = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json changed = text;
    changed[key] = value;
    std::ofstream(at("peft/adapter_config.json")) << changed.dump();
    expect_error(ExitCode::checkpoint, key, [&] { open_model(at("peft")); });
  };
  refused("use_dora", true);
  refused("peft_type", "IA3");
  refused("bias", "all");
  refused("r", 0);
  refused("lora_alpha", -1);
  refused("rank_pattern", {{"q_proj", 4}});
  refused("alpha_pattern", {{"q_proj", 4}});
  refused("target_modules", ".*");
  refused("target_modules", {"c_attn"});
  refused("init_lora_weights", "pissa");
  refused("base_model_name_or_path", "someone/model");
}

TEST_F(Adapters, AreNoBaseOfAdapters) {
  run(config(lora()), "run", from(base()), 4);
  export_model(open_model(at("run")), {.output = at("peft")});
  const auto text = nlohmann::json::parse(content_of(at("peft/adapter_config.json")));
  const auto write = [&](const std::string& name, const std::string& base) {
    nlohmann::json changed = text;
    changed["base_model_name_or_path"] = base;
    fs::create_directories(at(name));
    fs::copy(at("peft/adapter_model.safetensors"), at(name), fs::copy_options::skip_existing);
    std::ofstream(at(name + "/adapter_config.json")) << changed.dump();
  };
  const auto refused = [&](const std::string& model, const std::vector<std::string>& parts) {
    for (const auto& open : std::vector<std::function<void()>>{[&] { open_model(model); },
                                                               [&] { model_reader([](const std::string&) {})(model); },
                                                               [&] { run(config(lora()), "next", from(model)); }}) {
      const std::string error = error_of(ExitCode::checkpoint, open);
      for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error;
    }
  };
  for (const std::string& path : {at("peft"), at("run")}) {
    write("one", path);
    refused(at("one"), {at("one/adapter_config.json"), path + ": also contains adapters"});
  }
  if (HasFailure()) return;
  // Each of these refers to itself, and ended in a stack overflow.
  write("adapters/base", "someone/base");
  refused(at("adapters/base"),
          {at("adapters/base/adapter_config.json"), "\"someone/base\"", "folder of these adapters"});
  write("itself", at("itself"));
  refused(at("itself"), {at("itself/adapter_config.json"), "folder of these adapters"});
  fs::create_symlink(at("itself"), at("link"));
  write("itself", at("link"));
  refused(at("itself"), {at("link"), "folder of these adapters"});
  write("one", at("other"));
  write("other", at("one"));
  refused(at("one"), {at("one/adapter_config.json"), at("other") + ": also contains adapters"});
  const std::string newest = checkpoint("run", 4);
  for (const std::string& path : {newest, at("run"), at("one")}) {
    CheckpointManifest manifest = read_checkpoint_manifest(newest);
    manifest.base->path = path;
    std::ofstream(newest + "/manifest.json") << to_json(manifest);
    refused(at("run"), {newest + ": the base of these adapters", path + ": also contains adapters"});
    expect_error(ExitCode::checkpoint, "also contains adapters", [&] { run(config(lora()), "run", resumed()); });
  }
  // For anything that is not a model, the message says which adapters named it.
  for (const std::string& name : {std::string(), std::string("."), std::string("/dev/zero"), at("one") + '\0' + "x"}) {
    write("nothing", name);
    refused(at("nothing"), {at("nothing/adapter_config.json"), ": "});
  }
}

}  // namespace
}  // namespace ringtrain::testing
