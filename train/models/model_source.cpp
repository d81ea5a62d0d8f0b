#include "train/models/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/tokenizer/tokenizer.h"
#include "data/vocabulary.h"
#include "framework/config/training_stages.h"
#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/hash.h"
#include "framework/storage/safetensors.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"
#include "train/checkpoint/state_files.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/adapters/peft_folder.h"
#include "train/models/carried_tokenizer.h"
#include "train/models/hugging_face_names.h"

namespace ringtrain {

namespace {

/// Adds the tokens that begin and end a text, from the ids in a file: only those in the model's vocabulary. Such files
/// often have ids of other vocabularies (defaults of a class), which matter only to whoever uses them. where: the file,
/// for messages.
void add_ends(ModelSource& source, const std::string& where, EndIds ids) {
  const Vocabulary vocabulary(source.model.vocab_size);
  const auto is_token = [&](std::int64_t id, const char* key) {
    if (!vocabulary.has(id)) source.unknown_ends.push_back(vocabulary.refusal(id, where + key));
    return vocabulary.has(id);
  };
  if (ids.begin && !is_token(*ids.begin, "bos_token_id")) ids.begin.reset();
  std::erase_if(ids.ends, [&](std::int64_t id) { return !is_token(id, "eos_token_id"); });
  source.ends.add(ids);
}

/// Returns a string that distinguishes these files from others: names, types, and offsets of their tensors, and some of
/// each file's bytes. (Hashing all bytes would take as long as reading them.)
std::string identity_of(const StoredTensors& stored) {
  constexpr std::int64_t sample = 65536;
  std::string text;
  for (const auto& [name, tensor] : stored.tensors) {
    text +=
        fmt::format("{} {} {} {} {}\n", name, tensor.type_name, shape_text(tensor.shape), tensor.file, tensor.offset);
  }
  for (std::size_t i = 0; i < stored.files.size(); ++i) {
    const File file = stored.open(i);
    const std::int64_t size = file.size(), count = std::min(size, sample);
    std::string bytes(static_cast<std::size_t>(count), '\0');
    file.read_at((size - count) / 2, bytes.data(), bytes.size());
    text += fmt::format("{} {}\n", size, hash_bytes(bytes));
  }
  return hash_bytes(text);
}

/// Adds what a folder's generation_config.json says, if it has one.
void add_generation_ends(ModelSource& source, const std::string& folder) {
  add_ends(source, folder + "/generation_config.json: ", read_generation_config(folder));
}

ModelSource open_hugging_face_folder(const std::string& folder) {
  ModelSource source;
  source.path = source.tokenizer = folder;
  check_carried_files(folder);  // before any other work
  HuggingFaceConfig config = read_hugging_face_config(folder);
  source.model = config.model;
  source.context_length = config.model.max_position_embeddings;
  add_ends(source, folder + "/config.json: ", config.ends);
  add_generation_ends(source, folder);
  source.logs = std::move(config.logs);
  if (std::string note = unread_shards(folder); !note.empty()) source.logs.push_back(std::move(note));
  PlacedModel placed;
  placed.stored = read_safetensors_folder(folder);
  const bool prefixed = placed.stored.find("transformer.wte.weight") != nullptr;
  placed.locations = hugging_face_locations(source.model, prefixed);
  placed.is_constant = is_constant_buffer;
  if (source.model.tie_word_embeddings) placed.tied_head = "lm_head.weight";
  const ParameterTable table = make_parameter_table(source.model);
  return with_weights(std::move(source), std::move(placed), table);
}

/// Opens a transformer, or adapters together with their base. If it must have all weights, it refuses adapters before
/// it reads anything of them except a checkpoint's own files, so bases that form a cycle end here.
ModelSource open_transformer(const std::string& path, bool must_be_whole) {
  const auto require_none = [&](bool are_adapters) {
    if (!must_be_whole || !are_adapters) return;
    fail(ExitCode::checkpoint,
         "{}: also contains adapters; name the model that has all weights, or merge these adapters and their base with "
         "`export --merge`",
         path);
  };
  if (is_peft_folder(path)) {
    require_none(true);
    check_carried_files(path);
    ModelSource source = open_peft_folder(path);
    if (holds_tokenizer(path)) source.tokenizer = path;  // otherwise it is the base's
    add_generation_ends(source, path);
    return source;
  }
  if (is_hugging_face_folder(path)) return open_hugging_face_folder(path);
  if (is_directory(path, ExitCode::checkpoint) && holds_safetensors(path)) {
    fail(ExitCode::checkpoint, "{}: has safetensors but no config.json, which says what model they are", path);
  }
  refuse_gguf_file(path, ExitCode::checkpoint);
  Checkpoint checkpoint = open_checkpoint(path);
  require_none(checkpoint.config.model.lora.on());
  return model_of(std::move(checkpoint));
}

}  // namespace

Config config_of(const ModelSource& source) {
  Config config;
  if (source.checkpoint) config = source.checkpoint->config;
  config.model = source.model;
  config.training.seq_len = source.context_length;
  return config;
}

std::optional<std::string> beyond_context(const ModelSource& source, std::int64_t length, const char* what) {
  if (length <= source.context_length || model_spec(source.model).positions != Positions::rope) return std::nullopt;
  return fmt::format(
      "warning: {} = {} is beyond the {} tokens that {} was made for, and its rotary positions are not scaled for "
      "that; set model.rope_scaling (type yarn, factor, original_max_position_embeddings) or model.rope_theta",
      what, length, source.context_length, source.path);
}

ModelSource with_weights(ModelSource source, PlacedModel placed, const ParameterTable& table) {
  placed.source = source.path;
  check_placed_model(placed, table);
  source.identity = identity_of(placed.stored);
  for (std::size_t i = 0; i < placed.stored.files.size(); ++i) source.weight_bytes += placed.stored.open(i).size();
  const auto model = std::make_shared<const PlacedModel>(std::move(placed));
  source.open_weights = [model] { return read_placed_weights(model); };
  source.hash_weights = [model] {
    std::string hashes;
    for (std::size_t i = 0; i < model->stored.files.size(); ++i) {
      hashes += hash_file(model->stored.open(i), nullptr) + "\n";
    }
    return hash_bytes(hashes);
  };
  return source;
}

std::int64_t context_length(const Config& config, int stage) {
  const ModelConfig model = config_of_stage(config, stage).model;
  std::int64_t longest = model_spec(model).positions == Positions::rope ? model.max_position_embeddings : 0;
  for (int i = 0; i <= stage; ++i) longest = std::max(longest, config_of_stage(config, i).training.seq_len);
  return longest;
}

ModelSource model_of(Checkpoint checkpoint) {
  ModelSource source;
  source.path = checkpoint.path;
  // The model is that of the last stage that the checkpoint reached.
  const TrainingConfig& training = checkpoint.config.training;
  const int reached = stage_of_step(training, checkpoint.manifest.step);
  source.model = config_of_stage(checkpoint.config, reached).model;
  source.context_length = context_length(checkpoint.config, reached);
  source.identity = to_json(checkpoint.manifest);
  // RUN/checkpoints/step-N
  const std::string tokenizer = ModelSource::tokenizer_folder(parent_directory(parent_directory(checkpoint.path)));
  if (is_directory(tokenizer, ExitCode::checkpoint)) {
    source.tokenizer = tokenizer;
    add_generation_ends(source, tokenizer);
  }
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    source.weight_bytes += file.name == config_file_name ? 0 : file.bytes;
  }
  source.open_weights = [checkpoint]() -> WeightReader {
    const auto files = std::make_shared<StateFiles>(checkpoint.path, checkpoint.manifest);
    return [files, dtype = accumulator(checkpoint.config.training.dtype)](const Parameter& parameter,
                                                                          std::int64_t begin, const TensorView& to) {
      files->read(state_kinds[0], parameter, dtype, begin, to);
    };
  };
  source.hash_weights = [files = checkpoint.manifest.files] {
    std::string hashes;
    for (const CheckpointFile& file : files) hashes += file.name == config_file_name ? "" : file.hash + "\n";
    return hash_bytes(hashes);
  };
  if (source.model.lora.on()) {
    if (!checkpoint.manifest.base) {
      fail(ExitCode::checkpoint, "{}: holds adapters, but its manifest names no base", checkpoint.path);
    }
    std::set<std::string> names;
    const ParameterTable table = transformer_definition().table(checkpoint.config);
    for (const Parameter& parameter : table.all()) {
      if (parameter.saved) names.insert(parameter.name);
    }
    source = with_adapters(open_base(*checkpoint.manifest.base, checkpoint.path), std::move(source), std::move(names));
  }
  source.checkpoint = std::move(checkpoint);
  return source;
}

