// One page of a finished or running run, or of two that are compared: facts, measurements (next to a plan of the run),
// curves with events, evaluations with their intervals, and the ring's waits. HTML with SVG inside, without scripts and
// without external resources, at most 1 MB for a run of any length. Numbers have four digits.
#pragma once

#include <string>
#include <string_view>

#include "extras/report/shown_run.h"

namespace ringtrain {

/// The beginning of each page, by which an earlier one is recognized.
inline constexpr std::string_view report_head =
    "<!DOCTYPE html>\n<html lang=\"en\" data-written-by=\"ringtrain report\">";

struct RunReport {
  std::string page;
  std::string warning;  // about lines of metrics.jsonl that are not a run's metrics and are left out; "": none
};
/// Returns the page of one run, or of two that are compared, from their folders and what is known in addition. Throws
/// Error(usage) if a folder has no metrics.jsonl with a training step, or it is not a regular file.
RunReport html_report(ShownRuns runs);

}  // namespace ringtrain
