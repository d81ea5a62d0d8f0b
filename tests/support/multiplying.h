// Sets how bfloat16 is multiplied while a test runs.
#pragma once

#include "kernels/bfloat16_products.h"

namespace ringtrain::testing {

/// Makes kernels multiply bfloat16 in one way until the end of a scope.
class Multiplying {
 public:
  explicit Multiplying(BFloat16Products products) : before_(bfloat16_products()) { use_bfloat16_products(products); }
  ~Multiplying() { use_bfloat16_products(before_); }
  Multiplying(const Multiplying&) = delete;
  Multiplying& operator=(const Multiplying&) = delete;

 private:
  BFloat16Products before_;
};

}  // namespace ringtrain::testing
