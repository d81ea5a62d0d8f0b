#include "tests/extras/planner/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "extras/planner/plan.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr double K = 1e3;

constexpr PublishedModel model_3b{"3B", 3200, 26, 32, 8640}, model_7b{"7B", 4096, 32, 32, 11008},
    model_13b{"13B", 5120, 40, 40, 13824}, model_30b{"30B", 6656, 60, 52, 17920};

/// A row of the paper's Table 2: thousands of tokens.
struct BlockRow {
  const char* hardware;
  double block, sequence;
};
constexpr std::array block_rows{BlockRow{"paper-a100-nvlink", 1.0, 6.2}, BlockRow{"paper-a100-infiniband", 24.5, 149.5},
                                BlockRow{"tpu-v3", 1.1, 6.6}, BlockRow{"tpu-v4", 1.0, 6.2},
                                BlockRow{"tpu-v5e", 1.1, 6.3}};

/// A row of its Table 3: thousands of tokens, by kind of layer. Names of TPU slices count cores: v3 and v4 have two a
/// chip, v5e one.
struct ContextRow {
  const char* name;
  const char* hardware;
  std::int64_t devices;
  double element_bytes;
  PublishedModel model;
  std::array<double, 4> published;
};
constexpr std::array context_rows{
    ContextRow{"8 A100, NVLink", "paper-a100-nvlink", 8, 4, model_3b, {4, 32, 64, 512}},
    ContextRow{"8 A100, NVLink", "paper-a100-nvlink", 8, 4, model_7b, {2, 16, 32, 256}},
    ContextRow{"8 A100, NVLink", "paper-a100-nvlink", 8, 4, model_13b, {2, 4, 16, 128}},
    ContextRow{"32 A100, InfiniBand", "paper-a100-infiniband", 32, 4, model_7b, {4, 64, 128, 4096}},
    ContextRow{"32 A100, InfiniBand", "paper-a100-infiniband", 32, 4, model_13b, {4, 32, 64, 2048}},
    ContextRow{"TPUv3-512", "tpu-v3", 256, 4, model_7b, {1, 4, 8, 2048}},
    ContextRow{"TPUv3-512", "tpu-v3", 256, 4, model_13b, {1, 2, 8, 1024}},
    ContextRow{"TPUv4-1024", "tpu-v4", 512, 4, model_3b, {8, 16, 32, 16384}},
    ContextRow{"TPUv4-1024", "tpu-v4", 512, 4, model_7b, {4, 8, 16, 8192}},
    ContextRow{"TPUv4-1024", "tpu-v4", 512, 4, model_13b, {4, 8, 16, 4096}},
    ContextRow{"TPUv4-1024", "tpu-v4", 512, 4, model_30b, {2, 4, 8, 2048}},
    ContextRow{"TPUv5e-256", "tpu-v5e", 256, 4, model_3b, {4, 8, 32, 4096}},
    ContextRow{"TPUv5e-256", "tpu-v5e", 256, 4, model_7b, {2, 8, 16, 2048}}};

/// A row of its Figure 5: FLOPs a token relative to 4K. The first has no published counterpart.
struct RatioRow {
  const char* name;
  double hidden;
  std::array<double, 9> published;  // 0: none
};
constexpr std::array<double, 9> ratio_multiples{2, 4, 8, 16, 32, 64, 256, 3072, 32768};
constexpr std::array ratio_rows{RatioRow{"3B", 3200, {}},
                                RatioRow{"7B", 4096, {1.1, 1.4, 2.0, 3.1, 5.4, 10.0, 37.4, 439.7, 4682.0}},
                                RatioRow{"13B", 5120, {1.1, 1.4, 1.8, 2.8, 4.6, 8.4, 31.0, 362.3, 3855.9}},
                                RatioRow{"33B", 7168, {1.1, 1.3, 1.6, 2.3, 3.7, 6.5, 23.2, 268.0, 2850.3}},
                                RatioRow{"65B", 8192, {1.1, 1.2, 1.5, 2.2, 3.4, 5.8, 20.6, 237.2, 2521.5}},
                                RatioRow{"175B", 12288, {1.1, 1.2, 1.4, 1.8, 2.6, 4.3, 14.4, 162.6, 1725.6}},
                                RatioRow{"1TB", 36864, {1.0, 1.1, 1.1, 1.3, 1.6, 2.1, 5.6, 56.8, 596.8}}};

/// Returns a device of the paper's Table 2 (peak, one-directional bandwidth and memory), or one of configs/hardware.
Hardware hardware_of(const std::string& name) {
  struct Device {
    const char* name;
    double peak, bandwidth, memory;
  };
  for (const Device& device :
       {Device{"paper-a100-nvlink", 312e12, 300e9, 80e9}, Device{"paper-a100-infiniband", 312e12, 12.5e9, 80e9},
        Device{"tpu-v3", 123e12, 112e9, 16e9}, Device{"tpu-v4", 275e12, 268e9, 32e9},
        Device{"tpu-v5e", 196e12, 186e9, 16e9}}) {
    if (device.name != name) continue;
    Hardware hardware;
    hardware.peak_bfloat16 = device.peak;
    hardware.memory_bytes = device.memory;
    hardware.levels = {{.ranks = 65536, .bandwidth = device.bandwidth}};
    return hardware;
  }
  return read_hardware(find_hardware(name));
}

