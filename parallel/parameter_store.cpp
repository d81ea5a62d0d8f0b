#include "parallel/parameter_store.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

const StoreOptions& checked(const StoreOptions& options, const Communicator* world) {
  if (options.rank < 0 || options.rank >= options.ranks) {
    fail(ExitCode::usage, "ParameterStore: StoreOptions has rank {} of {} ranks, but ranks count from 0", options.rank,
         options.ranks);
  }
  if (world != nullptr && world->size() != options.ranks) {
    fail(ExitCode::usage, "ParameterStore: StoreOptions has {} ranks, but the communicator {}", options.ranks,
         world->size());
  }
  return options;
}

}  // namespace

ParameterStore::ParameterStore(Allocator& allocator, const ParameterTable& table, Stream& stream,
                               const StoreOptions& options, Communicator* world)
    : table_(&table),
      stream_(&stream),
      options_(checked(options, world)),
      slices_(owned_slices(table, Part::trainable, options.ranks, options.rank)),
      frozen_slices_(owned_slices(table, Part::frozen, options.ranks, options.rank)),
      has_gradient_(table.all().size(), true),
      has_sum_(table.buckets(), false) {
  if (options_.ranks == 1) options_.shard = Shard::optimizer;
  for (const Part part : both_parts) {
    shard_offsets_.push_back(shard_offsets(table, part, options.ranks, options.rank));
    const std::int64_t size = shards_weights() ? shard_offsets_.back().back() : table.flat_size(part);
    const char* const name = part == Part::frozen ? "frozen weights" : "weights";
    weights_.push_back(size > 0 ? allocator.make(Tag::weights, name, options.dtype, {size}) : Tensor{});
  }
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    buckets_to_finish_ += table.bucket_size(bucket, Part::trainable) > 0 ? 1 : 0;
  }
  to_finish_ = trained_below(table.buckets());
  if (has_gradients()) {
    const std::int64_t size = shards_gradients() ? shard_offsets_[0].back() : table.flat_size();
    gradients_ = allocator.make(Tag::gradients, "gradients", accumulator(options.dtype), {size});
  }
  if (options_.ranks == 1) return;
  if (!shards_weights()) {
    changed_.assign(table.buckets(), false);
    gathers_.resize(table.buckets());
  }
  make_places(allocator);
  if (has_gradients()) make_stagings(allocator);
  if (world && (has_gradients() || shards_weights())) {
    communicator_ = world->split(0);
    communicator_->set_stream(stream);
  }
}

/// Returns the place that a bucket has when it is in use. Layers take turns, so that one comes, or its gradients are
/// reduced, while its neighbour is computed with. The ends of the model, its largest buckets, share a place unless they
/// are used together.
std::size_t ParameterStore::place_of(int bucket) const {
  if (bucket == 0) return 0;
  if (bucket == table_->buckets() - 1) return table_->ends_together ? 3 : 0;
  return bucket % 2 == 0 ? 1 : 2;
}

/// Returns the staging in which a bucket's gradients are summed. Backward begins with the last bucket, whose staging is
/// the large one; from there on layers take turns.
std::size_t ParameterStore::staging_of(int bucket) const {
  const int last = table_->buckets() - 1;
  if (bucket == 0 || bucket == last) return 0;
  return (last - bucket) % 2 == 1 ? 1 : 0;
}

void ParameterStore::make_places(Allocator& allocator) {
  places_.resize(table_->ends_together ? 4 : 3);
  std::vector<std::int64_t> weights(places_.size(), 0), gradients(places_.size(), 0);
  for (int bucket = 0; bucket < table_->buckets(); ++bucket) {
    const std::size_t at = place_of(bucket);
    const std::int64_t trainable = table_->bucket_size(bucket, Part::trainable);
    weights[at] = std::max(weights[at], trainable + table_->bucket_size(bucket, Part::frozen));
    gradients[at] = std::max(gradients[at], trainable);
  }
  for (std::size_t at = 0; at < places_.size(); ++at) {
    if (shards_weights() && weights[at] > 0) {
      places_[at].weights =
          allocator.make(Tag::weights, fmt::format("gathered weights {}", at), options_.dtype, {weights[at]});
    }
    if (has_gradients() && shards_gradients() && gradients[at] > 0) {
      places_[at].gradients = allocator.make(Tag::gradients, fmt::format("gradients of a bucket {}", at),
                                             gradients_.view().dtype, {gradients[at]});
    }
  }
}

