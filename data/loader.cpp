// Fills batches. A sequence is a range of a file's tokens. A rank reads its segments of the range in slices of a few
// thousand positions, each with the label after it, and keeps its own tokens. So the memory of a call does not depend
// on the sequence's length, and labels are those of the whole sequence, however it is cut.
#include "data/loader.h"

#include <algorithm>

#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr std::int64_t slice_positions = 4096;

/// The differences between a training window and an evaluation span.
struct SequenceRules {
  std::int64_t length = 0;                       // S
  std::int64_t held = 0;                         // tokens of the file; the positions from there to S are padding
  std::int64_t first_target = 0;                 // earlier positions have no label
  bool documents = false;                        // attention, positions and labels stop at a document's end
  std::optional<std::int32_t> begin_token = {};  // the token at position 0
};

/// Returns the document that contains a token.
std::int64_t document_of(std::span<const std::int64_t> offsets, std::int64_t token) {
  return std::ranges::upper_bound(offsets, token) - offsets.begin() - 1;
}

/// Returns whether the prediction of a token with this weight is a target; document_ends: the previous token is the
/// last of its document.
bool is_target(float weight, bool documents, bool document_ends) {
  return weight > 0 && !(documents && document_ends);
}

/// The documents of one sequence, which starts at token `base` of a file, numbered from its first one.
class SequenceDocuments {
 public:
  SequenceDocuments(const TokenFile& file, std::int64_t base, const SequenceRules& rules)
      : offsets_(file.document_offsets()), base_(base), rules_(rules), first_(document_of(offsets_, base)) {}

  /// Returns the document at a position.
  std::int32_t at(std::int64_t position) const {
    if (!rules_.documents) return 0;
    const std::int64_t inside = std::min(position, rules_.held - 1);
    return static_cast<std::int32_t>(document_of(offsets_, base_ + inside) - first_ + (position > inside));
  }
  /// Returns the positions at which documents begin.
  DocumentStarts starts() const {
    DocumentStarts starts{0};
    for (auto next = std::ranges::upper_bound(offsets_, base_); next != offsets_.end() && *next < base_ + rules_.held;
         ++next) {
      starts.push_back(*next - base_);
    }
    if (rules_.held < rules_.length) starts.push_back(rules_.held);
    return starts;
  }
  /// Returns the extents of a rank's segments.
  std::vector<SegmentExtent> extents(const SegmentList& segments) const {
    std::vector<SegmentExtent> extents;
    for (const Segment& segment : segments) {
      extents.push_back({segment.start, segment.last(), at(segment.start), at(segment.last())});
    }
    return extents;
  }

 private:
  std::span<const std::int64_t> offsets_;
  std::int64_t base_;
  const SequenceRules& rules_;
  std::int64_t first_;
};

