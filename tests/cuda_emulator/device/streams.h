// Streams, events and the work on them.
//
// A stream is a queue. A call only queues its work; it runs on the host thread that needs it: one that waits for a
// stream, an event, or the device, or copies synchronously. The StreamOrder determines what else runs, and when. A
// stream that waits for an event first lets the event's stream run up to the record. So work that is not ordered before
// the work that reads its result has not run yet (or, with others_first, work that should come later has already run),
// and a test sees a wrong result. Work that needs concurrent work of other streams, such as an exchange, is a Meeting:
// it blocks its stream until the other side arrives.
//
// Events report times of streams that run concurrently, whatever the emulator runs first. A stream has a clock: a piece
// of work begins when the stream has finished the previous one, not before the call that queued it, and takes as long
// as it took the CPU, or as tests specify (Durations). A record is the clock's time; a wait advances it to that of the
// record.
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

/// One record of an event: a point in a stream.
struct Record {
  std::shared_ptr<Stream> stream;
  bool done = false;
  Clock::time_point when{};  // by its stream's clock
};

class Meeting {
 public:
  enum class Progress { none, some, all };
  virtual ~Meeting() = default;
  /// Its stream has reached it, for the first time or again: does what can be done now.
  virtual Progress advance() = 0;
  /// Returns the streams that must advance before it can.
  virtual std::vector<std::shared_ptr<Stream>> awaited() const = 0;
};

struct Work {
  Trace::Kind kind = Trace::Kind::kernel;
  std::string name;
  std::size_t bytes = 0;
  std::function<void()> run;           // of a wait, record or meeting: empty
  std::shared_ptr<Record> record{};    // for which it waits, or which it makes
  std::shared_ptr<Meeting> meeting{};  // if it is one
  Clock::time_point given{};
  std::size_t blocks = 0;  // of a kernel
};

struct Stream {
  int device = 0;
  int number = 0;  // as in a trace
  bool destroyed = false;
  bool busy = false;      // a host function of it runs, without the lock
  bool stepping = false;  // a thread determines what it waits for
  std::deque<Work> work;
  std::uint64_t queued = 0, ran = 0;
  Clock::time_point clock{};  // when the work that ran is done
};

/// Thrown to the call that ran a kernel that ended with its device (stop_kernel).
struct LostDevice {
  int device;
};

/// The streams of the process, behind one lock, which every function here requires.
class Streams {
 public:
  using Lock = std::unique_lock<std::mutex>;

  std::shared_ptr<Stream> create(int device);
  /// The stream is no longer known by its handle; its work still runs when the device synchronizes.
  void destroy(const std::shared_ptr<Stream>& stream);
  std::shared_ptr<Stream> default_stream(int device);

  void add(const std::shared_ptr<Stream>& stream, Work work, Lock& lock);
  /// Queues a record and returns it.
  std::shared_ptr<Record> add_record(const std::shared_ptr<Stream>& stream, Lock& lock);

  /// Runs the work that is needed to finish the stream's queued work.
  void finish(const std::shared_ptr<Stream>& stream, Lock& lock);
  void finish(const std::shared_ptr<Record>& record, Lock& lock);
  void finish_device(int device, Lock& lock);
  /// Runs one piece of the stream's work, if there is any and no host function precedes it. Returns whether something
  /// ran.
  bool nudge(const std::shared_ptr<Stream>& stream, Lock& lock);
  /// Lets waiting threads check again: a meeting may have advanced without a stream.
  void wake() { changed_.notify_all(); }

  /// Drops all queued work of a device: some of it failed.
  void drop(int device);
  /// Drops everything.
  void clear();

  void seed(std::uint64_t seed) { random_.seed(seed); }

  // Total numbers of pieces of work: clear() does not reset them.
  std::size_t default_work = 0;  // queued on default streams
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
  /// Advances the host's time to at least this.
  static void reach(Clock::time_point when, Lock& lock);

  std::vector<std::shared_ptr<Stream>> streams_;   // with work or a handle, in the order of their creation
  std::vector<std::shared_ptr<Stream>> defaults_;  // one per device, made when first used
  int created_ = 0;
  std::condition_variable changed_;
  std::mt19937_64 random_;
};

}  // namespace cuda_emulator
