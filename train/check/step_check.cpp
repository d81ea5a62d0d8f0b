#include "train/check/step_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "framework/dump/dump_comparison.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"
#include "reference/adamw.h"
#include "train/check/reference_inputs.h"
#include "train/check/rounding.h"

namespace ringtrain {

namespace {

using reference::Tensors;
using reference::Vector;

double distance(double a, double b) {
  if (a == b) return 0;
  return std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : std::numeric_limits<double>::infinity();
}

/// One tensor during its comparison. Its bound is known only after all sequences. Until then, this keeps each element
/// with a larger distance than all before it: one of these is the first beyond the bound, whatever the bound is.
class Compared {
 public:
  void element(std::int64_t index, double run, double exact) {
    size_ = std::max(size_, std::abs(exact));
    ++elements_;
    if (std::isfinite(run) && std::isfinite(exact)) {
      along_ += (run - exact) * exact;
      squares_ += exact * exact;
    }
    const double apart = distance(run, exact);
    if (apart <= largest_) return;
    largest_ = apart;
    records_.push_back({index, run, exact});
  }
  void elements(std::int64_t first, const Vector& run, const Vector& exact) {
    ensure(run.size() == exact.size(), "a dumped tensor has the reference's shape");
    for (std::size_t i = 0; i < run.size(); ++i) element(first + static_cast<std::int64_t>(i), run[i], exact[i]);
  }
  void allow(double bound) { bound_ = std::max(bound_, bound); }
  /// Adds the change that rounding caused in some of the tensor's elements, in one of the tries, to the change that it
  /// may cause in their mean.
  void allow_in_mean(std::size_t attempt, double enlargement, const Vector& rounded, const Vector& exact) {
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double change = (rounded[i] - exact[i]) * exact[i] / enlargement;
      changes_[attempt] += change;
      variance_ += change * change / static_cast<double>(Rounding::tries);
    }
  }

  struct Record {
    std::int64_t index = 0;
    double run = 0, exact = 0;
  };
  const Record* first_departure() const {
    const auto beyond = [&](const Record& record) { return distance(record.run, record.exact) > bound_; };
    const auto found = std::ranges::find_if(records_, beyond);
    return found == records_.end() ? nullptr : &*found;
  }
  bool is_zero() const { return size_ == 0; }
  CheckedTensor result(const std::string& name) const {
    CheckedTensor tensor;
    tensor.name = name;
    tensor.bound = bound_;
    tensor.largest = largest_;
    tensor.size = size_;
    if (variance_ > 0 && squares_ > 0 && std::isfinite(squares_) && elements_ > Rounding::few_elements) {
      constexpr double of_reference = 0x1p-50;  // the reference's numbers are rounded, too
      double change = std::sqrt(variance_);
      for (const double of_try : changes_) change = std::max(change, std::abs(of_try));
      tensor.mean = along_ / squares_;
      tensor.mean_bound = std::max(of_reference, Rounding::safety_of_a_number * change / squares_);
    }
    if (const Record* const first = first_departure()) {
      tensor.difference = {"", -1, first->run, first->exact};
    } else if (tensor.mean && !(std::abs(*tensor.mean) <= *tensor.mean_bound)) {
      tensor.difference = {"", -1, 1 + *tensor.mean, 1, /*of_mean=*/true};
    }
    return tensor;
  }

 private:
  double bound_ = 0, largest_ = 0, size_ = 0;
  std::int64_t elements_ = 0;
  double along_ = 0, squares_ = 0;                 // sums of (run - exact) exact, and of exact^2
  std::array<double, Rounding::tries> changes_{};  // of along_, in each try
  double variance_ = 0;                            // of along_, if elements are changed independently
  std::vector<Record> records_;
};

/// Returns the weights with which the model computes, given the optimizer's.
Vector as_computed(Vector weights, DType dtype) {
  if (dtype == DType::bfloat16) std::ranges::transform(weights, weights.begin(), rounded_to_bfloat16);
  return weights;
}

class StepCheck {
 public:
  StepCheck(const Run& run, const DumpReader& dump, const StepResult& result)
      : run_(run), dump_(dump), result_(result), spec_(model_spec(run.at(dump.index().step).model)) {
    for (const Parameter& parameter : run.table.all()) {
      weights_[parameter.name] = as_computed(read(parameter.name), dtype());
    }
    adapters_ = std::make_unique<ReferenceAdapters>(run.config.model.lora.scale(), run.table, weights_);
    for (int i = 0; i < Rounding::tries; ++i) roundings_.emplace_back(dtype(), static_cast<std::uint64_t>(i + 1));
    rounded_gradients_.resize(roundings_.size());
    rounded_losses_.resize(roundings_.size());
  }

