// Filling batches. A sequence is a range of a file's tokens. A rank visits its segments of it in slices
// of a few thousand positions, reads each slice and the one label behind it, and keeps its own: the memory of a call
// does not depend on the sequence's length. Labels are thus those of the whole sequence, whatever the cut.
#include "data/loader.h"

#include <algorithm>

#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr std::int64_t slice_positions = 4096;

/// What distinguishes a training window from an evaluation span.
struct SequenceRules {
  std::int64_t length = 0;        // S
  std::int64_t first_target = 0;  // positions before it have no label
  bool documents = false;         // attention, positions and labels stop at a document's end
};

/// Returns the document that holds a token.
std::int64_t document_of(std::span<const std::int64_t> offsets, std::int64_t token) {
  return std::ranges::upper_bound(offsets, token) - offsets.begin() - 1;
}

/// Returns whether the prediction of a token with this weight is a target; document_ends: the token before it is the
/// last of its document.
bool is_target(float weight, bool documents, bool document_ends) {
  return weight > 0 && !(documents && document_ends);
}

/// The rows of a batch that one sequence fills, as host arrays of T elements.
template <class Real>
struct Row {
  std::int32_t *tokens, *labels, *positions, *documents;
  Real* weights;
};

/// Fills one sequence, which starts at token `base` of the file.
template <class Real>
void fill_row(Batch& batch, const Row<Real>& row, const TokenFile& file, std::int64_t base,
              const SequenceRules& rules) {
  const std::span<const std::int64_t> offsets = file.document_offsets();
  const std::int64_t first_document = document_of(offsets, base);
  std::int32_t tokens[slice_positions + 1];
  float weights[slice_positions + 1];
  std::int64_t t = 0;
  for (const Segment& segment : batch.segments) {
    const std::int64_t per_slice = (slice_positions - 1) / segment.stride + 1;
    std::int64_t document = document_of(offsets, base + segment.start);
    for (std::int64_t i = 0; i < segment.count; i += per_slice) {
      const std::int64_t begin = base + segment.position(i);
      const std::int64_t end = base + segment.position(std::min(i + per_slice, segment.count) - 1) + 1;
      const auto count = static_cast<std::size_t>(end - begin) + 1;  // with the last one's label
      file.read(begin, {tokens, count});
      if (file.has_weights()) file.read_weights(begin, {weights, count});
      for (std::int64_t at = begin; at < end; at += segment.stride, ++t) {
        while (at >= offsets[static_cast<std::size_t>(document) + 1]) ++document;
        const bool document_ends = at + 1 == offsets[static_cast<std::size_t>(document) + 1];
        const float weight = file.has_weights() ? weights[at + 1 - begin] : 1.0f;
        const bool target = at - base >= rules.first_target && is_target(weight, rules.documents, document_ends);
        row.tokens[t] = tokens[at - begin];
        row.labels[t] = target ? tokens[at + 1 - begin] : -1;
        row.weights[t] = target ? static_cast<Real>(weight) : Real{0};
        const std::int64_t origin = rules.documents ? std::max(base, offsets[document]) : base;
        row.positions[t] = static_cast<std::int32_t>(at - origin);
        row.documents[t] = rules.documents ? static_cast<std::int32_t>(document - first_document) : 0;
        if (target) {
          batch.weight_sum += static_cast<double>(weight);
          ++batch.target_count;
        }
      }
    }
  }
}

/// Returns what a rank's segments cover of one sequence.
std::vector<SegmentExtent> extents_of(const SegmentList& segments, const TokenFile& file, std::int64_t base,
                                      bool documents) {
  const std::span<const std::int64_t> offsets = file.document_offsets();
  const std::int64_t first_document = document_of(offsets, base);
  std::vector<SegmentExtent> extents;
  for (const Segment& segment : segments) {
    SegmentExtent extent{segment.start, segment.last(), 0, 0};
    if (documents) {
      extent.first_document = static_cast<std::int32_t>(document_of(offsets, base + segment.start) - first_document);
      extent.last_document = static_cast<std::int32_t>(document_of(offsets, base + segment.last()) - first_document);
    }
    extents.push_back(extent);
  }
  return extents;
}

/// Returns where the documents of one sequence begin.
DocumentStarts document_starts_of(const TokenFile& file, std::int64_t base, std::int64_t length) {
  const std::span<const std::int64_t> offsets = file.document_offsets();
  DocumentStarts starts{0};
  for (auto next = std::ranges::upper_bound(offsets, base); next != offsets.end() && *next < base + length; ++next) {
    starts.push_back(*next - base);
  }
  return starts;
}

