// Makes descriptors 0, 1, and 2 reliable, and distinguishes two kinds of output: messages, which a run does not need,
// and results, which are the purpose of a program.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace ringtrain {

/// Opens each of the descriptors 0, 1, and 2 that is closed on /dev/null, in the direction in which every use of it
/// fails, so that no file of ours gets its number. Call it before anything else opens a file.
void claim_standard_streams();

/// Returns text that is safe to print on a terminal, whatever names it contains. Control characters except line feed
/// and tab, marks that change the direction of writing, and bytes that are not UTF-8 are spelled out, as \x1b or
/// \u{202e}. All other text is unchanged.
std::string visible(std::string_view text);

/// Writes visible(text) to file and flushes it. Text that cannot be written is dropped: a full disk or a closed reader
/// never ends a run.
void write_message(std::FILE* file, std::string_view text);
/// The same for text that controls a terminal: nothing is spelled out.
void write_control(std::FILE* file, std::string_view text);

/// Writes text to stderr unchanged, with one call that a signal handler may make, and keeps errno. Text that cannot be
/// written is dropped.
void write_in_handler(std::string_view text);

/// Prints visible(text) to stdout, as a result of the program.
void print_result(std::string_view text);

/// Throws Error(usage) if stdout is not writable, as far as this shows before anything is written: it is closed, or its
/// reader is gone.
void require_results();
/// Writes text to stdout unchanged (a model's own words) and flushes it. Throws Error(usage) if that fails.
void write_results(std::string_view text);
/// Flushes printed results to stdout. Throws Error(usage) if any of them could not be written.
void flush_results();

}  // namespace ringtrain
