#include "train/models/adapters/adapted_model.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/plain_text.h"
#include "framework/text/utf8.h"
#include "layers/model_parameters.h"
#include "train/models/adapters/kept_base.h"

namespace ringtrain {

namespace {

/// Reads the sums of weights and their adapters' products.
class MergedWeights {
 public:
  MergedWeights(WeightReader read, const ModelConfig& model)
      : read_(std::move(read)), scale_(model.lora.scale()), table_(make_parameter_table(model)) {
    for (const Parameter& parameter : table_.all()) by_name_[parameter.name] = &parameter;
  }

  void read(const Parameter& parameter, std::int64_t begin, const TensorView& to) {
    const LoraNames names = lora_names(parameter.name);
    const auto a = by_name_.find(names.a);
    if (a == by_name_.end()) return read_(parameter, begin, to);
    if (parameter.name != adapted_) {
      a_ = whole(*a->second);
      b_ = whole(*by_name_.at(names.b));
      adapted_ = parameter.name;
    }
    sums_.resize(to.numel());
    read_(parameter, begin, host_view(sums_.data(), {to.numel()}));
    const std::int64_t columns = parameter.shape[1], rank = a->second->shape[0];
    for (std::int64_t i = 0; i < to.numel(); ++i) {
      const std::int64_t row = (begin + i) / columns, column = (begin + i) % columns;
      double product = 0;
      for (std::int64_t k = 0; k < rank; ++k) product += b_[row * rank + k] * a_[k * columns + column];
      sums_[i] += scale_ * product;
    }
    dispatch_float(to.dtype, [&]<class Real>() {
      for (std::int64_t i = 0; i < to.numel(); ++i) to.as<Real>()[i] = static_cast<Real>(sums_[i]);
    });
  }

 private:
  std::vector<double> whole(const Parameter& parameter) {
    std::vector<double> values(parameter.shape.numel());
    read_(parameter, 0, host_view(values.data(), {std::ssize(values)}));
    return values;
  }

  WeightReader read_;
  double scale_;
  ParameterTable table_;
  std::map<std::string, const Parameter*> by_name_;
  std::string adapted_;        // the weight whose adapter was read last
  std::vector<double> a_, b_;  // [r, I], [O, r]
  std::vector<double> sums_;
};

}  // namespace

std::string base_name(const ModelSource& source) {
  const ModelSource& base = source.base ? *source.base : source;
  if (!base.name.empty()) return base.name;
  // The hub's cache: models--ORGANIZATION--MODEL/snapshots/REVISION.
  constexpr std::string_view prefix = "models--";
  const std::string revisions = parent_directory(whole_path(base.path));
  std::string cached = file_name(parent_directory(revisions));
  if (file_name(revisions) != "snapshots" || !cached.starts_with(prefix)) return base.path;
  cached.erase(0, prefix.size());
  if (const std::size_t dashes = cached.find("--"); dashes != std::string::npos) cached.replace(dashes, 2, "/");
  return cached;
}

BaseModel base_of(const ModelSource& source) {
  const ModelSource& base = source.base ? *source.base : source;
  const std::string whole = whole_path(base.path);
  if (well_formed_prefix(whole) < whole.size()) {
    fail(ExitCode::usage,
         "{}: adapters name their base in a JSON file, which must be UTF-8, but this path is not UTF-8: rename it",
         whole);
  }
  return {.path = whole, .hash = base.hash_weights(), .bytes = base.weight_bytes, .name = base_name(source)};
}

ModelSource open_base(const BaseModel& base, const std::string& adapters_path) {
  // adapters_path is RUN/checkpoints/step-N.
  const std::string kept = kept_base_path(parent_directory(parent_directory(adapters_path)), base.path);
  const std::string path = path_exists(kept, ExitCode::checkpoint) ? kept : base.path;
  if (!path_exists(path, ExitCode::checkpoint)) {
    fail(ExitCode::checkpoint,
         "{}: the base of its adapters is the model {}, which does not exist; restore it, or, if it has moved, "
         "continue the run with: train --resume --output RUN --init-from BASE",
         adapters_path, plain_text(path));
  }
  ModelSource source = open_base_model(path, adapters_path);
  source.name = base.name.value_or("");
  const auto require_same = [&](const char* what, const auto& before, const auto& now) {
    if (before == now) return;
    fail(ExitCode::checkpoint,
         "{}: the base of its adapters is the model {} with {} {}, but the model there now has {}: it was replaced or "
         "changed; restore the original",
         adapters_path, plain_text(path), what, before, now);
  };
  if (base.bytes) require_same("weight bytes", *base.bytes, source.weight_bytes);
  require_same("hash", base.hash, source.hash_weights());
  return source;
}

ModelSource with_adapters(ModelSource base, ModelSource adapters, std::set<std::string> own_parameters) {
  ModelSource both = std::move(adapters);
  both.own_parameters = std::move(own_parameters);
  both.logs.insert(both.logs.end(), base.logs.begin(), base.logs.end());
  both.base = std::make_shared<const ModelSource>(std::move(base));
  both.open_weights = [base = both.base, adapters = both.open_weights, names = both.own_parameters]() -> WeightReader {
    return [from_base = base->open_weights(), from_adapters = adapters(), names](
               const Parameter& parameter, std::int64_t begin, const TensorView& to) {
      (names.contains(parameter.name) ? from_adapters : from_base)(parameter, begin, to);
    };
  };
  return both;
}

ModelSource merged(ModelSource source) {
  if (!source.model.lora.on()) {
    fail(ExitCode::usage, "{}: has no adapters to merge with a base; leave out --merge", source.path);
  }
  source.open_weights = [open = source.open_weights, model = source.model]() -> WeightReader {
    return std::bind_front(&MergedWeights::read, std::make_shared<MergedWeights>(open(), model));
  };
  source.model.lora = {};
  source.own_parameters.clear();
  return source;
}

}  // namespace ringtrain
