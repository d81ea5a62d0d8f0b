// The parts of a page: text that markup can hold, numbers in four digits, tables, and the style of it all. A page has
// no scripts and fetches nothing. It is light or dark as its reader's screen is, fits a phone, and prints whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Returns text as markup holds it.
std::string escaped(std::string_view text);
/// Returns a number in four digits, "2.346", "12.35K", "1.234e-05", or whole; "-" if it is not finite.
std::string four_digits(double value);
/// Returns a change in four digits, with its sign.
std::string signed_digits(double value);
/// Returns figures side by side, as many as the screen has room for; "" if they are none.
std::string figure_grid(const std::string& figures);

using Rows = std::vector<std::vector<std::string>>;
/// Returns a table whose first row is its head. kind: "facts" for names and texts, "heat" for numbers in % that color
/// their cells, "" for other numbers. Of more than four columns, a narrow screen shows each cell in a line of its own,
/// with the head's words before it.
std::string table(const Rows& rows, std::string_view kind = "");
/// Returns a heading, and a remark.
std::string heading(std::string_view words);
std::string remark(std::string_view words);

/// Returns a page's head, from its first byte to the opened body.
std::string page_head(std::string_view first_bytes, std::string_view title);

}  // namespace ringtrain