void ParameterStore::make_stagings(Allocator& allocator) {
  reductions_.resize(2);
  if (options_.order == SumOrder::by_communicator) return;
  std::array<std::int64_t, 2> largest{};
  for (int bucket = 0; bucket < table_->buckets(); ++bucket) {
    std::int64_t& size = largest[staging_of(bucket)];
    size = std::max(size, table_->bucket_size(bucket, Part::trainable));
  }
  for (std::size_t at = 0; at < reductions_.size(); ++at) {
    if (largest[at] == 0) continue;
    reductions_[at].staging =
        allocator.make(Tag::workspace, fmt::format("gradient reduction {}", at), gradients_.view().dtype,
                       {reduce_scatter_staging(largest[at], options_.ranks)});
  }
}

// ---- Weights -------------------------------------------------------------------------------------------------------

/// Returns where a part of a bucket is while it is gathered.
TensorView ParameterStore::place_weights(int bucket, Part part) const {
  const std::int64_t trainable = table_->bucket_size(bucket, Part::trainable);
  const std::int64_t begin = part == Part::frozen ? trainable : 0;
  return places_[place_of(bucket)].weights.view().flat(begin, begin + table_->bucket_size(bucket, part));
}

void ParameterStore::finish_gathers(Place& place) {
  for (AllGather& gather : place.gathers) {
    if (gather.pending()) gather.finish();
  }
}

void ParameterStore::check_bucket(const char* call, int bucket) const {
  if (bucket >= 0 && bucket < table_->buckets()) return;
  fail(ExitCode::usage, "{}: there is no bucket {}; the model has {}, from 0", call, bucket, table_->buckets());
}

const Parameter& ParameterStore::parameter_of(const char* call, int id) const {
  if (id < 0 || std::cmp_greater_equal(id, table_->all().size())) [[unlikely]] {
    fail(ExitCode::usage, "{}: there is no parameter {}; the table has {}, from 0", call, id, table_->all().size());
  }
  return (*table_)[id];
}

/// Returns a parameter that has a gradient here.
const Parameter& ParameterStore::trained_parameter(const char* call, int id) const {
  const Parameter& parameter = parameter_of(call, id);
  if (parameter.part != Part::trainable) [[unlikely]] {
    fail(ExitCode::usage, "{}: {} is frozen and has no gradient; ask trains(id) before", call, parameter.name);
  }
  if (!has_gradients()) [[unlikely]] {
    fail(ExitCode::usage, "{}: the gradient of {}, but the store was made without StoreOptions::gradients", call,
         parameter.name);
  }
  return parameter;
}

/// Returns the communicator of what is gathered and reduced.
Communicator& ParameterStore::ranks_for(const char* call) const {
  if (!communicator_) {
    fail(
        ExitCode::usage,
        "{}: the store of {} ranks has no communicator; give its constructor one (it is kept where weights are sharded "
        "or StoreOptions::gradients is set)",
        call, options_.ranks);
  }
  return *communicator_;
}

/// Begins to gather a bucket of whole weights if its owners have changed it.
void ParameterStore::begin_gather(int bucket) {
  if (changed_.empty() || !changed_[bucket]) return;
  gathers_[bucket].start(ranks_for("acquire"),
                         weights_[0].view().flat(table_->bucket_begin(bucket), table_->bucket_end(bucket)),
                         {.operation = "gathering the weights of a bucket", .layer = bucket});
  changed_[bucket] = false;
}

