// Streams, events and the work on them.
//
// A stream is a queue. A call only queues its work; it runs on the host thread that needs it: one that waits for a
// stream, an event or the device, or copies synchronously. What is run besides, and when, is the StreamOrder. A stream
// that waits for an event first lets the event's stream run up to the record. So work that nothing orders before what
// reads its result has not run yet (or, with others_first, work that should come later has run already), and a test
// sees a wrong result. Work that needs work of other streams under way beside it, as an exchange does, is a Meeting: it
// holds its stream up until that is there.
//
// Events tell times of streams that run side by side, whatever the emulator runs first. A stream has a clock: a piece
// of work begins when the stream has done what was before it, not before the call that gave it, and takes as long as it
// took the CPU, or as tests say (Durations). A record is the clock's time; a wait moves it to that of the record.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cuda_emulator.h"

namespace cuda_emulator {

struct Stream;
using Clock = std::chrono::steady_clock;

/// One record of an event: a place in a stream.
struct Record {
  std::shared_ptr<Stream> stream;
  bool done = false;
  Clock::time_point when{};  // by its stream's clock
};

class Meeting {
 public:
  enum class Progress { none, some, all };
  virtual ~Meeting() = default;
  /// Its stream has come to it, for the first time or again: does what can be done now.
  virtual Progress advance() = 0;
  /// Returns the streams that must go on before it can.
  virtual std::vector<std::shared_ptr<Stream>> awaited() const = 0;
};

struct Work {
  Trace::Kind kind = Trace::Kind::kernel;
  std::string name;
  std::size_t bytes = 0;
  std::function<void()> run;           // of a wait, record or meeting: empty
  std::shared_ptr<Record> record{};    // that it waits for or makes
  std::shared_ptr<Meeting> meeting{};  // that it is
  Clock::time_point given{};
  std::size_t blocks = 0;  // of a kernel
};

struct Stream {
  int device = 0;
  int number = 0;  // as in a trace
  bool destroyed = false;
  bool busy = false;      // a host function of it runs, without the lock
  bool stepping = false;  // a thread looks for what it waits for
  std::deque<Work> work;
  std::uint64_t queued = 0, ran = 0;
  Clock::time_point clock{};  // when it has done what ran
};

/// Thrown to the call by which a kernel ran that ended with the device (stop_kernel).
struct LostDevice {
  int device;
};

/// The streams of the process, behind one lock, which every function here wants held.
class Streams {
 public:
  using Lock = std::unique_lock<std::mutex>;

  std::shared_ptr<Stream> create(int device);
  /// The stream is no longer known by its handle; its work still runs when the device synchronises.
  void destroy(const std::shared_ptr<Stream>& stream);
  std::shared_ptr<Stream> default_stream(int device);

  void add(const std::shared_ptr<Stream>& stream, Work work, Lock& lock);
  /// Queues a record and returns it.
  std::shared_ptr<Record> add_record(const std::shared_ptr<Stream>& stream, Lock& lock);

  /// Runs what is needed for the stream's work queued so far to be done.
  void finish(const std::shared_ptr<Stream>& stream, Lock& lock);
  void finish(const std::shared_ptr<Record>& record, Lock& lock);
  void finish_device(int device, Lock& lock);
  /// Runs one piece of the stream's work, if there is any and no host function stands before it. Returns whether
  /// something ran.
  bool nudge(const std::shared_ptr<Stream>& stream, Lock& lock);
  /// Lets waiting threads look again: a meeting may have got further by what no stream did.
  void wake() { changed_.notify_all(); }

  /// Forgets all queued work of a device: something of it failed.
  void drop(int device);
  /// Forgets everything.
  void clear();

  void seed(std::uint64_t seed) { random_.seed(seed); }

  // Pieces of work, ever: clear() leaves these.
  std::size_t default_work = 0;  // given to default streams
  std::size_t given = 0, finished = 0;
  bool tracing = false;
  std::vector<Trace> trace;

 private:
  bool step(Stream& stream, Lock& lock);
  bool take_step(Stream& stream, Lock& lock);
  bool meet(const std::shared_ptr<Meeting>& meeting, Lock& lock);
  void forget_if_done(const Stream& stream);
  void run_others(Stream& needed, Lock& lock);
  template <class Done>
  void run_until(Stream& stream, Lock& lock, Done done);
  void run(Stream& stream, Work work, Lock& lock);
  void note(const Stream& stream, const Work& work);
  /// Lets the host be no earlier than this.
  static void reach(Clock::time_point when, Lock& lock);

  std::vector<std::shared_ptr<Stream>> streams_;   // with work or a handle, in the order they were created in
  std::vector<std::shared_ptr<Stream>> defaults_;  // one a device, made when first used
  int created_ = 0;
  std::condition_variable changed_;
  std::mt19937_64 random_;
};

}  // namespace cuda_emulator