/// Fills sequence b of a batch, which starts at token `base` of the file.
template <class Real>
void fill_row(Batch& batch, std::int64_t b, const TokenFile& file, std::int64_t base, const SequenceRules& rules) {
  auto* const row_tokens = batch.tokens().as<std::int32_t>();
  auto* const row_labels = batch.labels().as<std::int32_t>();
  auto* const row_positions = batch.positions().as<std::int32_t>();
  auto* const row_documents = batch.documents().as<std::int32_t>();
  auto* const row_weights = batch.weights().as<Real>();
  const std::span<const std::int64_t> offsets = file.document_offsets();
  const std::int64_t first_document = document_of(offsets, base), held = base + rules.held;
  const std::int32_t filler = SequenceDocuments(file, base, rules).at(rules.held);
  std::int32_t tokens[slice_positions + 1];
  float weights[slice_positions + 1];
  std::int64_t t = b * batch.T;
  for (const Segment& segment : batch.segments) {
    const std::int64_t per_slice = (slice_positions - 1) / segment.stride + 1;
    std::int64_t document = document_of(offsets, std::min(base + segment.start, held - 1));
    for (std::int64_t i = 0; i < segment.count; i += per_slice) {
      const std::int64_t begin = base + segment.position(i);
      const std::int64_t end = base + segment.position(std::min(i + per_slice, segment.count) - 1) + 1;
      if (begin < held) {  // including the label of the last one, which a file's last token does not have
        const std::int64_t first = std::max(begin, std::int64_t{0});  // position -1 is the begin token
        const auto count = static_cast<std::size_t>(std::min(std::min(end, held) + 1, file.token_count()) - first);
        file.read(first, {tokens + (first - begin), count});
        if (file.has_weights()) file.read_weights(first, {weights + (first - begin), count});
      }
      for (std::int64_t at = begin; at < end; at += segment.stride, ++t) {
        if (at >= held) {
          row_tokens[t] = file.end_of_document();
          row_labels[t] = -1;
          row_weights[t] = Real{0};
          row_positions[t] = static_cast<std::int32_t>(at - held);
          row_documents[t] = filler;
          continue;
        }
        while (at >= offsets[static_cast<std::size_t>(document) + 1]) ++document;
        const bool document_ends = at + 1 == offsets[static_cast<std::size_t>(document) + 1];
        const bool has_label = at + 1 < file.token_count();
        const float weight = !has_label ? 0.0f : file.has_weights() ? weights[at + 1 - begin] : 1.0f;
        const bool target = at - base >= rules.first_target && is_target(weight, rules.documents, document_ends);
        row_tokens[t] = at == base && rules.begin_token ? *rules.begin_token : tokens[at - begin];
        row_labels[t] = target ? tokens[at + 1 - begin] : -1;
        row_weights[t] = target ? static_cast<Real>(weight) : Real{0};
        const std::int64_t origin = rules.documents ? std::max(base, offsets[document]) : base;
        row_positions[t] = static_cast<std::int32_t>(at - origin);
        row_documents[t] = rules.documents ? static_cast<std::int32_t>(document - first_document) : 0;
        if (target) {
          batch.weight_sum += static_cast<double>(weight);
          ++batch.target_count;
        }
      }
    }
  }
}

/// Sets the batch's shape and its cut for `sequences` sequences.
void begin_batch(Batch& batch, std::int64_t sequences, std::int64_t length, bool documents, const ShardSpec& shard) {
  ensure(length <= INT32_MAX, "positions are 32-bit");
  batch.ring_segments.clear();
  for (int rank = 0; rank < shard.ring_size; ++rank) {
    batch.ring_segments.push_back(shard_segments(shard.layout, length, shard.ring_size, rank));
  }
  batch.segments = batch.ring_segments[shard.ring_rank];
  batch.extents.assign(shard.ring_size, {});
  batch.document_starts.clear();
  batch.B = sequences;
  batch.T = token_count(batch.segments);
  batch.has_documents = documents;
  batch.weight_sum = 0;
  batch.target_count = 0;
}

/// Sets token t of a batch of one sequence.
void fill_unlabeled(Batch& batch, std::int64_t t, std::int32_t token, std::int64_t position) {
  batch.tokens().as<std::int32_t>()[t] = token;
  batch.labels().as<std::int32_t>()[t] = -1;
  batch.positions().as<std::int32_t>()[t] = static_cast<std::int32_t>(position);
  batch.documents().as<std::int32_t>()[t] = 0;
  dispatch_float(batch.weights().dtype, [&]<class Real>() { batch.weights().as<Real>()[t] = 0; });
}

void fill_sequence(Batch& batch, std::int64_t b, const TokenFile& file, std::int64_t base, const SequenceRules& rules) {
  ensure(base >= (rules.begin_token ? -1 : 0) && rules.held >= 1 && rules.held <= rules.length &&
             base + rules.held <= file.token_count(),
         "a sequence lies within the file");
  ensure(rules.documents || base + rules.held < file.token_count(), "so does its last label");
  const SequenceDocuments documents(file, base, rules);
  for (std::size_t rank = 0; rank < batch.extents.size(); ++rank) {
    batch.extents[rank].push_back(documents.extents(batch.ring_segments[rank]));
  }
  if (rules.documents) batch.document_starts.push_back(documents.starts());
  dispatch_float(batch.weights().dtype, [&]<class Real>() { fill_row<Real>(batch, b, file, base, rules); });
}

}  // namespace