void ParameterStore::prefetch(int bucket) {
  check_bucket("prefetch", bucket);
  if (!shards_weights()) return begin_gather(bucket);
  Place& place = places_[place_of(bucket)];
  if (place.bucket == bucket) return;
  if (place.users != 0) {
    fail(ExitCode::usage,
         "acquire: bucket {} is to take the place of bucket {}, which is not released; a layer holds its weights for "
         "its forward or backward alone",
         bucket, place.bucket);
  }
  finish_gathers(place);  // of a bucket that nobody came for
  Communicator& ranks = ranks_for("acquire");
  place.bucket = bucket;
  for (const Part part : both_parts) {
    if (table_->bucket_size(bucket, part) == 0) continue;
    const TensorView gathered = place_weights(bucket, part);
    const Slice own = owned(bucket, part);
    if (own.count() > 0) {
      copy_in_order(*stream_, gathered.flat(own.begin, own.end), own_part(weights_[index_of(part)], bucket, part));
    }
    place.gathers[index_of(part)].start(ranks, gathered,
                                        {.operation = "gathering the weights of a bucket", .layer = bucket});
  }
}

void ParameterStore::acquire(int bucket) {
  prefetch(bucket);
  if (!shards_weights()) {
    if (!gathers_.empty() && gathers_[bucket].pending()) gathers_[bucket].finish();
    return;
  }
  Place& place = places_[place_of(bucket)];
  finish_gathers(place);
  ++place.users;
}

void ParameterStore::release(int bucket) {
  check_bucket("release", bucket);
  if (!shards_weights()) return;
  Place& place = places_[place_of(bucket)];
  if (place.bucket != bucket || place.users == 0) {
    fail(ExitCode::usage, "release: bucket {} is not acquired; each acquire has one release", bucket);
  }
  --place.users;
}

TensorView ParameterStore::weight(int id) const {
  const Parameter& parameter = parameter_of("weight", id);
  const std::int64_t count = parameter.shape.numel();
  if (!shards_weights()) {
    const int bucket = parameter.bucket;
    if (!changed_.empty() && (changed_[bucket] || gathers_[bucket].pending())) [[unlikely]] {
      fail(
          ExitCode::usage,
          "weight: {} is read before its bucket {} was gathered from the ranks that changed it; hold a WeightsGuard of "
          "that bucket",
          parameter.name, bucket);
    }
    return weights_[index_of(parameter.part)]
        .view()
        .flat(parameter.offset, parameter.offset + count)
        .reshape(parameter.shape);
  }
  const Place& place = places_[place_of(parameter.bucket)];
  if (place.bucket != parameter.bucket || place.users == 0) [[unlikely]] {
    fail(ExitCode::usage,
         "weight: {} is read while its bucket {} is not acquired, so another may stand in its place; hold a "
         "WeightsGuard "
         "of that bucket",
         parameter.name, parameter.bucket);
  }
  const std::int64_t begin = parameter.offset - table_->bucket_begin(parameter.bucket, parameter.part);
  return place_weights(parameter.bucket, parameter.part).flat(begin, begin + count).reshape(parameter.shape);
}

void ParameterStore::weights_changed() {
  if (options_.ranks == 1) return;
  for (Place& place : places_) {
    if (place.users != 0) {
      fail(ExitCode::usage, "weights_changed: bucket {} is not released; weights change while no layer uses them",
           place.bucket);
    }
    finish_gathers(place);
    place.bucket = none;
  }
  if (shards_weights()) return;
  ranks_for("weights_changed");
  for (AllGather& gather : gathers_) {  // of a bucket that nobody came for
    if (gather.pending()) gather.finish();
  }
  for (int bucket = 0; bucket < table_->buckets(); ++bucket) {
    changed_[bucket] = table_->bucket_size(bucket, Part::trainable) > 0;
  }
}

void ParameterStore::gather_changed() {
  for (std::size_t bucket = 0; bucket < gathers_.size(); ++bucket) {
    begin_gather(static_cast<int>(bucket));
    if (gathers_[bucket].pending()) gathers_[bucket].finish();
  }
}

// ---- Gradients -----------------------------------------------------------------------------------------------------

void ParameterStore::begin_step() {
  if (!padding_is_zero_ && !shards_gradients()) fill(*stream_, gradients_, 0.0);
  padding_is_zero_ = true;
  has_gradient_.assign(table_->all().size(), false);
  has_sum_.assign(table_->buckets(), false);
  to_finish_ = trained_below(table_->buckets());
}

void ParameterStore::begin_backward(bool last) {
  last_ = last;
  to_finish_ = trained_below(table_->buckets());
}

