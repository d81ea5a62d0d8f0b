// One page of a finished or running run: curves, memory planned and used, the ring's waits, evaluation. HTML with SVG
// inside, without scripts and without anything to fetch. Every number comes from metrics.jsonl or the plan; tables and
// tooltips print it with all its digits, captions and axes with six.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/allocator.h"

namespace ringtrain {

/// How each page begins, and by what a former one is known again.
inline constexpr std::string_view report_head =
    "<!DOCTYPE html>\n<html lang=\"en\" data-written-by=\"ringtrain report\">";

struct RunReport {
  std::string page;
  std::string warning;  // of lines of metrics.jsonl that are no metrics of a run, which the page leaves out; "": none
};
/// Returns the page of a run's folder. planned: bytes by rank, or nothing. Throws Error(usage) if the folder holds no
/// metrics.jsonl with a training step, or something there that is no regular file.
RunReport html_report(const std::string& folder, const std::vector<MemoryUse>& planned = {});

}  // namespace ringtrain
