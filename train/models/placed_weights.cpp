#include "train/models/placed_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/error.h"
#include "framework/storage/plain_text.h"

namespace ringtrain {

namespace {

constexpr std::int64_t band_elements = std::int64_t{2} << 20;

const StoredTensor& tensor_at(const PlacedModel& model, const TensorLocation& location) {
  const StoredTensor* const tensor = model.stored.find(location.name);
  if (!tensor) {
    fail(ExitCode::checkpoint, "{}: has no tensor {}, which this model needs{}", model.source, location.name,
         location.name == "lm_head.weight" ? " (its config says tie_word_embeddings: false)" : "");
  }
  if (tensor->shape != location.shape) {
    fail(ExitCode::checkpoint, "{}: {} is {}, but this model's is {}", model.stored.files[tensor->file], location.name,
         shape_text(tensor->shape), shape_text(location.shape));
  }
  if (tensor->type == StoredType::unsupported) {
    fail(ExitCode::checkpoint, "{}: {} is of type {}, which cannot be read; use the model's folder in F32, F16 or BF16",
         model.stored.files[tensor->file], location.name, plain_text(tensor->type_name));
  }
  return *tensor;
}

/// Throws unless the head that a file holds in addition to a tied embedding is the same matrix.
void require_equal_head(const PlacedModel& model, const StoredTensor& embedding, const StoredTensor& head) {
  const std::string& path = model.stored.files[head.file];
  const auto refuse = [&](const std::string& how) {
    fail(ExitCode::checkpoint,
         "{}: {} {} {}, though the config says tie_word_embeddings: true; set it to false there to have two matrices",
         path, head.name, how, embedding.name);
  };
  if (head.shape != embedding.shape) refuse("has another shape than");
  constexpr std::int64_t slice = std::int64_t{1} << 16;
  std::vector<double> first(slice), second(slice);
  StoredTensorReader embedding_reader(model.stored), head_reader(model.stored);
  for (std::int64_t at = 0; at < head.elements(); at += slice) {
    const std::int64_t count = std::min(slice, head.elements() - at);
    embedding_reader.read(embedding, at, count, first.data());
    head_reader.read(head, at, count, second.data());
    if (!std::equal(first.begin(), first.begin() + count, second.begin())) refuse("differs from");
  }
}

class PlacedWeights {
 public:
  explicit PlacedWeights(std::shared_ptr<const PlacedModel> model)
      : model_(std::move(model)), reader_(model_->stored) {}

  void read(const Parameter& parameter, std::int64_t begin, const TensorView& to) {
    const TensorLocation location = model_->locations(parameter);
    const StoredTensor& tensor = tensor_at(*model_, location);
    dispatch_float(to.dtype, [&]<class Real>() {
      if (location.transposed) {
        read_transposed(tensor, location, parameter.shape[0], begin, to.numel(), to.as<Real>());
      } else {
        reader_.read(tensor, location.first + begin, to.numel(), to.as<Real>());
      }
    });
  }

 private:
  /// Rows of a parameter that is stored transposed: the most recently read columns of the tensor. A double can
  /// represent every number that a file can hold.
  struct Band {
    std::string name;
    std::int64_t begin = 0, end = 0;  // columns of the tensor
    std::vector<double> values;       // [end - begin, in]
  };

  /// Fills the band with columns from `begin` on, as many as fit, but only columns before `end`.
  void fill_band(const StoredTensor& tensor, std::int64_t begin, std::int64_t end) {
    if (band_.name == tensor.name && band_.begin <= begin && begin < band_.end) return;
    const std::int64_t in = tensor.shape[0], out = tensor.shape[1];
    const std::int64_t columns = std::min(end - begin, std::max<std::int64_t>(1, band_elements / in));
    band_ = {tensor.name, begin, begin + columns, std::vector<double>(static_cast<std::size_t>(columns * in))};
    std::vector<double> row(columns);
    for (std::int64_t i = 0; i < in; ++i) {
      reader_.read(tensor, i * out + begin, columns, row.data());
      for (std::int64_t o = 0; o < columns; ++o) band_.values[o * in + i] = row[o];
    }
  }

  template <class Real>
  void read_transposed(const StoredTensor& tensor, const TensorLocation& location, std::int64_t rows,
                       std::int64_t begin, std::int64_t count, Real* to) {
    const std::int64_t in = tensor.shape[0];
    while (count > 0) {
      fill_band(tensor, location.first + begin / in, location.first + rows);
      const std::int64_t from = begin - (band_.begin - location.first) * in;
      const std::int64_t part = std::min(count, std::ssize(band_.values) - from);
      const auto first = band_.values.begin() + from;
      to = std::transform(first, first + part, to, [](double value) { return static_cast<Real>(value); });
      begin += part;
      count -= part;
    }
  }

  std::shared_ptr<const PlacedModel> model_;
  StoredTensorReader reader_;
  Band band_;
};

}  // namespace

void check_placed_model(const PlacedModel& model, const ParameterTable& table) {
  std::set<std::string, std::less<>> used;
  for (const Parameter& parameter : table.all()) used.insert(tensor_at(model, model.locations(parameter)).name);
  for (const auto& [name, tensor] : model.stored.tensors) {
    if (used.contains(name) || model.is_constant(name)) continue;
    if (name != model.tied_head) {
      fail(ExitCode::checkpoint, "{}: has {}, which a model of this config does not have, so it would be ignored",
           model.stored.files[tensor.file], plain_text(name));
    }
    require_equal_head(model, tensor_at(model, model.locations(table[0])), tensor);
  }
}

WeightReader read_placed_weights(std::shared_ptr<const PlacedModel> model) {
  return std::bind_front(&PlacedWeights::read, std::make_shared<PlacedWeights>(std::move(model)));
}

}  // namespace ringtrain
