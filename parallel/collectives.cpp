#include "parallel/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "framework/checks/argument_check.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

/// Begins an exchange with every other rank, of sent(to) and received(from). In round k, all ranks send to the rank k
/// positions further, so that no rank is the target of all.
template <class Sent, class Received>
void exchange_with_all(Communicator& communicator, std::vector<Request>& requests, const Sent& sent,
                       const Received& received, const CallSite& site, const CallerLine& line = CallerLine::current()) {
  const int ranks = communicator.size(), rank = communicator.rank();
  for (int k = 1; k < ranks; ++k) {
    const int to = (rank + k) % ranks, from = (rank - k + ranks) % ranks;
    requests.push_back(communicator.exchange(sent(to), to, received(from), from, site, line));
  }
}

void wait_all(Communicator& communicator, std::vector<Request>& requests) {
  for (const Request request : requests) communicator.wait(request);
  requests.clear();
}

/// Returns every rank's values, in rank order.
template <class T>
std::vector<T> gather(Communicator& communicator, std::span<const T> values, const CallSite& site) {
  const std::size_t n = values.size();
  const Shape shape{static_cast<std::int64_t>(n)};
  std::vector<T> all(n * static_cast<std::size_t>(communicator.size()));
  const auto part = [&](int rank) { return all.data() + n * static_cast<std::size_t>(rank); };
  std::copy(values.begin(), values.end(), part(communicator.rank()));
  std::vector<Request> requests;
  const auto own_part = [&](int) { return host_view(values.data(), shape); };
  exchange_with_all(
      communicator, requests, own_part, [&](int from) { return host_view(part(from), shape); }, site);
  wait_all(communicator, requests);
  return all;
}

/// values[i] = combine over ranks, in rank order.
template <class T, class Combine>
void all_reduce(Communicator& communicator, std::span<T> values, const CallSite& site, const Combine& combine) {
  const std::vector<T> all = gather(communicator, std::span<const T>(values), site);
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) {
    T result = all[i];
    for (std::size_t at = i + n; at < all.size(); at += n) result = combine(result, all[at]);
    values[i] = result;
  }
}

}  // namespace

void all_reduce_sum(Communicator& communicator, std::span<double> values, const CallSite& site) {
  all_reduce(communicator, values, site, [](double a, double b) { return a + b; });
}

void all_reduce_sum(Communicator& communicator, std::span<std::int64_t> values, const CallSite& site) {
  all_reduce(communicator, values, site, [](std::int64_t a, std::int64_t b) { return a + b; });
}

