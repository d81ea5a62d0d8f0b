#include "framework/text/foreign_keys.h"

#include <fmt/core.h>

#include <string>

namespace ringtrain {

namespace {

constexpr ForeignKey names_elsewhere[] = {
    {"model.from", " model_name_or_path base_model pretrained_model_name_or_path hf_assets_path init_from model.name "},
    {"model.architecture", " model_type architectures model.type "},
    {"model.hidden_size", " n_embd d_model dim embed_dim model_dim "},
    {"model.num_hidden_layers", " n_layer n_layers num_layers "},
    {"model.num_attention_heads", " n_head n_heads num_heads "},
    {"model.num_key_value_heads", " n_kv_heads num_kv_heads num_query_groups n_query_groups "},
    {"model.head_dim", " kv_channels d_head head_size "},
    {"model.intermediate_size", " ffn_dim ffn_hidden_size n_inner d_ff mlp_dim "},
    {"model.rope_theta", " rope_base rotary_base "},
    {"model.rms_norm_eps", " norm_eps layer_norm_eps layer_norm_epsilon "},
    {"model.tie_word_embeddings", " tie_embeddings weight_tying "},
    {"model.sliding_window", " window_size "},
    {"lora.rank", " r lora_r lora_rank lora_dim "},
    {"lora.alpha", " lora_alpha "},
    {"lora.targets", " target_modules lora_target_modules lora_target_linear "},
    {"data.train", " dataset datasets dataset_path dataset_name data_path train_file train_data data.path data.files "},
    {"data.validation", " val_data eval_dataset validation_file test_datasets evaluation.data evaluation.dataset "},
    {"mesh.data",
     " dp dp_size dp_degree data_parallel data_parallel_size data_parallel_replicate_degree "
     "data_parallel_shard_degree "},
    {"mesh.sequence",
     " cp cp_size cp_degree context_parallel context_parallel_size context_parallel_degree sequence_parallel "
     "sequence_parallel_size sequence_parallel_degree ulysses_degree "},
    {"training.seq_len",
     " seq_length max_seq_length max_seq_len max_length sequence_len sequence_length block_size context_length n_ctx "},
    {"training.global_batch_size", " batch_size train_batch_size gradient_accumulation_steps ",
     " It counts all sequences of a step: accumulated micro-batches x mesh.data x training.micro_batch_size"},
    {"training.micro_batch_size", " per_device_train_batch_size local_batch_size train_micro_batch_size_per_gpu "},
    {"training.steps", " max_steps train_iters num_steps max_iters total_steps steps "},
    {epochs, " num_train_epochs num_epochs epochs "},
    {"training.dtype", " precision mixed_precision torch_dtype fp16 fp32 bf16 mixed_precision_param "},
    {"training.recompute",
     " gradient_checkpointing activation_checkpointing activation_checkpoint recompute_granularity "},
    {"training.shard", " fsdp fsdp_config zero zero_stage zero_optimization deepspeed use_distributed_optimizer "},
    {"training.offload", " cpu_offload enable_cpu_offload offload_optimizer "},
    {"training.deterministic", " full_determinism deterministic_mode "},
    {"optimizer.lr", " learning_rate max_lr peak_lr "},
    {"optimizer.betas", " adam_beta1 adam_beta2 beta1 beta2 "},
    {"optimizer.eps", " adam_epsilon adam_eps epsilon "},
    {"optimizer.max_grad_norm", " clip_grad grad_clip gradient_clipping clip_grad_norm max_norm "},
    {"lr_scheduler.type", " lr_scheduler_type lr_decay_style lr_scheduler.name "},
    {"lr_scheduler.warmup_steps", " warmup warmup_iters lr_warmup_iters num_warmup_steps "},
    {warmup_ratio, " warmup_ratio "},
    {"lr_scheduler.min_lr_ratio", " min_lr min_lr_factor lr_min ", " It is a fraction of optimizer.lr"},
    {"checkpoint.interval", " save_steps save_interval saves_per_epoch ckpt_interval checkpoint.steps ",
     " It counts steps"},
    {"evaluation.interval", " eval_steps eval_interval evals_per_epoch evaluation.steps ", " It counts steps"},
    {"evaluation.context_lengths", " evaluation.seq_len evaluation.max_length "},
    {"optimizer.name", " optim optimizer.type "},
    {"checkpoint.keep", " save_total_limit keep_latest_k "},
};

}  // namespace

const ForeignKey* foreign_key(std::string_view path) {
  for (const std::string_view name : {path, path.substr(path.rfind('.') + 1)}) {  // npos + 1 is 0
    const std::string word = fmt::format(" {} ", name);
    for (const ForeignKey& key : names_elsewhere) {
      if (key.names.find(word) != key.names.npos) return &key;
    }
  }
  return nullptr;
}

std::string_view own_path_of(std::string_view path) {
  if (path == "lora.r") return "lora.rank";
  if (path == "lora.lora_alpha") return "lora.alpha";
  if (path == "lora.target_modules") return "lora.targets";
  if (path == epochs) return "training.steps";
  return path == warmup_ratio ? "lr_scheduler.warmup_steps" : path;
}

}  // namespace ringtrain
