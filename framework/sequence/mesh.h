// A rank's position in the mesh, and how its shard of a sequence is cut. Pure values.
#pragma once

#include "framework/sequence/segments.h"

namespace ringtrain {

/// A rank's position in the mesh: world rank = data * sequence_ranks + sequence.
struct Mesh {
  int data = 1;
  int sequence = 1;
  /// Returns the number of ranks.
  int size() const { return data * sequence; }
  /// Returns a rank's index among the data ranks.
  int data_index(int rank) const { return rank / sequence; }
  /// Returns a rank's index in its ring.
  int sequence_index(int rank) const { return rank % sequence; }
};

/// How a rank's shard of every sequence is cut.
struct ShardSpec {
  Layout layout = Layout::contiguous;
  int ring_size = 1;
  int ring_rank = 0;
};

}  // namespace ringtrain
