#include "layers/audit/attention_audit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "framework/random.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

void widen(std::span<double> to, const ConstTensorView& x, std::int64_t begin) {
  dispatch_dtype(x.dtype, [&]<class S, class A>() {
    const S* const from = x.as<S>() + begin;
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<double>(widened(from[i]));
  });
}

/// Returns the offset of a row in x [B, T, H, D].
std::int64_t begin_of(const AuditLocation& location, const ConstTensorView& x) {
  return ((location.sequence * x.dim(1) + location.token) * x.dim(2) + location.head) * x.dim(3);
}

}  // namespace

const char* name_of(AuditedTensor tensor) {
  constexpr std::array names{"attention", "logsumexp", "grad.query"};
  static_assert(names.size() == audited_tensors);
  return names[static_cast<std::size_t>(tensor)];
}

AttentionAudit::AttentionAudit(Allocator& allocator, const AuditShape& shape)
    : layers_(shape.layers), H_(layers_[0].H), G_(layers_[0].G), D_(layers_[0].D) {
  if (shape.rows == 0) return;
  Allocator& host = allocator.host();
  memory_ = host.make(Tag::workspace, "audited rows", DType::float64, {shape.rows, AuditedRow::doubles(D_)});
  if (!allocator.device().is_cpu()) {
    const std::int64_t tokens = std::min(piece, shape.max_ring_tokens);
    keys_ = host.make(Tag::workspace, "audited keys", shape.dtype, {tokens, G_, D_});
    values_ = host.make(Tag::workspace, "audited values", shape.dtype, {tokens, G_, D_});
    if (shape.documents) documents_ = host.make(Tag::workspace, "audited documents", DType::int32, {tokens});
    row_ = host.make(Tag::workspace, "audited row of the device", DType::uint8, {8 * D_});
  }
  read_.resize(static_cast<std::size_t>(D_));
  rows_.resize(static_cast<std::size_t>(shape.rows));
  if (allocator.planning()) return;
  const auto each = static_cast<std::size_t>(AuditedRow::doubles(D_));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].exact =
        AuditedRow({memory_.as<double>() + i * each, each}, D_, layers_[0].scale, shape.dtype, layers_[0].softcap);
  }
}

void AttentionAudit::begin_step(std::uint64_t seed, std::int64_t step, int rank, std::int64_t micro_batches,
                                std::int64_t sequences, std::int64_t tokens) {
  report_ = {};
  drawn_ = tokens == 0 ? 0 : std::ssize(rows_);  // a rank may have no tokens
  micro_ = -1;
  for (std::int64_t i = 0; i < drawn_; ++i) {
    const auto [low, high, layer, head] = random_words(
        seed, Purpose::audit,
        static_cast<std::uint64_t>(step) << 34 | static_cast<std::uint64_t>(rank) << 8 | static_cast<std::uint64_t>(i));
    const auto location = static_cast<std::int64_t>((std::uint64_t{high} << 32 | low) %
                                                    static_cast<std::uint64_t>(micro_batches * sequences * tokens));
    Row& row = rows_[static_cast<std::size_t>(i)];
    row.at = {.layer = static_cast<std::int64_t>(layer % layers_.size()),
              .head = head % H_,
              .micro = location / (sequences * tokens),
              .sequence = location / tokens % sequences,
              .token = location % tokens};
    row.forwards = 0;
    row.departed = false;
  }
  report_.rows = drawn_;
}

void AttentionAudit::begin_micro_batch(const Batch& host) {
  if (drawn_ == 0) return;
  ++micro_;
  for (std::int64_t i = 0; i < drawn_; ++i) {
    Row& row = rows_[static_cast<std::size_t>(i)];
    if (row.at.micro != micro_) continue;
    row.at.position = position_of(host.segments, row.at.token);
    row.document =
        host.has_documents ? host.documents().as<std::int32_t>()[row.at.sequence * host.T + row.at.token] : 0;
  }
}

AuditReport AttentionAudit::take_report() {
  drawn_ = 0;
  micro_ = -1;
  return report_;
}

/// Compares positions only: the caller compares documents.
bool AttentionAudit::sees(const Row& row, std::int64_t position) const {
  const AttentionMask& mask = layers_[static_cast<std::size_t>(row.at.layer)].mask;
  const std::int64_t distance = row.at.position - position;
  return (!mask.causal || distance >= 0) && (mask.window == 0 || std::abs(distance) < mask.window);
}

void AttentionAudit::read(Stream& stream, std::span<double> values, const ConstTensorView& x,
                          std::int64_t begin) const {
  if (x.device.is_cpu()) return widen(values, x, begin);
  const auto n = std::ssize(values);
  const TensorView copied{row_.view().data, {n}, x.dtype, row_.view().device};
  copy(stream, copied, x.flat(begin, begin + n));
  widen(values, copied, 0);
}