int ParameterStore::trained_below(int bucket) const {
  while (--bucket >= 0 && table_->bucket_size(bucket, Part::trainable) == 0) continue;
  return bucket;
}

bool ParameterStore::begin_gradient(int id) {
  const Parameter& parameter = trained_parameter("begin_gradient", id);
  if (parameter.bucket > to_finish_) [[unlikely]] {
    fail(ExitCode::usage,
         "begin_gradient: the gradient of {} is written after its bucket {} was finished in this micro-batch, so it "
         "would be lost; write it before finish, and call begin_backward once a micro-batch",
         parameter.name, parameter.bucket);
  }
  if (shards_gradients()) {
    const std::size_t place = place_of(parameter.bucket);
    for (Reduction& reduction : reductions_) {  // of what was there before, which another rank may still read
      if (reduction.bucket != none && place_of(reduction.bucket) == place) finish_reduction(reduction);
    }
  }
  const bool adds = has_gradient_[id];
  has_gradient_[id] = true;
  return adds;
}

/// Returns where a bucket's gradients of this rank are, before their reduction.
TensorView ParameterStore::bucket_gradients(int bucket) const {
  if (shards_gradients()) {
    return places_[place_of(bucket)].gradients.view().flat(0, table_->bucket_size(bucket, Part::trainable));
  }
  return gradients_.view().flat(table_->bucket_begin(bucket), table_->bucket_end(bucket));
}

TensorView ParameterStore::gradient(int id) const {
  const Parameter& parameter = trained_parameter("gradient", id);
  const std::int64_t begin = parameter.offset - table_->bucket_begin(parameter.bucket);
  return bucket_gradients(parameter.bucket).flat(begin, begin + parameter.shape.numel()).reshape(parameter.shape);
}

TensorView ParameterStore::gradient_to_add_to(int id) {
  const bool adds = begin_gradient(id);
  const TensorView result = gradient(id);
  if (!adds) fill(*stream_, result, 0.0);
  return result;
}

/// A place held another bucket before: what pads this one's parameters is some of its gradients.
void ParameterStore::zero_padding(int bucket) {
  const TensorView flat = bucket_gradients(bucket);
  std::int64_t end = 0;  // of what is a gradient so far
  const auto zero_until = [&](std::int64_t begin) {
    if (end < begin) fill(*stream_, flat.flat(end, begin), 0.0);
  };
  for (const Parameter& parameter : table_->all()) {
    if (parameter.bucket != bucket || parameter.part != Part::trainable) continue;
    const std::int64_t begin = parameter.offset - table_->bucket_begin(bucket);
    zero_until(begin);
    end = begin + parameter.shape.numel();
  }
  zero_until(flat.numel());
}

void ParameterStore::finish(int bucket, bool all_written) {
  check_bucket("finish", bucket);
  if (table_->bucket_size(bucket, Part::trainable) == 0) return;
  if (bucket != to_finish_) {
    fail(ExitCode::usage,
         "finish: bucket {} is finished {}; backward finishes each bucket once a micro-batch, from the last to the "
         "first",
         bucket, to_finish_ == none ? "after all were" : fmt::format("where bucket {} comes next", to_finish_));
  }
  for (std::size_t id = 0; id < table_->all().size(); ++id) {
    if (table_->all()[id].bucket != bucket || !trains(static_cast<int>(id))) continue;
    if (!has_gradient_[id]) {
      if (all_written) {
        fail(ExitCode::usage,
             "finish: backward wrote no gradient of {}; it calls begin_gradient for each parameter of the layer that "
             "trains, and writes what begin_gradient announced",
             table_->all()[id].name);
      }
      gradient_to_add_to(static_cast<int>(id));
    }
    if (shards_gradients()) has_gradient_[id] = false;  // the next micro-batch begins anew: sums are in the slice
  }
  to_finish_ = trained_below(bucket);
  if (last_) ++finished_;
  if (options_.ranks == 1) return;
  if (shards_gradients()) zero_padding(bucket);
  if (shards_gradients() || last_) reduce(bucket);
}

