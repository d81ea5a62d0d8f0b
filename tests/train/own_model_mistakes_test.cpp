// Wrong uses of a custom model: each ends in a message that names the caller's mistake.
#include "examples/model/gate.h"
#include "tests/layers/harness.h"
#include "tests/train/train_fixture.h"
#include "train/check/check.h"

namespace ringtrain::testing {
namespace {

class OwnModelMistakes : public SplitTextTest {
 protected:
  /// Trains one step with a layer after the first block. Its parameters are those of the gate.
  void train_with(const std::function<std::unique_ptr<InsertedLayer>(const LayerContext&)>& make,
                  const std::vector<std::string>& settings = {}, const std::string& output = "run") {
    TrainOptions options;
    options.model = transformer_with("wrong", [make](const ModelSpec& spec) {
      const Shape matrix{spec.hidden_size, spec.hidden_size};
      LayerInsertion layer;
      layer.parameters = {{.name = "model.gate.weight", .shape = matrix, .init_stddev = 0.02},
                          {.name = "model.gate_up.weight", .shape = matrix, .init_stddev = 0.02}};
      layer.make = make;
      return std::vector{layer};
    });
    options.config = tiny(data, joined({"training.steps=1", "training.global_batch_size=6"}, settings));
    options.output = at(output);
    run_with(options);
  }
};

/// A gate that omits a part of its backward.
class ForgetfulGate : public Gate {
 public:
  using Gate::Gate;
  void backward(Stream&, const DeviceBatch&, const TensorView&) override {}
};

/// Calls a product with matrices of other shapes than its own.
class WrongShapes : public Gate {
 public:
  explicit WrongShapes(const LayerContext& context)
      : Gate(context),
        narrow_(context.allocator.make(Tag::activations, "narrow", context.shape.dtype,
                                       {Activations::max_batch_tokens(context.shape), 3})),
        layer_(context.parameters, {.weight = context.ids[0]}) {}
  void forward(Stream& stream, const DeviceBatch&, const TensorView& x, bool) override {
    layer_.forward(stream, narrow_.view().prefix({x.dim(0), 3}), x);
  }

 private:
  Tensor narrow_;
  Linear layer_;
};

/// Reads the head's weights, which are not those of its bucket.
class Trespasser : public Gate {
 public:
  explicit Trespasser(const LayerContext& context)
      : Gate(context),
        parameters_(context.parameters),
        others_(static_cast<int>(parameters_.table().all().size()) - 1) {}
  void forward(Stream&, const DeviceBatch&, const TensorView&, bool) override { parameters_.weight(others_); }

 private:
  ParameterStore& parameters_;
  int others_;
};

/// Makes a tensor in a step.
class Hoarder : public Gate {
 public:
  explicit Hoarder(const LayerContext& context) : Gate(context), allocator_(context.allocator) {}
  void forward(Stream& stream, const DeviceBatch& batch, const TensorView& x, bool training) override {
    const Tensor scratch = allocator_.make(Tag::workspace, "scratch", x.dtype, x.shape);
    Gate::forward(stream, batch, x, training);
  }

