// One page of a finished or running run, or of two that are compared: what ran, what was measured (beside a plan of
// it), curves with what happened, evaluations with their intervals, the ring's waits. HTML with SVG inside, without
// scripts and without anything to fetch, at most 1 MB however long a run is. Numbers have four digits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "extras/report/shown_run.h"

namespace ringtrain {

/// How each page begins, and by what a former one is known again.
inline constexpr std::string_view report_head =
    "<!DOCTYPE html>\n<html lang=\"en\" data-written-by=\"ringtrain report\">";

struct RunReport {
  std::string page;
  std::string warning;  // of lines of metrics.jsonl that are no metrics of a run, which the page leaves out; "": none
};
/// Returns the page of one run, or of two that are compared. Throws Error(usage) if a folder holds no metrics.jsonl
/// with a training step, or something there that is no regular file.
RunReport html_report(const std::vector<ReportedRun>& runs);

}  // namespace ringtrain
