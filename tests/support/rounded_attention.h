// Attention with the rounding of bfloat16 tensor cores, otherwise in double: probabilities and dS are rounded before
// their products, and out when it is stored; delta is computed from the rounded out. It measures the allowed error of a
// bfloat16 kernel. Plain loops; the masks are those of reference_attention.h.
#pragma once

#include "reference/attention.h"

namespace ringtrain::reference {

/// Returns the bfloat16 nearest to x, ties to even.
double rounded(double x);

struct Rounded {
  std::vector<double> out, dq, dk, dv;  // shaped as in Forward and Backward
};

/// Inputs are bfloat16 numbers.
Rounded rounded_attention(const Attention& attention, const std::vector<double>& q, const std::vector<double>& k,
                          const std::vector<double>& v, const std::vector<double>& dout, const Tokens& queries,
                          const Tokens& keys);

}  // namespace ringtrain::reference
