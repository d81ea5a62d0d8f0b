// The words that a config chooses among: each list with its names. What a choice means is defined where it is used.
#pragma once

#include <array>

#include "framework/config/named.h"
#include "framework/device.h"

namespace ringtrain {

// layers/model_spec.h lists the traits of each.
enum class Architecture {
  llama,
  mistral,
  gpt2,
  qwen2,
  qwen3,
  smollm3,
  olmo2,
  olmo3,
  gemma2,
  gemma3_text,
  phi3,
  granite
};
inline constexpr std::array architecture_names{
    Named{Architecture::llama, "llama"},   Named{Architecture::mistral, "mistral"},
    Named{Architecture::gpt2, "gpt2"},     Named{Architecture::qwen2, "qwen2"},
    Named{Architecture::qwen3, "qwen3"},   Named{Architecture::smollm3, "smollm3"},
    Named{Architecture::olmo2, "olmo2"},   Named{Architecture::olmo3, "olmo3"},
    Named{Architecture::gemma2, "gemma2"}, Named{Architecture::gemma3_text, "gemma3_text"},
    Named{Architecture::phi3, "phi3"},     Named{Architecture::granite, "granite"}};
inline constexpr std::array all_architectures = values_of(architecture_names);
inline const char* name_of(Architecture architecture) {
  return name_in(architecture_names, architecture);
}

/// What a layer's queries see: all positions before them, or only those that model.sliding_window allows.
enum class LayerType { full_attention, sliding_attention };
inline constexpr std::array layer_type_names{Named{LayerType::full_attention, "full_attention"},
                                             Named{LayerType::sliding_attention, "sliding_attention"}};

/// Whether a layer rotates its queries and keys.
enum class LayerPositions { rope, none };
inline constexpr std::array layer_positions_names{Named{LayerPositions::rope, "rope"},
                                                  Named{LayerPositions::none, "none"}};

enum class Packing { documents, whole, concat };
inline constexpr std::array packing_names{Named{Packing::documents, "documents"}, Named{Packing::whole, "whole"},
                                          Named{Packing::concat, "concat"}};
/// Returns whether attention and positions restart at each document.
constexpr bool parts_documents(Packing packing) {
  return packing != Packing::concat;
}

/// What happens to a document that is longer than a window, with packing whole.
enum class LongDocuments { automatic, cut, truncate, drop };
inline constexpr std::array long_documents_names{
    Named{LongDocuments::automatic, "auto"}, Named{LongDocuments::cut, "cut"},
    Named{LongDocuments::truncate, "truncate"}, Named{LongDocuments::drop, "drop"}};

enum class Backend { automatic, threads, mpi, nccl };  // parallel/launch/communicator_factory.h says what each means
inline constexpr std::array backend_names{Named{Backend::automatic, "auto"}, Named{Backend::threads, "threads"},
                                          Named{Backend::mpi, "mpi"}, Named{Backend::nccl, "nccl"}};
inline const char* name_of(Backend backend) {
  return name_in(backend_names, backend);
}

enum class Recompute { none, keep_attention, full };
inline constexpr std::array recompute_names{
    Named{Recompute::none, "none"}, Named{Recompute::keep_attention, "keep_attention"}, Named{Recompute::full, "full"}};
inline constexpr std::array all_recompute_policies = values_of(recompute_names);
inline const char* name_of(Recompute policy) {
  return name_in(recompute_names, policy);
}

enum class Offload { none, activations, optimizer, activations_and_optimizer };
inline constexpr std::array offload_names{Named{Offload::none, "none"}, Named{Offload::activations, "activations"},
                                          Named{Offload::optimizer, "optimizer"},
                                          Named{Offload::activations_and_optimizer, "activations+optimizer"}};
inline const char* name_of(Offload offload) {
  return name_in(offload_names, offload);
}

enum class Shard { optimizer, gradients, weights };  // each includes those before it (parallel/parameter_store.h)
inline constexpr std::array shard_names{Named{Shard::optimizer, "optimizer"}, Named{Shard::gradients, "gradients"},
                                        Named{Shard::weights, "weights"}};
inline constexpr std::array all_shard_policies = values_of(shard_names);
inline const char* name_of(Shard shard) {
  return name_in(shard_names, shard);
}

enum class OptimizerName { adamw };  // kernels/adamw.h says what it does
inline constexpr std::array optimizer_names{Named{OptimizerName::adamw, "adamw"}};

enum class ScheduleType { cosine, linear, wsd, constant };
inline constexpr std::array schedule_names{Named{ScheduleType::cosine, "cosine"}, Named{ScheduleType::linear, "linear"},
                                           Named{ScheduleType::wsd, "wsd"}, Named{ScheduleType::constant, "constant"}};

enum class OnFailure { stop, warn };
inline constexpr std::array on_failure_names{Named{OnFailure::stop, "stop"}, Named{OnFailure::warn, "warn"}};

enum class OnNonfinite { stop, skip };
inline constexpr std::array on_nonfinite_names{Named{OnNonfinite::stop, "stop"}, Named{OnNonfinite::skip, "skip"}};

inline constexpr std::array device_names{Named{Device::Kind::cpu, "cpu"}, Named{Device::Kind::cuda, "cuda"}};
inline const char* name_of(Device::Kind kind) {
  return name_in(device_names, kind);
}

}  // namespace ringtrain
