// When queued work runs.
#include "device/streams.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "api/settings.h"
#include "device/block.h"
#include "device/device_memory.h"

namespace cuda_emulator {

std::shared_ptr<Stream> Streams::create(int device) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->number = ++created_;
  streams_.push_back(stream);
  return stream;
}

void Streams::destroy(const std::shared_ptr<Stream>& stream) {
  stream->destroyed = true;
  forget_if_done(*stream);
}

void Streams::forget_if_done(const Stream& stream) {
  if (!stream.destroyed || !stream.work.empty()) return;
  std::erase_if(streams_, [&](const auto& known) { return known.get() == &stream; });
}

std::shared_ptr<Stream> Streams::default_stream(int device) {
  const auto at = static_cast<std::size_t>(device);
  if (defaults_.size() <= at) defaults_.resize(at + 1);
  if (!defaults_[at]) {
    defaults_[at] = std::make_shared<Stream>();
    defaults_[at]->device = device;
    streams_.push_back(defaults_[at]);
  }
  return defaults_[at];
}

// --- Queueing ------------------------------------------------------------------------------------------------------

void Streams::add(const std::shared_ptr<Stream>& stream, Work work, Lock& lock) {
  if (stream->number == 0) ++default_work;
  if (work.meeting) changed_.notify_all();  // others may have waited for it
  if (!settings().durations.instant_host) work.given = Clock::now();
  stream->work.push_back(std::move(work));
  ++stream->queued;
  ++given;
  if (settings().streams == StreamOrder::eager) {
    while (!stream->work.empty() && step(*stream, lock)) {
    }
  }
}

std::shared_ptr<Record> Streams::add_record(const std::shared_ptr<Stream>& stream, Lock& lock) {
  auto record = std::make_shared<Record>();
  record->stream = stream;
  add(stream, {Trace::Kind::record, "record", 0, {}, record}, lock);
  return record;
}

// --- Running -------------------------------------------------------------------------------------------------------

void Streams::note(const Stream& stream, const Work& work) {
  if (tracing) trace.push_back({work.kind, stream.device, stream.number, work.name, work.bytes, work.blocks});
}

namespace {

/// Returns the duration of a piece of work by its stream's clock, if it took so long here.
Clock::duration duration_of(const Work& work, Clock::duration here) {
  const Durations& set = settings().durations;
  switch (work.kind) {
    case Trace::Kind::kernel:
    case Trace::Kind::matrix_product:
    case Trace::Kind::set:
      return set.kernel.value_or(here);
    case Trace::Kind::copy:
      return work.name == "device to device" ? set.device_copy.value_or(here) : here;
    default:
      return here;
  }
}

}  // namespace

void Streams::reach(Clock::time_point when, Lock& lock) {
  if (when <= Clock::now()) return;
  lock.unlock();
  std::this_thread::sleep_until(when);
  lock.lock();
}

void Streams::run(Stream& stream, Work work, Lock& lock) {
  note(stream, work);
  const Clock::time_point begin = Clock::now();
  if (work.kind == Trace::Kind::host_function) {
    // It may wait for other threads, so it runs without the lock.
    stream.busy = true;
    lock.unlock();
    work.run();
    lock.lock();
    stream.busy = false;
  } else {
    open_device_memory();
    try {
      work.run();
    } catch (const StoppedKernel&) {
      drop(stream.device);
      changed_.notify_all();
      throw LostDevice{stream.device};
    } catch (...) {
      drop(stream.device);
      changed_.notify_all();
      throw;
    }
  }
  stream.clock += duration_of(work, Clock::now() - begin);
}

// Runs one piece of work of the stream, or of one for which it waits. Returns false if nothing of them can run now: a
// host function that another thread runs precedes it, the other side of a meeting is missing, or the wait is circular.
bool Streams::step(Stream& stream, Lock& lock) {
  if (stream.busy || stream.stepping) return false;
  struct Guard {
    explicit Guard(Stream& of) : guarded(of) { guarded.stepping = true; }
    ~Guard() { guarded.stepping = false; }
    Stream& guarded;
  };
  const Guard guard(stream);
  return take_step(stream, lock);
}

