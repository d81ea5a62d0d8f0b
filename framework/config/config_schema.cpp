#include "framework/config/config_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ranges>
#include <set>
#include <utility>

#include "framework/config/config.h"
#include "framework/config/training_stages.h"

namespace ringtrain {

namespace {

// Functions that make table entries. `get` returns a reference to the key's member in a Config that may be const.

template <class Get, class Read, class Write>
ConfigKey key_of(const char* path, Get get, const char* doc, const Read& read, const Write& write, std::string values,
                 bool required = false) {
  return {
      path,
      doc,
      required,
      [=](Config& config, const YamlValue& value, const ReportProblem& report) { read(value, get(config), report); },
      [=](const Config& config) -> std::string { return write(get(config)); },
      std::move(values)};
}

template <class Get>
ConfigKey integer(const char* path, Get get, IntegerRange range, const char* doc, bool required = false,
                  decltype(read_integer)* read_one = read_integer) {
  const auto read = [=](const YamlValue& value, std::int64_t& out, const ReportProblem& report) {
    read_one(value, range, out, report);
  };
  return key_of(
      path, get, doc, read, [](std::int64_t value) { return std::to_string(value); },
      fmt::format("{} to {}", range.low, range.high), required);
}
/// A key whose value is a number of tokens.
template <class Get>
ConfigKey tokens(const char* path, Get get, IntegerRange range, const char* doc, bool required = false) {
  return integer(path, get, range, doc, required, read_tokens);
}
template <class Get>
ConfigKey real(const char* path, Get get, RealRange range, const char* doc) {
  const auto read = [=](const YamlValue& value, double& out, const ReportProblem& report) {
    read_real(value, range, out, report);
  };
  return key_of(
      path, get, doc, read, [](double value) { return fmt::format("{}", value); }, range_text(range));
}
template <class Get>
ConfigKey flag(const char* path, Get get, const char* doc) {
  return key_of(
      path, get, doc, read_flag, [](bool value) { return value ? "true" : "false"; }, "true | false");
}

template <class Value, std::size_t n>
std::vector<std::string> names_of(const std::array<Named<Value>, n>& words) {
  std::vector<std::string> names;
  names.reserve(n);
  for (const Named<Value>& word : words) names.emplace_back(word.name);
  return names;
}

/// A key whose value is one of several words, each of which represents a value of the member. doc: the words themselves
/// if it is "".
template <class Get, class Value, std::size_t n>
ConfigKey word(const char* path, Get get, const std::array<Named<Value>, n>& words, const char* doc = "") {
  const std::vector<std::string> names = names_of(words);
  const std::string list = fmt::format("{}", fmt::join(names, " | "));
  const auto read = [=](const YamlValue& value, auto& out, const ReportProblem& report) {
    const int index = read_word(value, names, report);
    if (index >= 0) out = words[index].value;
  };
  return key_of(
      path, get, *doc ? doc : list.c_str(), read, [=](Value value) { return name_in(words, value); }, list);
}

/// Returns the table of an enumeration whose names are defined elsewhere.
template <class Value, std::size_t n>
std::array<Named<Value>, n> named(const std::array<Value, n>& values) {
  std::array<Named<Value>, n> table;
  for (std::size_t i = 0; i < n; ++i) table[i] = {values[i], name_of(values[i])};
  return table;
}

template <class Get>
ConfigKey text(const char* path, Get get, const char* doc) {
  return key_of(path, get, doc, read_text, quoted_yaml, "text");
}

/// Returns whether the value is a list; reports a problem if it is not. what: its entries.
bool is_list_of(std::string_view what, const YamlValue& value, const ReportProblem& report) {
  if (value.kind == YamlValue::Kind::list) return true;
  report(value.line, fmt::format("is {}, but must be a list of {}", described(value), what));
  return false;
}

/// A key whose value is a list of positive numbers.
template <class Get>
ConfigKey factors(const char* path, Get get, const char* doc) {
  const auto read = [](const YamlValue& value, std::vector<double>& out, const ReportProblem& report) {
    if (!is_list_of("numbers", value, report)) return;
    out.assign(value.items.size(), 0);
    for (std::size_t i = 0; i < out.size(); ++i) read_real(value.items[i], {0, 1e9, true}, out[i], report);
  };
  return key_of(
      path, get, doc, read, [](const auto& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); },
      "list of numbers above 0");
}

void read_words(const YamlValue& value, const char* what, std::vector<std::string>& out, const ReportProblem& report) {
  if (std::string_view(what) == "projection" && value.text == "all-linear") {  // PEFT's word
    out = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
    return;
  }
  if (!is_list_of(fmt::format("{}s", what), value, report)) return;
  out.clear();
  for (const YamlValue& item : value.items) {
    if (item.kind != YamlValue::Kind::scalar || item.text.empty()) {
      report(item.line, fmt::format("is {}, but a {} is a word", described(item), what));
    } else {
      out.push_back(item.text);
    }
  }
}

/// A key whose value is a list of words. what: one of them, for messages.
template <class Get>
ConfigKey words(const char* path, Get get, const char* what, const char* doc) {
  const auto read = [=](const YamlValue& value, std::vector<std::string>& out, const ReportProblem& report) {
    read_words(value, what, out, report);
  };
  const auto write = [](std::vector<std::string> list) {
    for (std::string& word : list) word = quoted_yaml(word);
    return fmt::format("[{}]", fmt::join(list, ", "));
  };
  return key_of(path, get, doc, read, write, fmt::format("list of {}s", what));
}

/// A key whose value is a list of words, each of which represents a value.
template <class Get, class Value, std::size_t n>
ConfigKey choices(const char* path, Get get, const std::array<Named<Value>, n>& words, const char* doc) {
  const std::vector<std::string> names = names_of(words);
  const std::string one_of = fmt::format("{}", fmt::join(names, " | "));
  const auto read = [=](const YamlValue& value, std::vector<Value>& out, const ReportProblem& report) {
    if (!is_list_of(one_of, value, report)) return;
    out.clear();
    for (const YamlValue& item : value.items) {
      const int index = read_word(item, names, report);
      if (index >= 0) out.push_back(words[index].value);
    }
  };
  const auto write = [=](const std::vector<Value>& values) {
    const auto name = [&](Value value) { return name_in(words, value); };
    return fmt::format("[{}]", fmt::join(std::views::transform(values, name), ", "));
  };
  return key_of(path, get, doc, read, write, "list of " + one_of);
}

/// A key that says where the model comes from. It is only for this run: the config in the run's folder has the sizes
/// instead.
ConfigKey source(ConfigKey key) {
  key.write = [unset = key.write(Config{})](const Config&) { return unset; };
  key.is_source = true;
  return key;
}

// The three keys with their own structure.

void read_source(const YamlValue& value, std::vector<DataSource>& sources, const ReportProblem& report) {
  DataSource source;
  bool fits = true;
  const ReportProblem mark = [&](int line, const std::string& what) {
    fits = false;
    report(line, what);
  };
  if (value.kind == YamlValue::Kind::map) {
    std::set<std::string> seen;
    for (const YamlEntry& entry : value.entries) {
      if (!seen.insert(entry.key).second) {
        mark(entry.line, fmt::format("{} is given twice in one entry", entry.key));
      } else if (entry.key == "path") {
        read_text(entry.value, source.path, [&](int line, const std::string& what) { mark(line, "path " + what); });
      } else if (entry.key == "weight") {
        read_real(entry.value, {0, 1e9, true}, source.weight,
                  [&](int line, const std::string& what) { mark(line, "weight " + what); });
      } else {
        mark(entry.line, fmt::format("an entry has the keys path and weight, not {}", entry.key));
      }
    }
    if (fits && !seen.contains("path")) mark(value.line, "an entry needs a path");
  } else {
    read_text(value, source.path, mark);
  }
  if (fits && source.path.empty()) mark(value.line, "needs the path of a token file; make one with prepare");
  if (fits) sources.push_back(std::move(source));
}

void read_sources(const YamlValue& value, std::vector<DataSource>& out, const ReportProblem& report) {
  std::vector<DataSource> sources;
  if (value.kind == YamlValue::Kind::list) {
    if (value.items.empty()) report(value.line, "the list is empty; name at least one token file");
    for (const YamlValue& item : value.items) read_source(item, sources, report);
  } else if (value.kind == YamlValue::Kind::scalar) {
    read_source(value, sources, report);
  } else {
    report(value.line, fmt::format("is {}, but must be a path, or a list of {{path, weight}}", described(value)));
  }
  out = std::move(sources);
}

std::string write_sources(const std::vector<DataSource>& sources) {
  if (sources.size() == 1 && sources[0].weight == 1) return quoted_yaml(sources[0].path);
  std::string list;
  for (const DataSource& source : sources) {
    list +=
        fmt::format("{}{{path: {}, weight: {}}}", list.empty() ? "" : ", ", quoted_yaml(source.path), source.weight);
  }
  return "[" + list + "]";
}

void read_betas(const YamlValue& value, OptimizerConfig& out, const ReportProblem& report) {
  if (value.kind != YamlValue::Kind::list || value.items.size() != 2) {
    const std::string found =
        value.kind == YamlValue::Kind::list ? fmt::format("a list of {}", value.items.size()) : described(value);
    return report(value.line, fmt::format("is {}, but must be a list of two numbers in [0, 1)", found));
  }
  read_real(value.items[0], {0, 1, false, true}, out.beta1, report);
  read_real(value.items[1], {0, 1, false, true}, out.beta2, report);
}

void read_lengths(const YamlValue& value, std::vector<std::int64_t>& out, const ReportProblem& report) {
  if (!is_list_of("lengths in tokens", value, report)) return;
  constexpr std::size_t most = 1000;
  if (value.items.size() > most) {
    return report(value.line, fmt::format("has {} lengths, but at most {} are allowed", value.items.size(), most));
  }
  std::vector<std::int64_t> lengths;
  for (const YamlValue& item : value.items) {
    std::int64_t length = 0;
    read_tokens(item, {1, std::int64_t{1} << 30}, length, report);
    if (length > 0 && !lengths.empty() && length <= lengths.back()) {
      report(item.line, fmt::format("lengths must ascend, but {} follows {}", length, lengths.back()));
    }
    if (length > 0) lengths.push_back(length);
  }
  out = std::move(lengths);
}

// NOLINTBEGIN(bugprone-macro-parentheses): a member's path is not an expression
#define MEMBER(path)          \
  [](auto& config) -> auto& { \
    return config.path;       \
  }
/// The name of a key and its member, which are the same text.
#define KEY(path) #path, MEMBER(path)
// NOLINTEND(bugprone-macro-parentheses)

// Upper limits keep every product that a memory plan computes within 64 bits.
constexpr std::int64_t k = 1024, m = k * k;

std::vector<ConfigKey> model_keys() {
  return {
      source(text(KEY(model.from),
                  "take sizes, weights, and tokenizer from this Hugging Face folder, run, or checkpoint. Other model "
                  "keys may override only values that do not affect the weights")),
      source(flag(KEY(model.from_scratch), "take only the sizes of model.from; weights are random")),
      word(KEY(model.architecture), architecture_names),
      integer(KEY(model.vocab_size), {2, 16 * m}, "vocabulary size; if not given, data.train's replaces this default"),
      integer(KEY(model.hidden_size), {1, 256 * k}, "width of the residual stream"),
      integer(KEY(model.num_hidden_layers), {1, 8 * k}, "transformer layers"),
      integer(KEY(model.num_attention_heads), {1, 4 * k}, "query heads"),
      integer(KEY(model.num_key_value_heads), {0, 4 * k}, "key/value heads; 0: num_attention_heads"),
      integer(KEY(model.head_dim), {0, 1 * k}, "size of a head; 0: hidden_size / num_attention_heads"),
      integer(KEY(model.intermediate_size), {1, 1 * m}, "width of the feedforward layer"),
      real(KEY(model.rope_theta), {1, 1e15, true}, "base of the rotary frequencies"),
      word(KEY(model.rope_scaling.type), rope_type_names),
      real(KEY(model.rope_scaling.factor), {0, 1e6},
           "new length / trained length; 0 (only yarn and longrope): max_position_embeddings / "
           "original_max_position_embeddings"),
      tokens(KEY(model.rope_scaling.original_max_position_embeddings), {0, 1024 * m},
             "yarn, llama3, longrope: trained length, required (0: not given)"),
      real(KEY(model.rope_scaling.attention_factor), {0, 1000},
           "yarn, longrope: scale of cosines and sines; 0: derived from factor as in the papers"),
      real(KEY(model.rope_scaling.beta_fast), {0, 1e6, true},
           "yarn: dimensions with more rotations than this within the trained length are not scaled"),
      real(KEY(model.rope_scaling.beta_slow), {0, 1e6, true},
           "yarn: dimensions with fewer rotations than this are interpolated"),
      real(KEY(model.rope_scaling.mscale), {0, 1000}, "yarn: with mscale_all_dim, sets attention_factor; 0: unused"),
      real(KEY(model.rope_scaling.mscale_all_dim), {0, 1000}, "yarn: see mscale"),
      flag(KEY(model.rope_scaling.truncate), "yarn: round the interpolation ramp's bounds outward to integers"),
      real(KEY(model.rope_scaling.low_freq_factor), {0, 1e6, true},
           "llama3: dimensions with fewer rotations than this within the trained length are interpolated"),
      real(KEY(model.rope_scaling.high_freq_factor), {0, 1e6, true},
           "llama3: dimensions with more rotations than this are not scaled"),
      factors(KEY(model.rope_scaling.short_factor),
              "longrope: divisors of the frequencies for sequences up to the trained length"),
      factors(KEY(model.rope_scaling.long_factor), "longrope: divisors of the frequencies for longer sequences"),
  };
}

std::vector<ConfigKey> model_trait_keys() {
  return {
      tokens(KEY(model.max_position_embeddings), {0, 1024 * m},
             "gpt2: size of the position table; other architectures: intended context length; 0: unknown"),
      tokens(KEY(model.sliding_window), {0, 1024 * m}, "a token sees this many tokens, ending at itself; 0: no limit"),
      choices(KEY(model.layer_types), layer_type_names,
              "which layers use sliding_window; a shorter list is repeated; []: all"),
      choices(KEY(model.layer_positions), layer_positions_names,
              "which layers rotate queries and keys; a shorter list is repeated; []: all"),
      real(KEY(model.sliding_rope_theta), {0, 1e15},
           "rope_theta of layers that use sliding_window, which then ignore rope_scaling; 0: same as other layers"),
      real(KEY(model.query_pre_attn_scalar), {0, 1e6}, "attention scores are divided by its square root; 0: head_dim"),
      real(KEY(model.attention_softcap), {0, 1e6}, "a cap c turns score s into c tanh(s / c) before the mask; 0: off"),
      flag(KEY(model.attention_sinks), "each head has a learned logit in the softmax, without a value vector"),
      real(KEY(model.embedding_multiplier), {0, 1e6}, "scale of token embeddings; 0: the architecture's default"),
      real(KEY(model.residual_multiplier), {0, 1e6, true}, "scale of attention and feedforward outputs"),
      real(KEY(model.logits_scaling), {0, 1e6, true}, "logits are divided by it"),
      real(KEY(model.final_softcap), {0, 1e6}, "like attention_softcap, for logits"),
      real(KEY(model.rms_norm_eps), {0, 1, true}, "epsilon of every norm"),
      real(KEY(model.initializer_range), {0, 10}, "standard deviation of initial weights"),
      flag(KEY(model.tie_word_embeddings), "the head is the transposed embedding"),
      flag(KEY(model.attention_bias),
           "biases of q, k, v, and o; only for llama, qwen3, smollm3, olmo2, olmo3, gemma2, gemma3_text, and granite"),
      flag(KEY(model.mlp_bias), "biases of gate, up, and down; only for llama, smollm3, and granite"),
  };
}

std::vector<ConfigKey> lora_data_and_mesh_keys() {
  return {
      integer("lora.rank", MEMBER(model.lora.rank), {0, 4 * k},
              "rank of adapters of a frozen model (model.from or --init-from); 0: none"),
      real("lora.alpha", MEMBER(model.lora.alpha), {0, 1e6, true}, "adapters are scaled by alpha / rank"),
      words("lora.targets", MEMBER(model.lora.targets), "projection",
            "all-linear, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, or name suffixes "
            "such as layers.0.mlp.up_proj"),

      key_of(KEY(data.train), "a token file, or a list of {path, weight} to mix", read_sources, write_sources, "",
             true),
      text(KEY(data.validation), "a token file; empty: the validation part of the first training file"),
      word(KEY(data.packing), packing_names,
           "documents: attention and positions restart at each document | whole: the same, but no document that fits "
           "in a window (training.seq_len) is cut | concat: attention crosses documents"),
      word(KEY(data.longer), long_documents_names,
           "if data.packing is whole, what is kept of a document longer than a window. cut: all, in several windows | "
           "truncate: the first window | drop: nothing | auto: truncate if a training file has weights, else cut"),

      integer(KEY(mesh.data), {1, 1 * k}, "data-parallel ranks"),
      integer(KEY(mesh.sequence), {1, 1 * k}, "ranks that share each sequence: the ring"),
      word(KEY(mesh.layout), named(all_layouts), "contiguous | striped | zigzag: a rank's tokens (docs/glossary.md)"),
      word(KEY(mesh.backend), backend_names,
           "auto | threads | mpi | nccl: how ranks communicate. auto: threads in one process; between processes, mpi "
           "(cpu) or nccl (cuda)"),
      integer(KEY(mesh.threads_per_rank), {0, 1 * k}, "compute threads; 0: cores / ranks, at least 1"),
      real(KEY(mesh.timeout_seconds), {0, 1e6, true}, "seconds that a rank waits for another before the run ends"),
      flag(KEY(mesh.share_gpu), "let processes share a GPU, for tests only"),
  };
}

std::vector<ConfigKey> training_keys() {
  return {
      tokens(KEY(training.seq_len), {1, 1024 * m}, "tokens per sequence", true),
      integer(KEY(training.global_batch_size), {1, 1 * m}, "sequences per step, over the mesh"),
      integer(KEY(training.micro_batch_size), {1, 64 * k}, "sequences that a data rank processes at a time"),
      integer(KEY(training.steps), {1, 1'000'000'000},
              "optimizer steps; training.epochs (passes over the data) can be given instead", true),
      key_of(
          KEY(training.stages),
          "settings that change at from_step (not with training.epochs): {from_step, seq_len, global_batch_size, "
          "rope_theta, rope_scaling}; missing keys keep their values; rope_scaling replaces all of model.rope_scaling",
          [](const YamlValue& value, std::vector<TrainingStage>& out, const ReportProblem& report) {
            read_stages(value, out, config_keys(), report);
          },
          [](const std::vector<TrainingStage>& stages) { return write_stages(stages, config_keys()); },
          "at most 1000 maps; from_step ascends, from 2 to training.steps"),
      key_of(
          KEY(training.seed), "seed of initial weights and data order", read_unsigned,
          [](std::uint64_t seed) { return std::to_string(seed); }, "0 to 18446744073709551615"),
      word(KEY(training.device), device_names),
      word(KEY(training.dtype), named(std::array{DType::float32, DType::float64, DType::bfloat16}),
           "float32 | float64 | bfloat16 on cpu, bfloat16 | float32 on cuda"),
      word(KEY(training.recompute), recompute_names,
           "what the backward pass recomputes. none: only what needs no matrix product | keep_attention: everything "
           "except attention | full: everything"),
      word(KEY(training.offload), offload_names,
           "none | activations | optimizer | activations+optimizer: what is kept in host memory until needed (cuda)"),
      word(KEY(training.shard), shard_names,
           "optimizer | gradients | weights: what is sharded over all ranks; each choice includes those before it"),
      words(KEY(training.trainable), "pattern",
            "names of trained parameters (* matches any text); []: all, or with lora only the adapters"),
      tokens(KEY(training.feedforward_chunk), {-1, 1024 * m},
             "tokens that the feedforward processes at a time; 0: all; -1: 2048 on cpu, 16384 on cuda"),
      tokens(KEY(training.loss_chunk), {0, 1024 * m},
             "tokens whose logits are computed at a time; 0: 1024 on cpu, 8192 on cuda"),
      flag(KEY(training.deterministic), "repeated runs give the same bits (on cpu, always)"),
      word(KEY(training.on_nonfinite), on_nonfinite_names,
           "stop | skip: end the run, or skip the update, if the loss or a gradient is NaN or infinite"),
      integer(KEY(training.max_skipped_steps), {0, 1'000'000'000},
              "consecutive skipped steps allowed if on_nonfinite is skip; one more ends the run"),
      integer(KEY(training.audit.interval), {0, 1'000'000'000},
              "steps between audits, which recompute random rows of attention in float64; 0: never"),
      integer(KEY(training.audit.rows), {1, 64}, "rows per rank in an audit"),
      word(KEY(training.audit.on_failure), on_failure_names,
           "stop | warn: if a row's error exceeds its bound, end the run before the update, or only log the failure"),
  };
}

std::vector<ConfigKey> other_keys() {
  return {
      word(KEY(optimizer.name), optimizer_names, "adamw, with decoupled decay except on norms and biases"),
      real(KEY(optimizer.lr), {0, 100}, "peak learning rate"),
      key_of(
          "optimizer.betas", MEMBER(optimizer), "decay rates of the first and second moments", read_betas,
          [](const OptimizerConfig& optimizer) { return fmt::format("[{}, {}]", optimizer.beta1, optimizer.beta2); },
          "two numbers in [0, 1)"),
      real(KEY(optimizer.eps), {0, 1, true}, "added to the square root of the second moment"),
      real(KEY(optimizer.weight_decay), {0, 1000}, "multiplied by the learning rate in each step"),
      real(KEY(optimizer.max_grad_norm), {0, 1e9}, "clip the gradient norm to this; 0: off"),
      word(KEY(optimizer.moments), named(std::array{DType::float32, DType::bfloat16}),
           "dtype of the moments. float32 (float64 in float64 runs) | bfloat16: half the memory, stochastic rounding"),
      word(KEY(optimizer.gradients), named(std::array{DType::float32, DType::bfloat16}),
           "dtype in which a rank keeps its sums of gradients. float32 (float64 in float64 runs) | bfloat16: half the "
           "memory; each micro-batch's gradients are added and rounded to nearest"),
      real(KEY(optimizer.host_share), {0, 1, true},
           "share of the optimizer's state in host memory, if training.offload names the optimizer"),

      word(KEY(lr_scheduler.type), schedule_names, "cosine | linear | wsd | constant; wsd: warmup, stable, decay"),
      integer(KEY(lr_scheduler.warmup_steps), {0, 1'000'000'000},
              "steps over which the learning rate rises; or give warmup_ratio, a fraction of training.steps"),
      real(KEY(lr_scheduler.min_lr_ratio), {0, 1}, "final / peak learning rate"),
      real(KEY(lr_scheduler.decay_ratio), {0, 1}, "wsd: final fraction of the steps, in which the rate decays"),

      integer(KEY(checkpoint.interval), {-1, 1'000'000'000},
              "steps between saves; 0: only at the end and by every_minutes; -1: only on a signal"),
      real(KEY(checkpoint.every_minutes), {0, 1e6},
           "also save this many minutes after the last save began; never if this is 0 or interval is -1"),
      integer(KEY(checkpoint.keep), {1, 1'000'000}, "checkpoints to keep; older ones are deleted"),
      flag(KEY(checkpoint.background),
           "write from a snapshot while training continues (if interval is above 0); false: training waits"),
      word(KEY(checkpoint.on_failure), on_failure_names,
           "stop | warn: if a checkpoint or metrics cannot be written, end the run, or log the failure and continue"),

      integer(KEY(evaluation.interval), {0, 1'000'000'000}, "steps between evaluations; 0: never"),
      key_of(
          KEY(evaluation.context_lengths), "context lengths in tokens", read_lengths,
          [](const std::vector<std::int64_t>& lengths) { return fmt::format("[{}]", fmt::join(lengths, ", ")); },
          "at most 1000 ascending lengths, each 1 to 1073741824"),
      tokens(KEY(evaluation.target_tokens), {1, 1024 * m}, "tokens per target block, at every length"),
      integer(KEY(evaluation.target_blocks), {1, 1 * m}, "how many target blocks (or whole_documents) to score"),
      flag(KEY(evaluation.whole_documents), "score whole documents up to training.seq_len tokens, not target blocks"),
      flag(KEY(evaluation.on_training_data), "without a validation part, score training text; false: an error"),

      flag(KEY(metrics.tensorboard), "not supported (true is an error); docs/metrics.md has a script for it"),
      real(KEY(metrics.peak_flops), {0, 1e20}, "dense peak FLOP/s of a rank (`plan` prints it) for `mfu`; 0: no `mfu`"),
  };
}

#undef KEY
#undef MEMBER

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> table = [] {
    std::vector<ConfigKey> keys;
    for (auto* section : {model_keys, model_trait_keys, lora_data_and_mesh_keys, training_keys, other_keys}) {
      for (ConfigKey& key : section()) keys.push_back(std::move(key));
    }
    return keys;
  }();
  return table;
}

}  // namespace ringtrain
