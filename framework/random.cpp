#include "framework/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "framework/error.h"

namespace ringtrain {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

std::array<std::uint32_t, 4> random_words(std::uint64_t seed, Purpose purpose, std::uint64_t index) {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     static_cast<std::uint32_t>(purpose), 0},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

std::uint64_t random_bits(std::uint64_t seed, Purpose purpose, std::uint64_t index) {
  const auto words = random_words(seed, purpose, index);
  return std::uint64_t{words[1]} << 32 | words[0];
}

namespace {
double unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1.0p-53;
}
}  // namespace

double random_uniform(std::uint64_t seed, Purpose purpose, std::uint64_t index) {
  const auto words = random_words(seed, purpose, index);
  return unit(words[1], words[0]);
}

double random_normal(std::uint64_t seed, Purpose purpose, std::uint64_t index) {
  const auto words = random_words(seed, purpose, index);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit(words[1], words[0])));
  return radius * std::cos(2.0 * std::numbers::pi * unit(words[3], words[2]));
}

std::uint64_t random_below(std::uint64_t seed, Purpose purpose, std::uint64_t index, std::uint64_t bound) {
  ensure(bound >= 1, "random_below needs a bound of at least 1");
  // The high half of a 64 x 64 product: its bias is below bound / 2^64.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{random_bits(seed, purpose, index)} * bound) >> 64);
}

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, Purpose purpose, std::uint64_t index)
    : size_(size), seed_(seed), index_(index), purpose_(purpose) {
  ensure(size >= 1 && index < (std::uint64_t{1} << 24),
         "a permutation has at least one element and an index below 2^24");
  half_bits_ = (std::bit_width(size - 1) + 1) / 2;
  if (half_bits_ == 0) half_bits_ = 1;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  ensure(i < size_, "outside the permutation");
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = i >> half_bits_, right = i & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      // The key is (permutation's index, round, right half); the counter keeps the three apart below 2^32 elements per
      // half.
      const std::uint64_t word = random_bits(seed_ ^ (index_ * 0x9E3779B97F4A7C15u), purpose_, round << 40 | right);
      const std::uint64_t next = left ^ (word & mask);
      left = right;
      right = next;
    }
    i = left << half_bits_ | right;
  } while (i >= size_);
  return i;
}

}  // namespace ringtrain
