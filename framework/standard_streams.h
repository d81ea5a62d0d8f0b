// Descriptors 0, 1 and 2 as a program can rely on them, and the two kinds of output: messages, which a run can do
// without, and results, which are why a program was started.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace ringtrain {

/// Opens each of the descriptors 0, 1 and 2 that is closed on /dev/null, in the direction that lets every use of it
/// fail, so that no file of ours takes its number. Call it before anything else opens a file.
void claim_standard_streams();

/// Returns text as a terminal may be given it, whoever chose its names: control characters but for line feed and tab,
/// marks that turn the direction of writing, and bytes that are no UTF-8 are spelled out, as \x1b or \u{202e}. All
/// other text stays as it is.
std::string visible(std::string_view text);

/// Writes visible(text) to file and flushes it. What cannot be written is dropped: a full disk or a reader that has
/// gone away never ends a run.
void write_message(std::FILE* file, std::string_view text);
/// The same for text that steers a terminal: nothing is spelled out.
void write_control(std::FILE* file, std::string_view text);

/// Writes text to stderr as it is, by one call that a signal handler may make. What cannot be written is dropped.
void write_in_handler(std::string_view text);

/// Prints visible(text) to stdout, as a part of what the program was started for.
void print_result(std::string_view text);

/// Throws Error(usage) if nothing can be written to stdout, as far as that shows before anything is: it was closed, or
/// its reader is gone.
void require_results();
/// Writes text to stdout as it is, a model's own words, and flushes it. Throws Error(usage) if it could not be written.
void write_results(std::string_view text);
/// Brings to stdout what has been printed there. Throws Error(usage) if any of it could not be written.
void flush_results();

}  // namespace ringtrain
