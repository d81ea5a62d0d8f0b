// The parts of a page: escaped text, numbers with four digits, tables, and the style. A page has no scripts and fetches
// nothing. It follows its reader's light or dark mode, fits a phone, and prints completely.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Returns text escaped for markup.
std::string escaped(std::string_view text);
/// Returns a number with four digits, "2.346", "12.35K", "1.234e-05", or whole; "-" if it is not finite.
std::string four_digits(double value);
/// Returns a change with four digits and its sign.
std::string signed_digits(double value);
/// Returns figures next to each other, as many as fit on the screen; "" if there are none.
std::string figure_grid(const std::string& figures);

using Rows = std::vector<std::vector<std::string>>;
/// Returns a table whose first row is its header. kind: "facts" for names and texts, "heat" for numbers in % that color
/// their cells, "" for other numbers. If it has more than four columns, a narrow screen shows each cell on a line of
/// its own, after the words of the header.
std::string table(const Rows& rows, std::string_view kind = "");
/// Returns a heading, and a note.
std::string heading(std::string_view words);
std::string remark(std::string_view words);

/// Returns a page's head, from its first byte to the opened body.
std::string page_head(std::string_view first_bytes, std::string_view title);

}  // namespace ringtrain
