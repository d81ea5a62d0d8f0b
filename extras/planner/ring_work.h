// What each rank of a ring meets at each hop, as a run would: shards, needs, schedule, parts and pairs by the product's
// own functions (framework/sequence, parallel/ring), nothing of them written again. Pure; made once, asked often.
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

/// Tokens that messages of a pass carry, summed over ranks: one that passes several ranks counts at each.
struct RingTokens {
  double keys = 0;       // whose keys and values travel
  double gradients = 0;  // whose dk and dv do, in backward
};

class RingWork {
 public:
  /// Throws Error(usage) for a ring of more than largest_ring ranks, or of more than it has tokens.
  explicit RingWork(const RingCase& ring);

  static constexpr int largest_ring = 1024;  // as of a config

  int ranks() const { return case_.ranks; }
  const AttentionMask& mask() const { return case_.mask; }
  /// Returns whether neither a window nor documents limit what a token sees of those before it.
  bool whole() const { return case_.documents.empty() && case_.mask.window == 0; }
  int parts() const { return static_cast<int>(parts_.size()); }
  std::int64_t tokens(int rank) const { return case_.sequences * tokens_[rank]; }
  /// Returns how many of an owner's tokens travel to a rank, or from it with their gradients: of the block, or a part.
  /// All, or under a window those that somebody of the run of hops sees (RingBatch::Round); from the owner itself, of
  /// the run next to it.
  std::int64_t travelling_tokens(int owner, int rank, int part = -1) const;
  /// Returns the tokens of all messages of a pass.
  RingTokens sent() const;
  /// Returns what a rank does at a hop: ring_step of the schedule.
  std::optional<RingStep> step(int rank, int hop) const { return ring_step(needed_, case_.ranks, rank, hop); }
  /// Returns the visible pairs of a rank's queries and a block's keys, over all sequences: of the block, or a part.
  std::int64_t pairs(int rank, int owner, int part = -1) const {
    std::int64_t& known = known_[(std::int64_t{part + 1} * case_.ranks + rank) * case_.ranks + owner];
    if (known < 0) known = count(rank, owner, part);
    return known;
  }

 private:
  std::int64_t count(int rank, int owner, int part) const;
  /// Returns whether only some tokens of a block travel.
  bool sends_some() const { return case_.sequences == 1 && case_.mask.window > 0; }

  /// Neighbours that meet a block one after the other, and what they see of it.
  struct Run {
    int first_hop = 0, last_hop = 0;
    RingPart seen = {};
  };
  RingCase case_;
  std::vector<SegmentList> segments_;  // by rank
  std::vector<std::int64_t> tokens_;   // by rank, of one sequence
  std::vector<RingPart> parts_;
  std::vector<char> needed_;                 // [N, N]
  std::vector<std::vector<Run>> runs_;       // by owner, ascending; none where blocks travel whole
  mutable std::vector<std::int64_t> known_;  // pairs: [parts + 1, N, N], -1: not asked yet
};

/// Returns the starts of documents of about `mean` tokens in a sequence: lengths from an exponential distribution, a
/// pure function of the seed. mean 0: one document.
DocumentStarts sample_documents(std::int64_t length, double mean, std::uint64_t seed = 1);

}  // namespace ringtrain