void ParameterStore::reduce(int bucket) {
  Reduction& reduction = reductions_[staging_of(bucket)];
  if (reduction.bucket != none) finish_reduction(reduction);
  reduction.bucket = bucket;
  reduction.scatter.start(ranks_for("finish"), bucket_gradients(bucket), reduction.staging,
                          {.operation = "gradient reduction of a bucket", .layer = bucket}, options_.order);
}

void ParameterStore::finish_reduction(Reduction& reduction) {
  const int bucket = std::exchange(reduction.bucket, none);
  reduction.scatter.finish(*stream_);
  if (!shards_gradients()) return;
  const Slice own = owned(bucket, Part::trainable);
  if (own.count() == 0) return;
  const TensorView reduced = bucket_gradients(bucket).flat(own.begin, own.end);
  const TensorView sum = own_part(gradients_, bucket, Part::trainable);
  if (has_sum_[bucket]) {
    add(*stream_, sum, reduced);
  } else {
    copy_in_order(*stream_, sum, reduced);
  }
  has_sum_[bucket] = true;
}

void ParameterStore::finish_step() {
  if (finished_ != buckets_to_finish_) {
    fail(ExitCode::usage,
         "finish_step: of {} buckets with something to train {} were finished in the step's last micro-batch, the one "
         "that begin_backward(true) begins; backward finishes each of them",
         buckets_to_finish_, finished_);
  }
  finished_ = 0;
  for (Reduction& reduction : reductions_) {
    if (reduction.bucket != none) finish_reduction(reduction);
  }
}

// ---- Slices --------------------------------------------------------------------------------------------------------

std::vector<ParameterSlice> ParameterStore::held() const {
  std::vector<ParameterSlice> held;
  if (shards_weights()) {
    held = slices_;
    held.insert(held.end(), frozen_slices_.begin(), frozen_slices_.end());
    std::ranges::sort(held, {}, &ParameterSlice::parameter);
  } else {
    for (const Parameter& parameter : table_->all()) {
      held.push_back({.parameter = static_cast<int>(held.size()), .begin = 0, .end = parameter.shape.numel()});
    }
  }
  return held;
}

/// Returns this rank's slice of a bucket's part, within the bucket.
Slice ParameterStore::owned(int bucket, Part part) const {
  return slice_of(table_->bucket_size(bucket, part), options_.ranks, options_.rank);
}

/// Returns where that slice is in a buffer of this rank's slices alone.
TensorView ParameterStore::own_part(const Tensor& shard, int bucket, Part part) const {
  const std::int64_t begin = shard_offsets_[index_of(part)][bucket];
  return shard.view().flat(begin, begin + owned(bucket, part).count());
}

/// Returns where a slice begins in this rank's slices, padding included.
std::int64_t ParameterStore::place_in_shard(const ParameterSlice& slice) const {
  const Parameter& parameter = (*table_)[slice.parameter];
  const int bucket = parameter.bucket;
  const Slice own = owned(bucket, parameter.part);
  return shard_offsets_[index_of(parameter.part)][bucket] +
         (parameter.offset - table_->bucket_begin(bucket, parameter.part)) + slice.begin - own.begin;
}

TensorView ParameterStore::weights(const ParameterSlice& slice) const {
  const Parameter& parameter = (*table_)[slice.parameter];
  const std::int64_t begin = shards_weights() ? place_in_shard(slice) : parameter.offset + slice.begin;
  return weights_[index_of(parameter.part)].view().flat(begin, begin + slice.count());
}

TensorView ParameterStore::gradients(const ParameterSlice& first, const ParameterSlice& last) const {
  const auto begin_of = [&](const ParameterSlice& slice) {
    return shards_gradients() ? place_in_shard(slice) : (*table_)[slice.parameter].offset + slice.begin;
  };
  return gradients_.view().flat(begin_of(first), begin_of(last) + last.count());
}

bool ParameterStore::follows(const ParameterSlice& slice, const ParameterSlice& before) const {
  return slice.parameter == before.parameter + 1 && slice.begin == 0 &&
         before.end == (*table_)[before.parameter].shape.numel();
}

void ParameterStore::clear_weights() {
  for (const Tensor& weights : weights_) {
    if (!weights.empty()) fill(*stream_, weights, 0);
  }
}

}  // namespace ringtrain