/// Sets the batch's shape and cut for `sequences` sequences.
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
void fill_unlabelled(Batch& batch, std::int64_t t, std::int32_t token, std::int64_t position) {
  batch.tokens().as<std::int32_t>()[t] = token;
  batch.labels().as<std::int32_t>()[t] = -1;
  batch.positions().as<std::int32_t>()[t] = static_cast<std::int32_t>(position);
  batch.documents().as<std::int32_t>()[t] = 0;
  dispatch_float(batch.weights().dtype, [&]<class Real>() { batch.weights().as<Real>()[t] = 0; });
}

void fill_sequence(Batch& batch, std::int64_t b, const TokenFile& file, std::int64_t base, const SequenceRules& rules) {
  ensure(base >= 0 && base + rules.length < file.token_count(), "a sequence and its last label lie within the file");
  for (std::size_t rank = 0; rank < batch.extents.size(); ++rank) {
    batch.extents[rank].push_back(extents_of(batch.ring_segments[rank], file, base, rules.documents));
  }
  if (rules.documents) batch.document_starts.push_back(document_starts_of(file, base, rules.length));
  dispatch_float(batch.weights().dtype, [&]<class Real>() {
    const std::int64_t begin = b * batch.T;
    fill_row<Real>(batch,
                   {batch.tokens().as<std::int32_t>() + begin, batch.labels().as<std::int32_t>() + begin,
                    batch.positions().as<std::int32_t>() + begin, batch.documents().as<std::int32_t>() + begin,
                    batch.weights().as<Real>() + begin},
                   file, base, rules);
  });
}

}  // namespace

void load_windows(Batch& batch, const Corpus& corpus, std::span<const Sample> samples, std::int64_t seq_len,
                  Packing packing, const ShardSpec& shard) {
  const SequenceRules rules{seq_len, 0, packing == Packing::documents};
  begin_batch(batch, static_cast<std::int64_t>(samples.size()), seq_len, rules.documents, shard);
  for (std::size_t b = 0; b < samples.size(); ++b) {
    const TokenFile& file = *corpus.files[samples[b].file];
    fill_sequence(batch, static_cast<std::int64_t>(b), file, samples[b].window * seq_len, rules);
  }
}

bool window_has_target(const TokenFile& file, std::int64_t window, std::int64_t seq_len, Packing packing) {
  const std::span<const std::int64_t> offsets = file.document_offsets();
  const bool documents = packing == Packing::documents;
  const std::int64_t end = (window + 1) * seq_len;
  float weights[slice_positions];
  std::fill_n(weights, slice_positions, 1.0f);
  std::int64_t at = window * seq_len;
  for (std::int64_t document = document_of(offsets, at); at < end;) {
    const std::int64_t count = std::min(slice_positions, end - at);
    if (file.has_weights()) file.read_weights(at + 1, {weights, static_cast<std::size_t>(count)});
    for (std::int64_t i = 0; i < count; ++i, ++at) {
      while (at >= offsets[static_cast<std::size_t>(document) + 1]) ++document;
      if (is_target(weights[i], documents, at + 1 == offsets[static_cast<std::size_t>(document) + 1])) return true;
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
      fill_unlabelled(batch, t, tokens[position], position);
    }
  }
}

void load_token(Batch& batch, std::int32_t token, std::int64_t position, const ShardSpec& shard) {
  ensure(position <= INT32_MAX, "positions are 32-bit");
  begin_batch(batch, 1, 0, /*documents=*/false, shard);
  batch.ring_segments = {{{0, 1, position + 1}}};  // the text so far: its length chooses longrope's frequencies
  batch.segments = {{position, 1, 1}};
  batch.T = 1;
  fill_unlabelled(batch, 0, token, position);
}

void load_spans(Batch& batch, const TokenFile& file, std::span<const std::int64_t> begins, std::int64_t length,
                std::int64_t targets, const ShardSpec& shard) {
  ensure(targets >= 0 && targets <= length, "targets are the last positions of the span");
  const SequenceRules rules{length, length - targets, false};
  begin_batch(batch, static_cast<std::int64_t>(begins.size()), length, false, shard);
  for (std::size_t b = 0; b < begins.size(); ++b) {
    fill_sequence(batch, static_cast<std::int64_t>(b), file, begins[b], rules);
  }
}

}  // namespace ringtrain