  std::vector<CheckedTensor> run(const std::function<void(std::int64_t done)>& progress) {
    const std::int64_t sequences = dump_.index().sequences;
    for (std::int64_t i = 0; i < sequences; ++i) {
      for (const double weight : reference_row(run_, dump_.index().step, i).weights) denominator_ += weight;
    }
    for (std::int64_t i = 0; i < sequences; ++i) {
      compare_sequence(i);
      if (progress) progress(i + 1);
    }
    compare_loss();
    compare_gradients();
    // A step whose loss or norm is NaN or infinite changes no weight.
    if (std::isfinite(result_.loss) && std::isfinite(result_.grad_norm)) compare_update();
    return in_order();
  }

 private:
  DType dtype() const { return run_.config.training.dtype; }
  const DumpedTensor& tensor(const std::string& name) const {
    const DumpedTensor* const found = dump_.find(name);
    if (found == nullptr) fail(ExitCode::data, "{}: does not contain {}", dump_.folder(), name);
    return *found;
  }
  Vector read(const std::string& name) const { return dump_.read(tensor(name)); }
  /// Returns the number of tokens in the step.
  std::int64_t tokens() const { return dump_.index().sequences * dump_.index().sequence_length; }
  /// Returns the bound of a sum of n products that is kept in double under every dtype.
  static double sum_in_double(std::int64_t n, double sum) {
    return Rounding::safety * 0x1p-53 * std::sqrt(static_cast<double>(n)) * std::abs(sum);
  }
  /// Makes the changes that rounding caused in a tensor, in one of the tries, its bounds.
  void allow(const std::string& name, const Vector& rounded, const Vector& exact, std::size_t attempt) {
    const Rounding& rounding = roundings_[attempt];
    compared_[name].allow_in_mean(attempt, rounding.enlargement(), rounded, exact);
    double largest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) largest = std::max(largest, distance(rounded[i], exact[i]));
    compared_[name].allow(Rounding::safety_of(std::ssize(exact)) * largest / rounding.enlargement());
  }

  void compare_sequence(std::int64_t i) {
    const reference::Row row = reference_row(run_, dump_.index().step, i);
    compare_input(i, row);
    Tensors exact;
    {
      const reference::Model model(spec_, weights_);
      loss_sum_ += model.forward(row, exact);
      model.backward(row, denominator_, exact, gradients_);
    }
    std::erase_if(exact, [&](const auto& tensor) { return is_below_backward(tensor.first); });
    for (std::size_t r = 0; r < roundings_.size(); ++r) {
      Tensors rounded;
      const reference::Model model(spec_, weights_, std::ref(roundings_[r]));
      rounded_losses_[r] += model.forward(row, rounded);
      model.backward(row, denominator_, rounded, rounded_gradients_[r]);
      for (const auto& [name, values] : exact) allow(name, rounded.at(name), values, r);
      const Vector &a = rounded.at("nll"), &b = exact.at("nll");
      for (std::size_t t = 0; t < a.size(); ++t) {
        const double apart = row.weights[t] * (a[t] - b[t]) / denominator_ / roundings_[r].enlargement();
        loss_variance_ += apart * apart / static_cast<double>(roundings_.size());
      }
    }
    for (const auto& [name, values] : exact) compare_tokens(i, name, values);
    const Vector& nll = exact.at("nll");
    compared_["nll"].allow(sum_in_double(spec_.vocab_size, *std::ranges::max_element(nll)));
  }

  /// Returns whether a tensor is a gradient of a layer with nothing to train in it or below it: no run computes it.
  bool is_below_backward(const std::string& name) const {
    const int lowest = run_.table.lowest_trained();  // the embedding is 0, layer i is i + 1
    constexpr std::string_view of_layer = "grad.layer.";
    if (name == "grad.embedding") return lowest > 0;
    return name.starts_with(of_layer) && std::stoi(name.substr(of_layer.size())) + 1 < lowest;
  }

