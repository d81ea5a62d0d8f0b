// Groups of the emulated NCCL: what one rank sends and receives between ncclGroupStart and ncclGroupEnd. On its stream
// a group is one piece of work, as NCCL's kernel is. It begins when the stream comes to it, moves a message once the
// other side's group has begun, too, and ends with its last message; until then the stream stands. So messages that
// need each other and are not of one group wait for ever. Between two ranks messages meet in the order in which they
// were posted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nccl/nccl_communicators.h"

namespace cuda_emulator::nccl {

class Group : public Meeting {
 public:
  struct Message {
    bool sends = false;
    void* data = nullptr;
    std::size_t bytes = 0;
    int type = ncclUint8;  // and of which collective it is a part
    int peer = 0;
    bool done = false;
    Half other{};              // once it is known
    std::uint64_t number = 0;  // of those to, or from, a rank of another process
    bool needs = false;        // and that rank has been told that it is waited for
  };
  /// What a collective does when its group begins, and once all messages have moved.
  struct Closing {
    std::function<void()> begin, end;
  };

  Group(ncclComm& of, std::shared_ptr<cuda_emulator::Stream> on) : communicator(of), stream(std::move(on)) {}
  Progress advance() override;
  std::vector<std::shared_ptr<cuda_emulator::Stream>> awaited() const override;
  /// Moves what can move now. Returns whether anything did.
  bool move();
  /// Returns whether it has begun and may go on.
  bool runs() const { return begun && !hangs && !aborted; }
  bool done() const;

  ncclComm& communicator;
  const std::shared_ptr<cuda_emulator::Stream> stream;
  std::vector<Message> messages;
  std::vector<Closing> closings;
  bool begun = false, hangs = false, aborted = false, wrong = false;
};

/// What a side of a message is.
struct Side {
  std::size_t bytes;
  int type;
};
/// Returns what is told of a message whose sides differ.
std::string disagreement(int sender, const Side& sent, int receiver, const Side& received);

ncclResult_t group_start();
ncclResult_t bucket_end();
/// A send or a receive: of the thread's open group, or a group by itself.
ncclResult_t post(const char* function, bool sends, void* data, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t communicator, cudaStream_t stream);
/// An operation of the thread's open group, or of a group by itself: add(runtime, communicator, group) puts into the
/// group what it is made of, and returns what is wrong with it, or nothing.
ncclResult_t post_operation(const char* function, ncclComm_t communicator, cudaStream_t stream,
                            const std::function<std::string(Runtime&, ncclComm&, Group&)>& add);
std::size_t size_of(ncclDataType_t type);
/// Returns what is wrong with memory that a rank of the communicator reads or writes, or nothing.
std::string fault_of_memory(Runtime& runtime, const ncclComm& communicator, const void* data, std::size_t bytes);
/// Returns whether the calling thread has a group open.
bool in_group();

/// Goes on with the group that the communicator is posting: once both sides of every connection have come, and enough
/// polls were taken, puts it on its stream. Returns whether that is done.
bool go_on_posting(Runtime& runtime, ncclComm& communicator, Streams::Lock& lock);

}  // namespace cuda_emulator::nccl
