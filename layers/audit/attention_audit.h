// The audit of a training step (training.audit): recomputes a few rows of attention, drawn at random, in plain double
// from the keys and values that the ring sends, and compares them with the kernels' results, forward and backward. It
// finds a device that computes wrong results, and a kernel that fails only at some lengths. It does not find damage
// from a block's transfer, because it reads the same block.
//
// Each rank audits rows of its own tokens, so every device is audited. No communication.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/batch.h"
#include "framework/allocator.h"
#include "framework/stream.h"
#include "layers/audit/audited_row.h"
#include "parallel/ring/ring_block.h"

namespace ringtrain {

/// The tensors of a row that are compared with their double values.
enum class AuditedTensor { attention, logsumexp, query_gradient };
inline constexpr int audited_tensors = 3;
/// Returns its name in dumps and messages.
const char* name_of(AuditedTensor tensor);

/// The numbers that fix the audit's sizes, and the attention that it recomputes.
struct AuditShape {
  std::int64_t rows = 0;               // per step, at most; 0: no audit
  std::vector<AttentionShape> layers;  // they differ only in their masks
  DType dtype = DType::float32;
  std::int64_t max_ring_tokens = 0;  // T of the largest shard
  bool documents = true;
};

/// One query of one head.
struct AuditLocation {
  std::int64_t layer = 0, head = 0;
  std::int64_t micro = 0, sequence = 0;  // the micro-batch of the step, and the sequence in it
  std::int64_t token = 0;                // of this rank
  std::int64_t position = 0;             // in the sequence
};

/// The first element of a row whose difference from the double value exceeds the bound.
struct AuditDifference {
  AuditLocation at;
  AuditedTensor tensor = AuditedTensor::attention;
  bool recomputed = false;   // in the forward pass that backward reran
  std::int64_t element = 0;  // of the head
  double run = 0, exact = 0, bound = 0;
};

/// What the audit of a step found on this rank.
struct AuditReport {
  std::int64_t rows = 0;
  std::int64_t differences = 0;                 // rows that exceed their bound
  std::array<double, audited_tensors> error{};  // by tensor: the largest |run - double| as a fraction of its bound
  std::optional<AuditDifference> first;
};

class AttentionAudit {
 public:
  /// Allocates, under Tag::workspace on the host, shape.rows * AuditedRow::doubles(D) float64, and on a GPU also the
  /// buffers for a piece of a block: 2 * p * G * D elements, p int32 with documents, p = min(piece, the ring's tokens),
  /// and 8 * D bytes for a row. Allocates nothing if there are no rows.
  AttentionAudit(Allocator& allocator, const AuditShape& shape);
  static constexpr std::int64_t piece = 1024;  // tokens

  /// Draws the rows of a step from (seed, step, rank), uniformly over layers, heads, micro-batches, and this rank's
  /// tokens in them. sequences, tokens: B and T of its micro-batches. rank is below 2^26, step below 2^30, and rows
  /// below 2^8.
  void begin_step(std::uint64_t seed, std::int64_t step, int rank, std::int64_t micro_batches, std::int64_t sequences,
                  std::int64_t tokens);
  /// Starts the next micro-batch. host must live as long as the step trains on it.
  void begin_micro_batch(const Batch& host);
  /// Ends the step's audit and returns what it found.
  AuditReport take_report();

  // Calls around attention; they do nothing unless a row is in the layer and micro-batch. query, attention [B, T, H,
  // D]; logsumexp [B, H, T].
  void begin_forward(Stream& stream, int layer, const ConstTensorView& query);
  void add_forward(Stream& stream, int layer, const RingBlock& block);
  /// sinks: [H], or empty.
  void end_forward(Stream& stream, int layer, const TensorView& attention, const TensorView& logsumexp,
                   const ConstTensorView& sinks = {});
  /// attention: O as forward left it, compared with its double value once more; output_gradient: dO. Both [B, T, H, D].
  void begin_backward(Stream& stream, int layer, const TensorView& attention, const ConstTensorView& output_gradient);
  void add_backward(Stream& stream, int layer, const RingBlock& block);
  /// query_gradient: dq [B, T, H, D], in the accumulator dtype.
  void end_backward(Stream& stream, int layer, const TensorView& query_gradient);

  /// Called with each tensor before its comparison. Empty except in tests, which break things here.
  std::function<void(AuditedTensor, const AuditLocation&, const TensorView&)> before_comparison;
  /// Called with each comparison of an element: |run - double| and its bound. Empty except in tests.
  std::function<void(AuditedTensor, double error, double bound)> compared;

 private:
  struct Row {
    AuditLocation at;
    AuditedRow exact;
    std::int32_t document = 0;
    std::int64_t forwards = 0;
    bool departed = false;
  };
  /// Calls body for each row of the layer and the micro-batch.
  template <class Body>
  void for_rows(int layer, Body&& body) {
    if (micro_ < 0) return;
    for (std::int64_t i = 0; i < drawn_; ++i) {
      Row& row = rows_[static_cast<std::size_t>(i)];
      if (row.at.layer == layer && row.at.micro == micro_) body(row);
    }
  }
  bool sees(const Row& row, std::int64_t position) const;
  /// Reads elements [begin, begin + values) of a tensor on the stream's device.
  void read(Stream& stream, std::span<double> values, const ConstTensorView& x, std::int64_t begin) const;
  /// Calls add for each key of the block that the row sees, after filling key and value.
  void visit(Stream& stream, Row& row, const RingBlock& block, void (AuditedRow::*add)());
  void compare(Stream& stream, Row& row, AuditedTensor tensor, const TensorView& x, std::int64_t begin,
               std::span<const double> exact, double bound);

  const std::vector<AttentionShape> layers_;
  const std::int64_t H_, G_, D_;
  Tensor memory_;                           // float64 [rows, AuditedRow::doubles(D)]
  Tensor keys_, values_, documents_, row_;  // host copies of a GPU's data: a piece of a block, a row
  std::vector<Row> rows_;
  std::vector<double> read_;             // [D]
  std::int64_t drawn_ = 0, micro_ = -1;  // of this step; -1: no audit is running
  AuditReport report_;
};

}  // namespace ringtrain
