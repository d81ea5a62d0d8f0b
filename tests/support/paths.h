// Where this checkout and its programs stand. One file knows (paths.cpp): a compiler cache serves every checkout.
#pragma once

#include <string>

namespace ringtrain::testing {

// Returns the root of the checkout that the tests were built from, without a slash at its end.
std::string source_folder();

// Returns the folder of the built programs, without a slash at its end.
std::string binary_folder();

}  // namespace ringtrain::testing
