#include "train/models/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "framework/error.h"
#include "framework/output/output_folder.h"
#include "framework/profile/progress.h"
#include "framework/storage/safetensors_writer.h"
#include "framework/storage/strict_json.h"
#include "framework/system/signals.h"
#include "layers/model_parameters.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/models/adapters/peft_folder.h"
#include "train/models/hugging_face_config.h"
#include "train/models/hugging_face_names.h"

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t large_model = 50'000'000;  // parameters: writing them may take seconds
constexpr std::int64_t slice_elements = std::int64_t{1} << 20;

/// A tensor of the folder, and the parameters that it concatenates.
struct Export : TensorLocation {
  std::vector<const Parameter*> parts;

  std::int64_t elements() const { return element_count(shape); }
};

/// Returns the tensors of the folder; those of a whole model in their class's order.
std::vector<Export> tensors_of(const ModelSource& source, const ParameterTable& table) {
  const bool adapters = source.model.lora.on();
  const std::set<std::string> modules = adapters ? modules_to_save(source) : std::set<std::string>{};
  const TensorLocations locations = adapters ? TensorLocations(peft_location) : hugging_face_locations(source.model);
  std::vector<Export> tensors;
  for (const Parameter* parameter : in_class_order(source.model, table)) {
    if (adapters && !in_peft_folder(*parameter, modules)) continue;
    TensorLocation location = locations(*parameter);
    auto same = std::ranges::find(tensors, location.name, &Export::name);
    if (same == tensors.end()) same = tensors.insert(tensors.end(), {std::move(location), {}});
    same->parts.push_back(parameter);
  }
  return tensors;
}

/// Writes tensors one after another into a file that expects them in this order.
class TensorCopy {
 public:
  TensorCopy(WeightReader read, StoredType type, std::int64_t parameters) : read_(std::move(read)), type_(type) {
    if (parameters >= large_model) progress_ = std::make_unique<Progress>("export", parameters);
  }

  void copy(const Export& tensor, SafetensorsWriter& file) {
    if (tensor.transposed) {
      copy_transposed(tensor, file);
    } else {
      for (const Parameter* part : tensor.parts) copy_plain(tensor, *part, file);
    }
    done_ += tensor.elements();
    if (progress_) progress_->update(done_, "", static_cast<double>(done_), "parameters");
  }

 private:
  /// Appends the values in the file's type.
  void append(const Export& tensor, const std::vector<double>& values, SafetensorsWriter& file) {
    throw_if_signalled();
    const std::int64_t count = std::ssize(values);
    bytes_.resize(stored_bytes(type_, count));
    encode(type_, values.data(), count, bytes_.data());
    stored_.resize(values.size());
    decode(type_, bytes_.data(), count, stored_.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        fail(ExitCode::checkpoint, "{} holds {}: these weights are not those of a working model", tensor.name,
             values[i]);
      }
      if (!std::isfinite(stored_[i])) {
        fail(ExitCode::numeric, "{} holds {}, which {} cannot hold; choose another --dtype", tensor.name, values[i],
             safetensors_name(type_));
      }
    }
    file.append(bytes_.data(), bytes_.size());
  }

  void copy_plain(const Export& tensor, const Parameter& part, SafetensorsWriter& file) {
    const std::int64_t end = part.shape.numel();
    for (std::int64_t at = 0; at < end; at += slice_elements) {
      values_.resize(std::min(slice_elements, end - at));
      read_(part, at, host_view(values_.data(), {std::ssize(values_)}));
      append(tensor, values_, file);
    }
  }

  /// The tensor is [in, out], its parts [out of the part, in]: rows of the tensor consist of columns of the parts.
  void copy_transposed(const Export& tensor, SafetensorsWriter& file) {
    const std::int64_t in = tensor.shape[0], out = tensor.shape[1];
    const std::int64_t band = std::clamp<std::int64_t>(slice_elements / out, 1, in);
    for (std::int64_t first = 0; first < in; first += band) {
      const std::int64_t rows = std::min(band, in - first);
      values_.resize(rows * out);
      column_.resize(rows);
      std::int64_t o = 0;  // column of the tensor
      for (const Parameter* part : tensor.parts) {
        for (std::int64_t row = 0; row < part->shape[0]; ++row, ++o) {
          read_(*part, row * in + first, host_view(column_.data(), {rows}));
          for (std::int64_t i = 0; i < rows; ++i) values_[i * out + o] = column_[i];
        }
      }
      append(tensor, values_, file);
    }
  }

  WeightReader read_;
  StoredType type_;
  std::unique_ptr<Progress> progress_;
  std::int64_t done_ = 0;  // parameters
  std::vector<double> values_, column_, stored_;
  std::string bytes_;
};

