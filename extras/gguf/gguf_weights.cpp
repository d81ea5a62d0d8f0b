#include "extras/gguf/gguf_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/stored_tensor.h"
#include "train/models/tensor_place.h"

namespace ringtrain {

namespace {

/// What GGUF calls a module of a layer.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> layer_modules{
    {{"input_layernorm", "attn_norm"},
     {"self_attn.q_proj", "attn_q"},
     {"self_attn.k_proj", "attn_k"},
     {"self_attn.v_proj", "attn_v"},
     {"self_attn.o_proj", "attn_output"},
     {"post_attention_layernorm", "ffn_norm"},
     {"mlp.gate_proj", "ffn_gate"},
     {"mlp.up_proj", "ffn_up"},
     {"mlp.down_proj", "ffn_down"}}};

/// Returns the name that GGUF has for a parameter of ours.
std::string gguf_name(const std::string& name) {
  constexpr std::string_view layers = "model.layers.";
  const std::string kind = name.substr(name.rfind('.'));
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  const std::size_t dot = name.find('.', layers.size());
  const std::string layer = name.substr(layers.size(), dot - layers.size());
  const std::string module = name.substr(dot + 1, name.size() - kind.size() - dot - 1);
  const auto* const known =
      std::ranges::find(layer_modules, module, &std::pair<std::string_view, std::string_view>::first);
  ensure(known != layer_modules.end(), "every module of a Llama has a name in GGUF");
  return "blk." + layer + "." + std::string(known->second) + kind;
}

/// llama.cpp has the rows of a head of queries and keys in pairs (2j, 2j + 1) that rotate together; ours are j and
/// j + head_dim / 2. Returns the row of the file's tensor that is a row of ours.
std::int64_t interleaved_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

bool is_interleaved(const std::string& parameter) {
  return parameter.find(".q_proj.") != std::string::npos || parameter.find(".k_proj.") != std::string::npos;
}

class GgufWeights final : public WeightSource {
 public:
  GgufWeights(GgufFile file, std::int64_t head_dim)
      : file_(std::move(file)), opened_(file_.reopen()), head_dim_(head_dim) {}

  void read(const Parameter& parameter, std::int64_t begin, const TensorView& to) override {
    const GgufTensor& tensor = file_.tensors().at(gguf_name(parameter.name));
    const std::int64_t width = tensor.shape.back();
    const bool interleaved = is_interleaved(parameter.name);
    dispatch_float(to.dtype, [&]<class Real>() {
      Real* out = to.as<Real>();
      for (std::int64_t count = to.numel(); count > 0;) {
        const std::int64_t row = begin / width, within = begin % width, part = std::min(count, width - within);
        read_row(tensor, interleaved ? interleaved_row(row, head_dim_) : row);
        for (std::int64_t i = 0; i < part; ++i) *out++ = static_cast<Real>(row_[within + i]);
        begin += part;
        count -= part;
      }
    });
    file_.require_unchanged(opened_);
  }

 private:
  void read_row(const GgufTensor& tensor, std::int64_t row) {
    const std::int64_t width = tensor.shape.back();
    bytes_.resize(static_cast<std::size_t>(width / tensor.type->elements * tensor.type->bytes));
    row_.resize(width);
    opened_.read_at(tensor.offset + row * std::ssize(bytes_), bytes_.data(), bytes_.size());
    decode(*tensor.type, bytes_.data(), width, row_.data());
  }

  GgufFile file_;
  File opened_;
  std::int64_t head_dim_;
  std::string bytes_;
  std::vector<double> row_;
};

}  // namespace

void check_gguf_weights(const GgufFile& file, const ParameterTable& table) {
  std::set<std::string, std::less<>> used;
  for (const Parameter& parameter : table.all()) {
    const std::string& name = *used.insert(gguf_name(parameter.name)).first;
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end()) {
      file.refuse("has no tensor {}, which this model needs", name);
    }
    if (const auto shape = shape_of(parameter); found->second.shape != shape) {
      file.refuse("{} is {}, but this model's is {}", name, shape_text(found->second.shape), shape_text(shape));
    }
    if (!found->second.type) {
      file.refuse(
          "{} is of type {}, which is not read; take the model's Hugging Face folder, or a file in F32, F16, BF16, "
          "Q8_0, Q4_0 or Q4_1",
          name, found->second.type_name);
    }
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (used.contains(name)) continue;
    file.refuse("has {}, which a model of these keys does not: it would be ignored", plain_text(name));
  }
}

std::unique_ptr<WeightSource> read_gguf_weights(const GgufFile& file, std::int64_t head_dim) {
  return std::make_unique<GgufWeights>(file, head_dim);
}

}  // namespace ringtrain