  void compare_tokens(std::int64_t i, const std::string& name, const Vector& exact) {
    const DumpedTensor& dumped = tensor(name);
    const std::int64_t S = dump_.index().sequence_length;
    compared_[name].elements(i * S * dumped.shape.numel(), dump_.read_tokens(dumped, i * S, (i + 1) * S), exact);
  }

  void compare_input(std::int64_t i, const reference::Row& row) {
    const auto compare = [&]<class T>(const char* name, const std::vector<T>& exact) {
      if (!exact.empty()) compare_tokens(i, name, Vector(exact.begin(), exact.end()));
    };
    compare("input.tokens", row.tokens);
    compare("input.labels", row.labels);
    compare("input.positions", row.positions);
    compare("input.weights", row.weights);
    compare("input.documents", row.documents);
  }

  void compare_loss() {
    Compared& loss = compared_["loss"];
    loss.element(0, result_.loss, loss_sum_ / denominator_);
    loss.allow(Rounding::safety_of_a_number * std::sqrt(loss_variance_));
    loss.allow(sum_in_double(tokens(), loss_sum_ / denominator_));
    for (std::size_t r = 0; r < roundings_.size(); ++r) {
      const double apart = (rounded_losses_[r] - loss_sum_) / denominator_ / roundings_[r].enlargement();
      loss.allow(Rounding::safety_of_a_number * std::abs(apart));
    }
  }

  void compare_gradients() {
    gradients_ = adapters_->of_trained(std::move(gradients_));
    for (Tensors& rounded : rounded_gradients_) rounded = adapters_->of_trained(std::move(rounded));
    double squares = 0;
    for (const auto& [name, exact] : gradients_)
      for (const double g : exact) squares += g * g;
    const double exact_norm = std::sqrt(squares);
    Compared& norm = compared_["gradient norm"];
    norm.element(0, result_.grad_norm, exact_norm);
    norm.allow(sum_in_double(run_.table.count(Part::trainable), exact_norm));
    for (std::size_t r = 0; r < roundings_.size(); ++r) {
      for (auto& [name, rounded] : rounded_gradients_[r]) {
        roundings_[r](rounded, tokens(), reference::Summing::in_blocks);  // each is a sum over all tokens
        for (std::int64_t i = 0; i < roundings_of_a_sum(); ++i) {
          Rounding(DType::bfloat16, r + 1 + roundings_.size() * i)(rounded, 0, reference::Summing::in_blocks);
        }
      }
      double rounded_squares = 0, along = 0;  // along: the variance of g dg
      for (const auto& [name, exact] : gradients_) {
        const Vector& rounded = rounded_gradients_[r].at(name);
        allow("grad." + name, rounded, exact, r);
        for (std::size_t i = 0; i < exact.size(); ++i) {
          const double apart = (rounded[i] - exact[i]) / roundings_[r].enlargement();
          rounded_squares += (exact[i] + apart) * (exact[i] + apart);
          along += exact[i] * exact[i] * apart * apart;
        }
      }
      norm.allow(Rounding::safety_of_a_number * std::abs(std::sqrt(rounded_squares) - exact_norm));
      if (exact_norm > 0) norm.allow(Rounding::safety_of_a_number * std::sqrt(along) / exact_norm);
    }
    for (const auto& [name, exact] : gradients_) compared_["grad." + name].elements(0, read("grad." + name), exact);
    for (const Parameter& parameter : run_.table.all()) {
      const auto gradient = compared_.find("grad." + parameter.name);
      if (gradient == compared_.end() || !gradient->second.is_zero() || must_be_zero(parameter)) continue;
      untested_.insert(gradient->first);
    }
  }

  /// Returns how often the run rounds its sums of gradients to bfloat16: after each micro-batch, or never.
  std::int64_t roundings_of_a_sum() const {
    return run_.config.optimizer.gradients == DType::bfloat16 ? run_.micro_batches(dump_.index().step) : 0;
  }

