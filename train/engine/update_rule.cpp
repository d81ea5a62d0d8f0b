#include "train/engine/update_rule.h"

#include "framework/config/config.h"
#include "framework/error.h"
#include "kernels/adamw.h"

namespace ringtrain {

namespace {

class AdamWRule final : public UpdateRule {
 public:
  explicit AdamWRule(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"first_moment", "second_moment"}; }
  void update(Stream& stream, std::span<const SliceUpdate> slices, const UpdateStep& step) override {
    views_.clear();
    for (const SliceUpdate& slice : slices) {
      views_.push_back({.w = slice.weights,
                        .m = slice.state[0],
                        .v = slice.state[1],
                        .g = slice.gradients,
                        .rounded = slice.rounded,
                        .weight_decay = slice.weight_decay});
    }
    adamw_update(stream, views_,
                 {.lr = step.lr,
                  .beta1 = config_.beta1,
                  .beta2 = config_.beta2,
                  .eps = config_.eps,
                  .step = step.step,
                  .gradient_scale = step.gradient_scale});
  }

 private:
  OptimizerConfig config_;
  std::vector<AdamWSlice> views_;  // of the last call: its memory is used again
};

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config) {
  switch (config.name) {
    case OptimizerName::adamw:
      return std::make_unique<AdamWRule>(config);
  }
  fail(ExitCode::internal, "optimizer.name holds a value that names no optimizer");
}

}  // namespace ringtrain
