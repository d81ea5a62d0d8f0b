// Turns token files into batches. Each rank reads only its own positions. Used by one rank's thread; no communication.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "data/batch.h"
#include "data/corpus.h"
#include "data/sampler.h"
#include "framework/config/choices.h"
#include "framework/sequence/mesh.h"

namespace ringtrain {

/// Fills batch with this rank's shard of the samples' windows. Unless packing is concat, positions restart at each
/// document and at the window's start, the first token of a document is not a target, and has_documents is true. A
/// window with fewer than seq_len tokens is padded with a separate document without targets.
void load_windows(Batch& batch, const Corpus& corpus, std::span<const Sample> samples, std::int64_t seq_len,
                  Packing packing, const ShardSpec& shard);

/// The end of a window: the last tokens of it.
struct WindowEnd {
  std::int64_t tokens = 0;  // at most seq_len; all tokens if the window has fewer
  bool whole = false;       // true: the rest of the window precedes them, without targets; false: nothing does
};

/// Fills batch with this rank's shard of the ends of the samples' windows, by the rules of load_windows. The targets
/// are the same in both cases of `whole`. Sequences have seq_len tokens if whole, otherwise end.tokens.
void load_window_ends(Batch& batch, const Corpus& corpus, std::span<const Sample> samples, std::int64_t seq_len,
                      Packing packing, const ShardSpec& shard, const WindowEnd& end);

/// Returns whether a window has a token to learn from, i.e. whether load_windows finds a target in it. Reads the file's
/// weights from the window's first token to its first target, but no tokens.
bool window_has_target(const TokenFile& file, const WindowRange& window, Packing packing);

/// Fills batch with this rank's shard of one sequence of tokens: positions from 0, one document, no labels.
void load_sequence(Batch& batch, std::span<const std::int32_t> tokens, const ShardSpec& shard);

/// Fills batch with one token at a position, the same on every rank, because the ring does not cut it. No label.
void load_token(Batch& batch, std::int32_t token, std::int64_t position, const ShardSpec& shard);

/// Fills batch with this rank's shard of one span of `length` tokens from `begin` for each entry: positions from 0, one
/// document. Labels are the next tokens, kept only for the last `targets` positions (weights as in the file).
/// begin_token: replaces the file's token at position 0, and precedes its first one if a span begins at -1.
void load_spans(Batch& batch, const TokenFile& file, std::span<const std::int64_t> begins, std::int64_t length,
                std::int64_t targets, const ShardSpec& shard, std::optional<std::int32_t> begin_token = {});

}  // namespace ringtrain
