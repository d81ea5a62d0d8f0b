// The paths of this checkout and its programs. Only one file has them (paths.cpp), so a compiler cache serves every
// checkout.
#pragma once

#include <string>

namespace ringtrain::testing {

// Returns the root of the checkout from which the tests were built, without a trailing slash.
std::string source_folder();

// Returns the folder of the built programs, without a trailing slash.
std::string binary_folder();

}  // namespace ringtrain::testing