void all_reduce_max(Communicator& communicator, std::span<std::int64_t> values, const CallSite& site) {
  all_reduce(communicator, values, site, [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
}

std::vector<std::int64_t> all_gather(Communicator& communicator, std::span<const std::int64_t> values,
                                     const CallSite& site) {
  return gather(communicator, values, site);
}

std::vector<double> all_gather(Communicator& communicator, std::span<const double> values, const CallSite& site) {
  return gather(communicator, values, site);
}

void broadcast(Communicator& communicator, const TensorView& x, int root, const CallSite& site,
               const CallerLine& line) {
  if (root < 0 || root >= communicator.size()) {
    refuse_call(line, fmt::format("broadcast from root {}, but ranks are 0 to {}", root, communicator.size() - 1));
  }
  require_memory(x, "x", line);
  std::vector<Request> requests;
  if (communicator.rank() == root) {
    for (int k = 1; k < communicator.size(); ++k) {
      requests.push_back(communicator.exchange(x, (root + k) % communicator.size(), {}, no_peer, site, line));
    }
  } else {
    requests.push_back(communicator.exchange({}, no_peer, x, root, site, line));
  }
  wait_all(communicator, requests);
}

std::string broadcast_text(Communicator& communicator, std::string text, int root, const CallSite& site) {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(communicator, host_view(&length, {1}), root, site);
  text.resize(length);
  broadcast(communicator, host_view(reinterpret_cast<std::uint8_t*>(text.data()), {length}), root, site);
  return text;
}

Slice slice_of(std::int64_t n, int ranks, int rank, const CallerLine& line) {
  if (n < 0 || ranks < 1 || rank < 0 || rank >= ranks) [[unlikely]] {
    refuse_call(line, fmt::format("rank {} of {} has no slice of {} elements: the rank must be 0 to ranks - 1, the "
                                  "number of elements 0 or more",
                                  rank, ranks, n));
  }
  const std::int64_t base = n / ranks, extra = n % ranks;
  const std::int64_t begin = base * rank + std::min<std::int64_t>(rank, extra);
  return {begin, begin + base + (rank < extra ? 1 : 0)};
}

std::int64_t reduce_scatter_staging(std::int64_t n, int ranks, const CallerLine& line) {
  return (ranks - 1) * slice_of(n, ranks, 0, line).count();
}

namespace {

/// Refuses a reduce-scatter whose tensors do not fit.
void check_summed(const Communicator& communicator, const TensorView& x, const TensorView& staging, SumOrder order,
                  const CallerLine& line) {
  require_memory(x, "x", line);
  if (x.dtype != DType::float32 && x.dtype != DType::float64 && x.dtype != DType::bfloat16) {
    refuse_call(line, fmt::format("x has dtype {}, not float32, float64 or bfloat16", name_of(x.dtype)));
  }
  if (order == SumOrder::by_communicator) {
    if (communicator.reduces_gpu_memory() && !x.device.is_cpu()) return;
    refuse_call(line, fmt::format("SumOrder::by_communicator cannot sum x on {}: it needs GPU memory, and "
                                  "reduces_gpu_memory() must return true",
                                  x.device.name()));
  }
  const std::int64_t needed = reduce_scatter_staging(x.numel(), communicator.size());
  if (needed == 0) return;
  require_argument(staging.flat(), "staging", {{"n", any_size}}, x.dtype, x.device, line);
  if (staging.numel() < needed) {
    refuse_call(line, fmt::format("staging has {} elements, but must have reduce_scatter_staging({}, {}) = {} or more",
                                  staging.numel(), x.numel(), communicator.size(), needed));
  }
}

}  // namespace

void ReduceScatter::start(Communicator& communicator, const TensorView& x, const TensorView& staging,
                          const CallSite& site, SumOrder order, const CallerLine& line) {
  require_call(!pending(), "a ReduceScatter must be finished before it is started again", line);
  const int ranks = communicator.size(), rank = communicator.rank();
  check_summed(communicator, x, staging, order, line);
  x_ = x.flat();
  order_ = order;
  communicator_ = &communicator;
  if (order == SumOrder::by_communicator) {
    requests_.push_back(communicator.reduce_scatter(x_, site));
    return;
  }
  const std::int64_t n = x_.numel();
  const std::int64_t count = slice_of(n, ranks, rank).count();
  staging_ = staging.prefix({ranks - 1, count});  // in rank order, without this rank
  const auto theirs = [&](int to) {
    const Slice slice = slice_of(n, ranks, to);
    return x_.flat(slice.begin, slice.end);
  };
  const auto staged = [&](int from) {
    const int row = from < rank ? from : from - 1;
    return staging_.rows(row, row + 1);
  };
  post_together(communicator, [&] { exchange_with_all(communicator, requests_, theirs, staged, site, line); });
}

void ReduceScatter::finish(Stream& stream, const CallerLine& line) {
  require_call(pending(), "a ReduceScatter must be started before it is finished", line);
  Communicator& communicator = *std::exchange(communicator_, nullptr);
  wait_all(communicator, requests_);
  if (order_ == SumOrder::by_communicator) return;
  const int ranks = communicator.size(), rank = communicator.rank();
  const Slice slice = slice_of(x_.numel(), ranks, rank);
  const TensorView sum = x_.flat(slice.begin, slice.end);
  const auto staged = [&](int row) { return staging_.rows(row, row + 1).flat(); };
  // Rank order without another buffer: the terms before this rank are summed in the first row, and a + b = b + a.
  for (int row = 1; row < rank; ++row) add(stream, staged(0), staged(row));
  if (rank > 0) add(stream, sum, staged(0));
  for (int row = rank; row < ranks - 1; ++row) add(stream, sum, staged(row));
}

void AllGather::start(Communicator& communicator, const TensorView& x, const CallSite& site, const CallerLine& line) {
  require_call(!pending(), "an AllGather must be finished before it is started again", line);
  require_memory(x, "x", line);
  communicator_ = &communicator;
  const TensorView flat = x.flat();
  if (communicator.reduces_gpu_memory() && !x.device.is_cpu()) {
    requests_.push_back(communicator.all_gather(flat, site));
    return;
  }
  const int ranks = communicator.size();
  const auto part = [&](int rank) {
    const Slice slice = slice_of(flat.numel(), ranks, rank);
    return flat.flat(slice.begin, slice.end);
  };
  const auto own_part = [&](int) { return part(communicator.rank()); };
  post_together(communicator, [&] { exchange_with_all(communicator, requests_, own_part, part, site, line); });
}

void AllGather::finish(const CallerLine& line) {
  require_call(pending(), "an AllGather must be started before it is finished", line);
  wait_all(*std::exchange(communicator_, nullptr), requests_);
}

}  // namespace ringtrain