 private:
  Allocator& allocator_;
};

template <class Layer>
std::unique_ptr<InsertedLayer> make_layer(const LayerContext& context) {
  return std::make_unique<Layer>(context);
}

TEST_F(OwnModelMistakes, AForgottenGradientIsNamed) {
  for (const char* shard : {"optimizer", "gradients", "weights"}) {
    expect_error(ExitCode::usage, "backward wrote no gradient of model.gate.weight", [&] {
      train_with(make_layer<ForgetfulGate>, {"mesh.data=2", "mesh.sequence=2", std::string("training.shard=") + shard},
                 shard);
    });
  }
}

TEST_F(OwnModelMistakes, AWrongShapeIsNamedWithTheRightOne) {
  expect_error_holding(ExitCode::usage,
                       {"own_model_mistakes_test.cpp:", "w has the shape [16, 16], but must have [O = 3, I = 16]"},
                       [&] { train_with(make_layer<WrongShapes>); });
}

TEST_F(OwnModelMistakes, WeightsOfAnotherBucketAreNamed) {
  expect_error(ExitCode::usage, "lm_head.weight is read while its bucket 3 is not acquired", [&] {
    train_with(make_layer<Trespasser>, {"mesh.data=2", "training.shard=weights", "model.tie_word_embeddings=false"});
  });
}

TEST_F(OwnModelMistakes, ATensorThatIsMadeInAStepIsNoticed) {
  expect_error(ExitCode::usage, "a step of the model \"wrong\" made ",
               [&] { train_with(make_layer<Hoarder>, {"training.steps=3"}); });
}

TEST_F(OwnModelMistakes, ALayerThatIsNotMadeIsNamed) {
  expect_error(ExitCode::usage, "LayerInsertion::make returned null, for block 0",
               [&] { train_with([](const LayerContext&) { return std::unique_ptr<InsertedLayer>(); }); });
}

TEST_F(OwnModelMistakes, ALayerThatDoesNotWorkByTokenDoesNotGenerate) {
  class Silent : public Gate {
   public:
    using Gate::Gate;
    bool works_by_token() const override { return false; }
  };
  train_with(make_layer<Silent>);
  GenerationOptions options;
  options.model = transformer_with("wrong", [](const ModelSpec& spec) {
    auto layers = std::vector<LayerInsertion>(1);
    const Shape matrix{spec.hidden_size, spec.hidden_size};
    layers[0].parameters = {{.name = "model.gate.weight", .shape = matrix},
                            {.name = "model.gate_up.weight", .shape = matrix}};
    layers[0].make = make_layer<Silent>;
    return layers;
  });
  options.checkpoint = at("run");
  options.tokens = {1, 2};
  Launcher launcher;
  expect_error(ExitCode::usage, "works_by_token() of the program's layer after block 0 returns false",
               [&] { generate_from_checkpoint(options, launcher, [](std::string_view) {}); });
}

TEST_F(OwnModelMistakes, TheReferenceOfAnotherModelIsNotOffered) {
  CheckOptions options;
  options.train.model = gated_model();
  options.train.config = tiny(data, {"training.steps=1"});
  Launcher launcher;
  expect_error(ExitCode::usage, "the reference covers only the transformer",
               [&] { check_run(options, quiet, launcher); });
}

TEST_F(OwnModelMistakes, AdaptersOfABaseWithoutTheLayersAreRefused) {
  expect_error(ExitCode::usage, "lora.rank is 2, but a model with custom layers cannot have adapters", [&] {
    gated_model().table(tiny(data, {"lora.rank=2", "lora.targets=[q_proj]"}));
  });
}

TEST_F(OwnModelMistakes, WrongDefinitionsAreNamed) {
  const auto refused = [&](const std::function<void()>& body) { return error_of(ExitCode::usage, body); };
  EXPECT_TRUE(holds(refused([] { transformer_with("", {}); }), "no name"));
  EXPECT_TRUE(holds(
      refused([] { transformer_with("transformer", [](const ModelSpec&) { return std::vector<LayerInsertion>{}; }); }),
      "another name"));
  const auto table_with = [](const LayerInsertion& layer) {
    transformer_with("wrong", [layer](const ModelSpec&) { return std::vector{layer}; }).table(small_llama());
  };
  EXPECT_TRUE(holds(refused([&] { table_with({.behind = 3}); }), "follows block 3"));
  EXPECT_TRUE(holds(refused([&] { table_with({.parameters = {{.name = "model.norm.weight", .shape = {2}}}}); }),
                    "one of that name already"));
  EXPECT_TRUE(
      holds(refused([&] { table_with({.parameters = {{.name = "", .shape = {2}}}}); }), "which is not a valid name"));
  EXPECT_TRUE(holds(refused([] {
                      ModelDefinition half;
                      half.name = "half";
                      check_definition(half);
                    }),
                    "the model \"half\" does not have parameters"));
}

}  // namespace
}  // namespace ringtrain::testing