// The stream's first piece of work is a meeting that has not ended: does as much of it as is possible.
bool Streams::meet(const std::shared_ptr<Meeting>& meeting, Lock& lock) {
  for (const auto& awaited : meeting->awaited()) {
    if (!awaited->work.empty() && step(*awaited, lock)) return true;
  }
  return false;
}

bool Streams::take_step(Stream& stream, Lock& lock) {
  Work& front = stream.work.front();
  if (front.kind == Trace::Kind::wait && !front.record->done) {
    const auto awaited = front.record->stream;
    return step(*awaited, lock);
  }
  if (front.meeting) {
    const std::shared_ptr<Meeting> meeting = front.meeting;
    open_device_memory();
    const Meeting::Progress progress = meeting->advance();
    if (progress == Meeting::Progress::none) return meet(meeting, lock);
    changed_.notify_all();
    if (progress == Meeting::Progress::some) return true;
  }
  Work work = std::move(front);
  stream.work.pop_front();
  stream.clock = std::max(stream.clock, work.given);
  if (work.meeting) {
    note(stream, work);
    stream.clock = std::max(stream.clock, Clock::now());  // when its other sides arrived
  } else if (work.kind == Trace::Kind::record) {
    note(stream, work);
    work.record->done = true;
    work.record->when = stream.clock;
  } else if (work.kind == Trace::Kind::wait) {
    note(stream, work);
    stream.clock = std::max(stream.clock, work.record->when);
  } else {
    run(stream, std::move(work), lock);
  }
  ++stream.ran;
  ++finished;
  forget_if_done(stream);
  changed_.notify_all();
  return true;
}

// Runs other work before a needed piece of work, as the order of streams requires.
void Streams::run_others(Stream& needed, Lock& lock) {
  if (streams_.empty()) return;
  if (settings().streams == StreamOrder::others_first) {
    const auto others = streams_;
    for (auto other = others.rbegin(); other != others.rend(); ++other) {
      while (other->get() != &needed && !(*other)->work.empty() && step(**other, lock)) {
      }
    }
  } else if (settings().streams == StreamOrder::shuffled) {
    while (random_() % 2 == 0) {
      const std::shared_ptr<Stream> other = streams_[random_() % streams_.size()];
      if (other.get() != &needed && !other->work.empty()) step(*other, lock);
    }
  }
}

template <class Done>
void Streams::run_until(Stream& stream, Lock& lock, Done done) {
  while (!done()) {
    run_others(stream, lock);
    if (done()) break;
    if (!step(stream, lock)) changed_.wait(lock);
  }
}

void Streams::finish(const std::shared_ptr<Stream>& stream, Lock& lock) {
  const std::uint64_t target = stream->queued;
  run_until(*stream, lock, [&] { return stream->ran >= target; });
  reach(stream->clock, lock);
}

void Streams::finish(const std::shared_ptr<Record>& record, Lock& lock) {
  run_until(*record->stream, lock, [&] { return record->done; });
  reach(record->when, lock);
}

void Streams::finish_device(int device, Lock& lock) {
  const auto all = streams_;
  for (const auto& stream : all) {
    if (stream->device == device) finish(stream, lock);
  }
}

bool Streams::nudge(const std::shared_ptr<Stream>& stream, Lock& lock) {
  return !stream->work.empty() && step(*stream, lock);
}

void Streams::drop(int device) {
  for (const auto& stream : streams_) {
    if (stream->device != device) continue;
    for (const Work& work : stream->work) {
      if (work.kind == Trace::Kind::record) work.record->done = true;
    }
    stream->work.clear();
    stream->ran = stream->queued;
  }
}

void Streams::clear() {
  for (const auto& stream : streams_) stream->work.clear();  // records refer to their stream: a cycle
  streams_.clear();
  defaults_.clear();
  created_ = 0;
  tracing = false;
  trace.clear();
  random_.seed(settings().streams_seed);
}

}  // namespace cuda_emulator