  /// Returns whether a gradient is zero in theory: that of A whose B is all zeros, and those of queries and keys if
  /// each query sees only one key.
  bool must_be_zero(const Parameter& parameter) const {
    if (parameter.adapter) {
      const auto [a, b] = lora_names(adapted_weight(parameter.name));
      if (parameter.name == a && std::ranges::all_of(read(b), [](double x) { return x == 0; })) return true;
    }
    const bool one_key = dump_.index().sequence_length == 1 || run_.config.model.sliding_window == 1;
    if (!one_key || spec_.attention_sinks) return false;
    return std::ranges::any_of(std::array{".q_proj.", ".k_proj.", ".q_norm.", ".k_norm."},
                               [&](const char* part) { return parameter.name.find(part) != std::string::npos; });
  }

  /// Starts from the run's own gradient, which has been compared: Adam divides by its size, so the smallest error of a
  /// gradient near zero would be as large as the step.
  void compare_update() {
    const OptimizerConfig& optimizer = run_.config.optimizer;
    const std::int64_t step = dump_.index().step;
    const double rate = reference::learning_rate(run_.config, step);
    compared_["learning rate"].element(0, result_.lr, rate);
    compared_["learning rate"].allow(0x1p-50 * rate);
    const double most = optimizer.max_grad_norm, clip = most > 0 ? std::min(1.0, most / result_.grad_norm) : 1;
    const double u = precision_of(accumulator(dtype())).sums;
    for (const Parameter& parameter : run_.table.all()) {
      if (parameter.part == Part::frozen) continue;
      reference::Moments p{read(parameter.name), read("first_moment." + parameter.name),
                           read("second_moment." + parameter.name)};
      const Vector before = p.weights, found = read("updated." + parameter.name);
      reference::adamw(p, read("grad." + parameter.name), optimizer, rate, clip, result_.updates,
                       /*decays=*/parameter.shape.rank() == 2);
      Compared& updated = compared_["updated." + parameter.name];
      updated.elements(0, found, p.weights);
      double largest = 0, moved = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        largest = std::max(largest, std::abs(p.weights[i]));
        moved = std::max(moved, std::abs(p.weights[i] - before[i]));
      }
      updated.allow(u * (4 * largest + 16 * moved));
      // The other ranks have received exactly what the owner has, rounded to the model's dtype.
      compared_["gathered." + parameter.name].elements(0, read("gathered." + parameter.name),
                                                       as_computed(found, dtype()));
    }
  }

  /// Returns the results, with locations and ranks.
  std::vector<CheckedTensor> in_order() const {
    std::vector<CheckedTensor> tensors;
    const auto add = [&](const std::string& name) { tensors.push_back(compared_.at(name).result(name)); };
    std::string last_gradient;
    for (const Parameter& parameter : run_.table.all()) {
      if (parameter.part == Part::trainable) last_gradient = "grad." + parameter.name;
    }
    for (const DumpedTensor& tensor : dump_.index().tensors) {
      const auto found = compared_.find(tensor.name);
      if (found == compared_.end()) continue;
      add(tensor.name);
      tensors.back().untested = untested_.contains(tensor.name);
      if (const Compared::Record* const first = found->second.first_departure()) {
        tensors.back().difference->location = location_of(dump_.index(), tensor, first->index);
        tensors.back().difference->rank = dump_.rank_of(tensor, first->index);
      }
      if (tensor.name == "nll") add("loss");
      if (tensor.name == last_gradient) {
        add("gradient norm");
        if (compared_.contains("learning rate")) add("learning rate");
      }
    }
    ensure(tensors.size() == compared_.size(), "all that was compared is reported");
    return tensors;
  }

  const Run& run_;
  const DumpReader& dump_;
  const StepResult& result_;
  const ModelSpec spec_;
  Tensors weights_, gradients_;
  std::unique_ptr<ReferenceAdapters> adapters_;
  std::vector<Rounding> roundings_;
  std::vector<Tensors> rounded_gradients_;  // by rounding, as are the next
  std::vector<double> rounded_losses_;
  double denominator_ = 0, loss_sum_ = 0, loss_variance_ = 0;
  std::map<std::string, Compared> compared_;
  std::set<std::string> untested_;
};

}  // namespace

std::vector<CheckedTensor> check_step(const Run& run, const DumpReader& dump, const StepResult& result,
                                      const std::function<void(std::int64_t done)>& progress) {
  return StepCheck(run, dump, result).run(progress);
}

}  // namespace ringtrain