std::string block_table() {
  std::string text =
      "| device | TFLOP/s | GB/s | minimum block; published | 6 blocks; published |\n"
      "|---|---|---|---|---|\n";
  for (const BlockRow& row : block_rows) {
    const Hardware hardware = hardware_of(row.hardware);
    const double block = min_block(hardware) / K;
    text += fmt::format("| {} | {:.0f} | {:g} | {:.2f}; {:.1f} | {:.1f}; {:.1f} |\n", row.hardware,
                        hardware.peak_bfloat16 * 1e-12, hardware.levels[0].bandwidth * 1e-9, block, row.block,
                        6 * block, row.sequence);
  }
  return text;
}

std::string activation_table() {
  constexpr double b = 1, s = 131072, h = 4096, n = 32, c = 16384;
  struct Row {
    const char* name;
    const char* formula;
    LayerKind kind;
  };
  constexpr std::array rows{Row{"vanilla", "2 b n s²", LayerKind::vanilla},
                            Row{"memory efficient attention", "8 b s h", LayerKind::memory_efficient_attention},
                            Row{"memory efficient attention and feedforward", "2 b s h", LayerKind::blockwise},
                            Row{"ring attention", "12 b c h (6 b c h numbers)", LayerKind::ring}};
  std::string text =
      "| layer | largest activation, bytes | 7B, GB |\n"
      "|---|---|---|\n";
  for (const Row& row : rows) {
    text += fmt::format("| {} | {} | {:.3f} |\n", row.name, row.formula,
                        layer_activation_bytes(row.kind, b, s, h, n, c) * 1e-9);
  }
  return text;
}

std::string context_table() {
  std::string text =
      "| devices | model | vanilla | efficient attention | and feedforward | ring |\n"
      "|---|---|---|---|---|---|\n";
  for (const ContextRow& row : context_rows) {
    const Hardware hardware = hardware_of(row.hardware);
    text += fmt::format("| {} | {} |", row.name, row.model.name);
    for (std::size_t i = 0; i < row.published.size(); ++i) {
      const auto longest =
          longest_published_context(row.model, static_cast<LayerKind>(i), hardware, row.devices, row.element_bytes);
      text += fmt::format(" {}; {} |", longest / 1024, row.published[i]);
    }
    text += "\n";
  }
  return text;
}

std::string ratio_table() {
  std::string text =
      "| model | 8K | 16K | 32K | 64K | 128K | 256K | 1M | 12M | 128M |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n";
  for (const RatioRow& row : ratio_rows) {
    std::string computed, published;
    for (std::size_t i = 0; i < ratio_multiples.size(); ++i) {
      computed += fmt::format(" {:.1f} |", flops_ratio(row.hidden, ratio_multiples[i] * 4096));
      published += fmt::format(" {:.1f} |", row.published[i]);
    }
    text += fmt::format("| {} |{}\n", row.name, computed);
    if (row.published[0] > 0 && published != computed) text += fmt::format("| {}, paper |{}\n", row.name, published);
  }
  return text;
}

}  // namespace

double min_block(const Hardware& hardware) {
  // d cancels: 4 d / F seconds a pair, 4 d / B seconds a token.
  return tokens_to_hide(4 / hardware.peak_bfloat16, 1, 4 / hardware.levels.back().bandwidth, 0);
}

double layer_activation_bytes(LayerKind kind, double b, double s, double h, double n, double c) {
  switch (kind) {
    case LayerKind::vanilla:
      return std::max(2 * b * n * s * s, 8 * b * s * h);  // the scores, or what the feedforward expands
    case LayerKind::memory_efficient_attention:
      return 8 * b * s * h;
    case LayerKind::blockwise:
      return 2 * b * s * h;
    case LayerKind::ring:
      return 2 * 6 * b * c * h;  // queries, two blocks of keys and values, the output: the paper's 6 b c h are numbers
  }
  fail(ExitCode::internal, "a kind of layer without activations");
}

double sequence_flops(double s, double h) {
  return 24 * s * h * h + 4 * s * s * h;
}

double flops_ratio(double h, double s, double base) {
  return sequence_flops(s, h) / s / (sequence_flops(base, h) / base);
}

double parameters_of(const PublishedModel& model) {
  const auto h = static_cast<double>(model.hidden), f = static_cast<double>(model.intermediate);
  return static_cast<double>(model.layers) * (4 * h * h + 3 * h * f) + 2.0 * published_vocabulary * h;
}

std::int64_t longest_published_context(const PublishedModel& model, LayerKind kind, const Hardware& hardware,
                                       std::int64_t devices, double element_bytes) {
  const auto h = static_cast<double>(model.hidden), n = static_cast<double>(model.heads);
  const double state = 16 * parameters_of(model) / static_cast<double>(devices);
  const auto fits = [&](std::int64_t local) {  // tokens of one device
    const auto s = static_cast<double>(local);
    const double outputs = static_cast<double>(model.layers) * s * h * element_bytes;
    const double layer = layer_activation_bytes(kind, 1, s, h, n, s) * element_bytes / 2;
    return state + outputs + layer <= hardware.memory_bytes;
  };
  std::int64_t local = 0;
  for (std::int64_t tokens = 512; fits(tokens); tokens *= 2) local = tokens;
  return kind == LayerKind::ring ? local * devices : local;
}

std::string published_tables() {
  return "## Minimum block that hides a transfer, in 1,000 tokens\n\n" + block_table() +
         "\n## Largest activation of a layer\n\n" + activation_table() + "\n## Longest context, in 1,024 tokens\n\n" +
         context_table() + "\n## FLOPs a token, relative to a context of 4K\n\n" + ratio_table();
}

}  // namespace ringtrain
