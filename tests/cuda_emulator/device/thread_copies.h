// The cp.async copies of one thread: pieces of 16 bytes in committed groups, which land in order.
#pragma once

#include <cstddef>
#include <vector>

namespace cuda_emulator {

class ThreadCopies {
 public:
  void issue(void* to, const void* from, bool valid);
  void commit();
  /// Returns when all but the newest `groups` committed groups have landed.
  void wait(int groups);
  void reset();

 private:
  struct Piece {
    void* to;
    const void* from;  // null: zeros
  };
  void land(std::size_t pieces);

  std::vector<Piece> pieces_;      // that have not landed, oldest first
  std::vector<std::size_t> ends_;  // of the committed groups, in pieces_
};

}  // namespace cuda_emulator