void load_windows(Batch& batch, const Corpus& corpus, std::span<const Sample> samples, std::int64_t seq_len,
                  Packing packing, const ShardSpec& shard) {
  load_window_ends(batch, corpus, samples, seq_len, packing, shard, {.tokens = seq_len, .whole = true});
}

void load_window_ends(Batch& batch, const Corpus& corpus, std::span<const Sample> samples, std::int64_t seq_len,
                      Packing packing, const ShardSpec& shard, const WindowEnd& end) {
  const std::int64_t length = end.whole ? seq_len : end.tokens;
  begin_batch(batch, static_cast<std::int64_t>(samples.size()), length, parts_documents(packing), shard);
  for (std::size_t b = 0; b < samples.size(); ++b) {
    const auto file = static_cast<std::size_t>(samples[b].file);
    const WindowRange window = corpus.window(file, samples[b].window, seq_len);
    const std::int64_t before = std::max(window.tokens - end.tokens, std::int64_t{0});
    const std::int64_t skipped = end.whole ? 0 : before;
    fill_sequence(batch, static_cast<std::int64_t>(b), *corpus.files[file], window.begin + skipped,
                  {length, window.tokens - skipped, before - skipped, parts_documents(packing)});
  }
}

bool window_has_target(const TokenFile& file, const WindowRange& window, Packing packing) {
  const std::span<const std::int64_t> offsets = file.document_offsets();
  const std::int64_t end = window.begin + window.tokens;
  float weights[slice_positions];
  std::fill_n(weights, slice_positions, 1.0f);
  std::int64_t at = window.begin;
  for (std::int64_t document = document_of(offsets, at); at < end;) {
    const std::int64_t count = std::min(slice_positions, end - at);
    const auto labels = static_cast<std::size_t>(std::min(count, file.token_count() - at - 1));
    if (file.has_weights()) file.read_weights(at + 1, {weights, labels});
    for (std::int64_t i = 0; i < count; ++i, ++at) {
      while (at >= offsets[static_cast<std::size_t>(document) + 1]) ++document;
      const bool document_ends = at + 1 == offsets[static_cast<std::size_t>(document) + 1];
      if (at + 1 < file.token_count() && is_target(weights[i], parts_documents(packing), document_ends)) return true;
    }
  }
  return false;
}

void load_sequence(Batch& batch, std::span<const std::int32_t> tokens, const ShardSpec& shard) {
  begin_batch(batch, 1, std::ssize(tokens), /*documents=*/false, shard);
  for (std::size_t rank = 0; rank < batch.extents.size(); ++rank) {
    std::vector<SegmentExtent> extents;
    for (const Segment& segment : batch.ring_segments[rank]) extents.push_back({segment.start, segment.last(), 0, 0});
    batch.extents[rank].push_back(extents);
  }
  std::int64_t t = 0;
  for (const Segment& segment : batch.segments) {
    for (std::int64_t i = 0; i < segment.count; ++i, ++t) {
      const std::int64_t position = segment.position(i);
      fill_unlabeled(batch, t, tokens[position], position);
    }
  }
}

void load_token(Batch& batch, std::int32_t token, std::int64_t position, const ShardSpec& shard) {
  ensure(position <= INT32_MAX, "positions are 32-bit");
  begin_batch(batch, 1, 0, /*documents=*/false, shard);
  batch.ring_segments = {{{0, 1, position + 1}}};  // the text so far; longrope's frequencies depend on its length
  batch.segments = {{position, 1, 1}};
  batch.T = 1;
  fill_unlabeled(batch, 0, token, position);
}

void load_spans(Batch& batch, const TokenFile& file, std::span<const std::int64_t> begins, std::int64_t length,
                std::int64_t targets, const ShardSpec& shard, std::optional<std::int32_t> begin_token) {
  ensure(targets >= 0 && targets <= length, "targets are the last positions of the span");
  const SequenceRules rules{length, length, length - targets, false, begin_token};
  begin_batch(batch, static_cast<std::int64_t>(begins.size()), length, false, shard);
  for (std::size_t b = 0; b < begins.size(); ++b) {
    fill_sequence(batch, static_cast<std::int64_t>(b), file, begins[b], rules);
  }
}

}  // namespace ringtrain
