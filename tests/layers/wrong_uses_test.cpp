// Wrong uses of the transformer by another program: each ends in a message that names the call and its arguments. (For
// its layers: tests/kernels/wrong_uses_test.cpp; for layers after its blocks: own_model_mistakes_test.cpp.)
#include "parallel/store_context.h"
#include "tests/layers/harness.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

class WrongUsesOfTheTransformer : public ::testing::Test {
 protected:
  const ModelConfig config = small_llama();
  const Sequences sequences = random_sequences(config, 2, 9, false, 1);
};

TEST_F(WrongUsesOfTheTransformer, ABatchIsHeldAgainstTheModel) {
  on_ring(config, {}, sequences, [&](RankModel& rank) {
    cut(rank.batch, sequences, Layout::contiguous, 1, 0);
    std::vector<float> narrow(18);
    std::vector<double> few(9);
    EXPECT_EQ(error_of(ExitCode::usage,
                       [&] {
                         rank.model.evaluate(rank.batch, host_view(narrow.data(), {2, 9}));
                       }),
              "Transformer::evaluate: nll is [2, 9] of float32, but must be [B = 2, T = 9] of float64");
    EXPECT_EQ(error_of(ExitCode::usage, [&] { rank.model.evaluate(rank.batch, host_view(few.data(), {9})); }),
              "Transformer::evaluate: nll is [9] of float64, but must be [B = 2, T = 9] of float64");
    rank.batch.has_documents = true;
    rank.batch.document_starts.assign(2, {0});
    EXPECT_EQ(error_of(ExitCode::usage, [&] { rank.model.train_step(rank.batch, 1.0, true); }),
              "the batch has documents, but the model was made without ExecutionShape::documents");
  });
}

TEST_F(WrongUsesOfTheTransformer, TheStoreAndTheRingAreThoseOfTheModel) {
  launch_threads({.ranks = 1, .timeout_seconds = 60}, [&](Communicator& world) {
    ThreadPool pool(1);
    Allocator allocator(Device::cpu());
    ComputeDevice compute(allocator, pool, nullptr);
    Stream& stream = compute.stream();
    const ParameterTable table = describe_parameters(model_spec(config), {}).table;
    ParameterStore parameters(allocator, table, stream, {.dtype = DType::float64});
    ExecutionShape shape = shape_of({}, sequences, 0);
    const auto make = [&](const ModelConfig& of) {
      return make_transformer(model_spec(of), shape, allocator, parameters, stream, &world);
    };
    ModelConfig larger = config;
    ++larger.num_hidden_layers;
    const std::string other = error_of(ExitCode::usage, [&] { make(larger); });
    EXPECT_TRUE(
        other.starts_with(fmt::format("Transformer: the store's table has {} weights, but this model ", table.count())))
        << other;
    shape.ring_size = 3;
    EXPECT_EQ(error_of(ExitCode::usage, [&] { make(config); }),
              "Transformer: the ring has 3 ranks; the communicator has 1; only a plan needs none");
    shape.ring_size = 1;
    const auto model = make(config);
    Batch batch(allocator.host(), sequences.B, sequences.S, DType::float64);
    cut(batch, sequences, Layout::contiguous, 1, 0);
    EXPECT_EQ(error_of(ExitCode::usage, [&] { model->train_step(batch, 1.0, true); }),
              "Transformer::train_step: the store was made without StoreOptions::gradients");
  });
}

TEST_F(WrongUsesOfTheTransformer, ALayerMayKeepTheSpecAndTheShape) {
  struct Idle : InsertedLayer {
    void forward(Stream&, const DeviceBatch&, const TensorView&, bool) override {}
    void backward(Stream&, const DeviceBatch&, const TensorView&) override {}
  };
  on_ring(config, {}, sequences, [&](RankModel& rank) {
    ModelSpec spec = model_spec(config);
    ExecutionShape shape = shape_of({}, sequences, 0);
    std::optional<LayerContext> kept;
    const auto make = [&](const LayerContext& context) {
      kept.emplace(context);
      return std::make_unique<Idle>();
    };
    const auto model = make_transformer(spec, shape, rank.allocator, rank.parameters, rank.stream, &rank.sequence_group,
                                        {{.make = make}});
    spec = {};
    shape = {};
    EXPECT_EQ(kept->spec.hidden_size, config.hidden_size);
    EXPECT_EQ(kept->shape.max_sequences, sequences.B);
  });
}

}  // namespace
}  // namespace ringtrain::testing
