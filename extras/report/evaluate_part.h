// What `evaluate --output` wrote, on a page: perplexity by length and by position, LongPPL, another model beside it,
// and heat maps of tasks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ringtrain {

/// Returns charts and tables of one file's object; a part that the object has not is left out. path: the file's. Throws
/// std::exception if a part has another form.
std::string evaluate_part(const std::string& path, const nlohmann::json& evaluation);

}  // namespace ringtrain