void write_weights(const ModelSource& source, const ExportOptions& options, const OutputFolder& output,
                   ExportSummary& summary) {
  const std::string& folder = output.content();
  const ParameterTable table = make_parameter_table(source.model);
  const bool adapters = source.model.lora.on();
  const std::vector<Export> tensors = tensors_of(source, table);
  std::vector<std::int64_t> bytes;
  for (const Export& tensor : tensors) {
    bytes.push_back(stored_bytes(options.dtype, tensor.elements()));
    summary.parameters += tensor.elements();
    summary.bytes += bytes.back();
  }
  const auto shards = split_into_shards(bytes, adapters ? INT64_MAX : options.max_shard_bytes);
  std::int64_t largest = 0;
  for (const std::vector<std::size_t>& shard : shards) {
    std::int64_t size = 0;
    for (const std::size_t i : shard) size += bytes[i];
    largest = std::max(largest, size);
  }
  output.require_room(summary.bytes, largest);
  TensorCopy copy(source.open_weights(), options.dtype, summary.parameters);
  nlohmann::json index{{"metadata", {{"total_parameters", summary.parameters}, {"total_size", summary.bytes}}}};
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string& name = summary.files.emplace_back(
        adapters             ? adapter_weights_file
        : shards.size() == 1 ? "model.safetensors"
                             : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards.size()));
    std::vector<StoredTensor> entries;
    for (const std::size_t i : shards[shard]) {
      entries.push_back({tensors[i].name, options.dtype, "", tensors[i].shape});
      index["weight_map"][tensors[i].name] = name;
    }
    SafetensorsWriter file(folder + "/" + name, std::move(entries));
    for (const StoredTensor& stored : file.tensors()) {
      copy.copy(*std::ranges::find(tensors, stored.name, &Export::name), file);
    }
    file.finish();
  }
  if (shards.size() > 1) {
    // In the format of Python's json.dumps(indent=2, sort_keys=True).
    write_file(folder + "/model.safetensors.index.json", json_text(index, 2) + "\n", ExitCode::checkpoint);
  }
}

/// Throws Error(usage) if a PEFT folder would lose keys of a model.
void require_kept_keys(const ModelSource& source) {
  std::string keys;
  for (const ConfigDifference& lost : lost_in_peft_folder(source)) {
    keys += fmt::format("{}{} is {}, the base's {}", keys.empty() ? "" : "; ", lost.key, lost.after, lost.before);
  }
  if (keys.empty()) return;
  fail(ExitCode::usage,
       "{}: a PEFT folder would describe another model, because this run changed the config of its base {}: {}; export "
       "with --merge",
       source.path, source.base->path, keys);
}

}  // namespace

const char* torch_name(StoredType type) {
  return type == StoredType::float32 ? "float32" : type == StoredType::float16 ? "float16" : "bfloat16";
}

std::vector<std::vector<std::size_t>> split_into_shards(const std::vector<std::int64_t>& bytes, std::int64_t limit) {
  std::vector<std::vector<std::size_t>> shards;
  std::vector<std::size_t> current;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > limit) {  // comes before the file that is being filled
      shards.push_back({i});
      continue;
    }
    if (filled + bytes[i] > limit) {
      shards.push_back(std::exchange(current, {}));
      filled = 0;
    }
    current.push_back(i);
    filled += bytes[i];
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

void check_export(const std::string& source, const ExportOptions& options) {
  check_output_folder(options.output, ExitCode::usage);
  refuse_within_run(options.output, "--output");
  if (is_run_folder(source)) return;
  std::error_code error;
  for (fs::path at = fs::canonical(nearest_existing(parent_directory(options.output)), error);; at = at.parent_path()) {
    if (fs::equivalent(at, source, error)) {
      fail(ExitCode::usage, "{}: is inside {}, which this export reads; choose another --output", options.output,
           source);
    }
    if (!at.has_relative_path()) return;
  }
}

ExportSummary export_model(const ModelSource& source, const ExportOptions& options) {
  const bool adapters = source.model.lora.on();
  const std::string config = adapters
                                 ? write_adapter_config(source)
                                 : write_hugging_face_config(source.model, {.dtype = torch_name(options.dtype),
                                                                            .context_length = source.context_length,
                                                                            .ends = source.ends});
  ExportSummary summary;
  if (adapters) require_kept_keys(source);
  check_export(source.path, options);
  OutputFolder output(options.output, ExitCode::usage);
  summary.carried = carry_tokenizer(source.tokenizer, output.content(), source.ends, OwnGeneration::kept,
                                    ExitCode::checkpoint);  // first, because it may be refused
  write_weights(source, options, output, summary);
  write_file(output.content() + (adapters ? std::string("/") + adapter_config_file : "/config.json"), config,
             ExitCode::checkpoint);
  throw_if_signalled();
  output.publish();
  return summary;
}

}  // namespace ringtrain