void AttentionAudit::visit(Stream& stream, Row& row, const RingBlock& block, void (AuditedRow::*add)()) {
  const std::int64_t sequence = row.at.sequence - block.first_sequence;
  if (sequence < 0 || sequence >= block.sequences) return;
  const std::int64_t T = block.k.dim(1), head = row.at.head / (H_ / G_);
  const bool on_host = block.k.device.is_cpu();
  const std::int64_t step = on_host ? T : keys_.shape()[0];
  for (std::int64_t begin = 0; begin < T; begin += step) {
    const std::int64_t end = std::min(T, begin + step);
    // Positions grow with the token, but not every token between the first and the last visible one is visible.
    std::int64_t first = begin;
    while (first < end && !sees(row, position_of(block.tokens.segments, first))) ++first;
    if (first == end) continue;
    ConstTensorView k = block.k, v = block.v, documents = block.tokens.documents;
    std::int64_t origin = sequence * T;  // the token of the views that is token 0 of the sequence
    if (!on_host) {
      const Shape piece_shape{end - begin, G_, D_};
      const std::int64_t from = sequence * T + begin, to = sequence * T + end;
      copy_in_order(stream, keys_.view().prefix(piece_shape), k.flat(from * G_ * D_, to * G_ * D_));
      copy_in_order(stream, values_.view().prefix(piece_shape), v.flat(from * G_ * D_, to * G_ * D_));
      if (!documents.empty()) {
        copy_in_order(stream, documents_.view().prefix({end - begin}), documents.flat(from, to));
        documents = documents_;
      }
      stream.synchronize();
      k = keys_;
      v = values_;
      origin = -begin;
    }
    for (std::int64_t token = first; token < end; ++token) {
      if (!sees(row, position_of(block.tokens.segments, token))) continue;
      if (!documents.empty() && documents.as<std::int32_t>()[origin + token] != row.document) continue;
      const std::int64_t at = ((origin + token) * G_ + head) * D_;
      widen(row.exact.key(), k, at);
      widen(row.exact.value(), v, at);
      (row.exact.*add)();
    }
  }
}

void AttentionAudit::compare(Stream& stream, Row& row, AuditedTensor tensor, const TensorView& x, std::int64_t begin,
                             std::span<const double> exact, double bound) {
  if (before_comparison) before_comparison(tensor, row.at, x);
  const std::span<double> run(read_.data(), exact.size());
  read(stream, run, x, begin);
  for (std::size_t i = 0; i < run.size(); ++i) {
    // Attention is not to blame for keys or queries that are NaN or infinite.
    if (!std::isfinite(exact[i]) || !std::isfinite(bound)) continue;
    const double error = std::abs(run[i] - exact[i]);
    if (compared) compared(tensor, error, bound);
    double& largest = report_.error[static_cast<std::size_t>(tensor)];
    const bool departs = !(error <= bound);
    if (departs || bound > 0) largest = std::max(largest, std::isnan(error) ? HUGE_VAL : error / bound);
    if (!departs || row.departed) continue;
    row.departed = true;
    ++report_.differences;
    if (report_.first) continue;
    report_.first = {.at = row.at,
                     .tensor = tensor,
                     .recomputed = row.forwards > 1,
                     .element = static_cast<std::int64_t>(i),
                     .run = run[i],
                     .exact = exact[i],
                     .bound = bound};
  }
}

void AttentionAudit::begin_forward(Stream& stream, int layer, const ConstTensorView& query) {
  for_rows(layer, [&](Row& row) {
    read(stream, row.exact.query(), query, begin_of(row.at, query));
    row.exact.begin_forward();
    ++row.forwards;
  });
}

void AttentionAudit::add_forward(Stream& stream, int layer, const RingBlock& block) {
  for_rows(layer, [&](Row& row) { visit(stream, row, block, &AuditedRow::add_forward); });
}

void AttentionAudit::end_forward(Stream& stream, int layer, const TensorView& attention, const TensorView& logsumexp,
                                 const ConstTensorView& sinks) {
  const std::int64_t T = attention.dim(1);
  for_rows(layer, [&](Row& row) {
    if (!sinks.empty()) {
      double sink = 0;
      read(stream, {&sink, 1}, sinks, row.at.head);
      row.exact.add_sink(sink);
    }
    row.exact.end_forward();
    compare(stream, row, AuditedTensor::attention, attention, begin_of(row.at, attention), row.exact.attention(),
            row.exact.attention_bound());
    const double exact = row.exact.logsumexp();
    compare(stream, row, AuditedTensor::logsumexp, logsumexp, (row.at.sequence * H_ + row.at.head) * T + row.at.token,
            {&exact, 1}, row.exact.logsumexp_bound());
  });
}

void AttentionAudit::begin_backward(Stream& stream, int layer, const TensorView& attention,
                                    const ConstTensorView& output_gradient) {
  for_rows(layer, [&](Row& row) {
    const std::int64_t at = begin_of(row.at, attention);
    compare(stream, row, AuditedTensor::attention, attention, at, row.exact.attention(), row.exact.attention_bound());
    read(stream, row.exact.run_output(), attention, at);
    read(stream, row.exact.output_gradient(), output_gradient, at);
    row.exact.begin_backward();
  });
}

void AttentionAudit::add_backward(Stream& stream, int layer, const RingBlock& block) {
  for_rows(layer, [&](Row& row) { visit(stream, row, block, &AuditedRow::add_backward); });
}

void AttentionAudit::end_backward(Stream& stream, int layer, const TensorView& query_gradient) {
  for_rows(layer, [&](Row& row) {
    row.exact.end_backward();
    compare(stream, row, AuditedTensor::query_gradient, query_gradient, begin_of(row.at, query_gradient),
            row.exact.query_gradient(), row.exact.query_gradient_bound());
  });
}

}  // namespace ringtrain