ModelSource open_model(const std::string& path, const ModelDefinition& definition) {
  if (path.empty()) fail(ExitCode::usage, "the path of a checkpoint or a model is empty");
  if (!definition.is_transformer()) {
    if (path_exists(path, ExitCode::checkpoint) && (is_peft_folder(path) || is_hugging_face_folder(path))) {
      fail(ExitCode::checkpoint,
           "{}: has no weights of the model \"{}\" of this program, which are only in the checkpoints of its runs",
           path, definition.name);
    }
    return model_of(open_checkpoint(path, definition));
  }
  return open_transformer(path, /*must_be_whole=*/false);
}

ModelSource open_base_model(const std::string& path, const std::string& adapters_path) {
  try {
    return open_transformer(path, /*must_be_whole=*/true);
  } catch (const Error& error) {
    if (error.code() != ExitCode::checkpoint) throw;
    fail(ExitCode::checkpoint, "{}: the base of these adapters cannot be read: {}", adapters_path, error.what());
  }
}

bool has_only_sizes(const std::string& path) {
  return is_hugging_face_folder(path) && !is_peft_folder(path) && !holds_safetensors(path);
}

ModelReader model_reader(const Log& log) {
  return [log](const std::string& path) {
    const auto logged = [&](const auto& source) {
      for (const std::string& line : source.logs) log(line);
      return source.model;
    };
    return has_only_sizes(path) ? logged(read_hugging_face_config(path)) : logged(open_model(path));
  };
}

}  // namespace ringtrain
