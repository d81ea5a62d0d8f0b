// The work of each rank of a ring at each hop, as in a run: shards, needs, schedule, parts, and pairs come from the
// product's own functions (framework/sequence, parallel/ring); none of them is reimplemented. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/sequence/segments.h"
#include "parallel/ring/ring_parts.h"
#include "parallel/ring/ring_schedule.h"

namespace ringtrain {

/// A sequence of `length` tokens, or several alike, on a ring.
struct RingCase {
  AttentionMask mask = {};
  Layout layout = Layout::zigzag;
  std::int64_t length = 0;
  int ranks = 1;
  std::int64_t sequences = 1;     // of a micro-batch
  DocumentStarts documents = {};  // of each sequence; empty: one document
  std::int64_t min_part = 0;      // tokens of a part in backward: default_min_part()
};

/// Tokens in the messages of a pass, summed over ranks: a token that passes through several ranks counts for each.
struct RingTokens {
  double keys = 0;       // whose keys and values are transferred
  double gradients = 0;  // whose dk and dv are, in backward
};

class RingWork {
 public:
  /// Throws Error(usage) for a ring of more than largest_ring ranks, or of more than it has tokens.
  explicit RingWork(const RingCase& ring);

  static constexpr int largest_ring = 1024;  // as in a config

  int ranks() const { return case_.ranks; }
  const AttentionMask& mask() const { return case_.mask; }
  /// Returns whether a token sees all tokens before it, without a window or documents.
  bool whole() const { return case_.documents.empty() && case_.mask.window == 0; }
  int parts() const { return static_cast<int>(parts_.size()); }
  std::int64_t tokens(int rank) const { return case_.sequences * tokens_[rank]; }
  /// Returns how many of an owner's tokens are sent to a rank, or from it with their gradients: of the block, or of a
  /// part. Without a window, all; under a window, those that some rank of the run of hops sees (RingBatch::Traveling),
  /// and for the owner itself, those of the run next to it.
  std::int64_t traveling_tokens(int owner, int rank, int part = -1) const;
  /// Returns the tokens of all messages in a pass.
  RingTokens sent() const;
  /// Returns a rank's step at a hop: ring_step of the schedule.
  std::optional<RingStep> step(int rank, int hop) const { return ring_step(needed_, case_.ranks, rank, hop); }
  /// Returns the visible pairs of a rank's queries and a block's keys, over all sequences: of the block, or of a part.
  std::int64_t pairs(int rank, int owner, int part = -1) const {
    std::int64_t& known = known_[(std::int64_t{part + 1} * case_.ranks + rank) * case_.ranks + owner];
    if (known < 0) known = count(rank, owner, part);
    return known;
  }

 private:
  std::int64_t count(int rank, int owner, int part) const;
  /// Returns whether only some tokens of a block are sent.
  bool sends_some() const { return case_.sequences == 1 && case_.mask.window > 0; }

  /// Consecutive ranks that meet a block one after the other, and what they see of it.
  struct Run {
    int first_hop = 0, last_hop = 0;
    RingPart seen = {};
  };
  RingCase case_;
  std::vector<SegmentList> segments_;  // by rank
  std::vector<std::int64_t> tokens_;   // by rank, of one sequence
  std::vector<RingPart> parts_;
  std::vector<char> needed_;                 // [N, N]
  std::vector<std::vector<Run>> runs_;       // by owner, ascending; empty if whole blocks are sent
  mutable std::vector<std::int64_t> known_;  // pairs: [parts + 1, N, N], -1: not computed yet
};

/// Returns the starts of documents of about `mean` tokens in a sequence: lengths from an exponential distribution, as a
/// pure function of the seed. mean 0: one document.
DocumentStarts sample_documents(std::int64_t length, double mean, std::uint64_t seed = 1);

}  // namespace ringtrain
