#include "extras/report/page_parts.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace ringtrain {

namespace {

// a to h are the colors of curves. Prints are light on any screen.
constexpr std::string_view style = R"(
:root{--paper:#fff;--ink:#1c2128;--soft:#5d6773;--line:#e2e6ea;--tile:#f5f7f9;--bad:#c62828;--warn:#b26a00;
--a:#1f6feb;--b:#d2691e;--c:#2e8b57;--d:#8250df;--e:#bf3989;--f:#0e8a8a;--g:#8a6d00;--h:#57606a}
@media screen and (prefers-color-scheme:dark){:root{--paper:#0f1318;--ink:#e4e8ed;--soft:#98a3af;--line:#2a313a;
--tile:#171c23;--bad:#ff7b72;--warn:#e3a341;--a:#58a6ff;--b:#f0a060;--c:#56d08a;--d:#bc8cff;--e:#f778ba;--f:#4fd1d1;
--g:#d9b84a;--h:#a0aab4}}
*{box-sizing:border-box}html{color-scheme:light dark;-webkit-text-size-adjust:100%}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;max-width:70rem;margin:0 auto;
padding:1.5rem 1rem 3rem;background:var(--paper);color:var(--ink);overflow-wrap:break-word;
font-variant-numeric:tabular-nums}
h1{font-size:1.6rem;line-height:1.2;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .7rem}p{margin:.3rem 0}
.soft{color:var(--soft)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));gap:.7rem;margin:1.2rem 0}
.tiles div{background:var(--tile);border:1px solid var(--line);border-radius:.6rem;padding:.6rem .8rem}
.tiles b{display:block;font-size:1.35rem;font-weight:600;line-height:1.3}.tiles span{color:var(--soft);font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(26rem,100%),1fr));gap:1.2rem 1.5rem}
figure{margin:0;min-width:0;break-inside:avoid}figcaption{font-size:.9rem}figcaption b{font-weight:600}
svg{display:block;width:100%;height:auto;margin-top:.2rem}svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:1}.zero{stroke:var(--soft);stroke-width:1}
polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}.raw{stroke-width:1;opacity:.35}
.heat td[style]{background:color-mix(in srgb,var(--a) calc(var(--share)*.55%),transparent)}
circle{stroke:none}.hit{fill:transparent}.hit:hover{fill:var(--soft)}.bar{fill:none;stroke-width:1.4}
.resume{stroke:var(--soft);stroke-dasharray:3 3;fill:none}.spike{fill:var(--warn)}.nonfinite{stroke:var(--bad);
stroke-width:2;fill:none}.empty{stroke:var(--soft);stroke-width:2}
.sa{stroke:var(--a);color:var(--a)}.sb{stroke:var(--b);color:var(--b)}.sc{stroke:var(--c);color:var(--c)}
.sd{stroke:var(--d);color:var(--d)}.se{stroke:var(--e);color:var(--e)}.sf{stroke:var(--f);color:var(--f)}
.sg{stroke:var(--g);color:var(--g)}.sh{stroke:var(--h);color:var(--h)}circle.dot{fill:currentColor}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:500}td:first-child,th:first-child{text-align:left;padding-left:0}
td:last-child,th:last-child{padding-right:0}tr{break-inside:avoid}
.facts td,.facts th{text-align:left;overflow-wrap:anywhere}
.facts td:first-child{color:var(--soft);width:36%}.halves .facts td:first-child{width:9rem}
.events td,.events th{text-align:left}.events td:nth-child(2){overflow-wrap:anywhere}.number{white-space:nowrap}
.halves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:0 2rem}
@media screen and (max-width:40rem){body{font-size:14px}.halves .facts td:first-child{width:7rem}
.wide thead{display:none}.wide,.wide tbody,.wide tr,.wide td{display:block}
.wide tr{border-bottom:1px solid var(--line);padding:.35rem 0}.wide td{border:0;padding:.05rem 0;display:flex;gap:1rem;
justify-content:space-between}.wide td:first-child{font-weight:600}
.wide td::before{content:attr(data-label);color:var(--soft);font-weight:400}}
@media print{@page{margin:14mm}html{font-size:11px}body{padding:0;max-width:none;font-size:1rem}
p.soft{break-after:avoid}
.charts,.halves{grid-template-columns:1fr 1fr}h2{break-after:avoid}.tiles{grid-template-columns:repeat(3,1fr)}}
)";

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  constexpr std::string_view special = "<>&\"";
  constexpr std::array entities{"&lt;", "&gt;", "&amp;", "&quot;"};
  for (const char c : text) {
    if (const std::size_t found = special.find(c); found != std::string_view::npos) {
      html += entities[found];
    } else {
      html += static_cast<unsigned char>(c) < ' ' ? ' ' : c;  // markup has no control characters
    }
  }
  return html;
}

std::string four_digits(double value) {
  if (!std::isfinite(value)) return "-";
  std::string unit;
  for (const char larger : std::string_view("KMGT")) {
    if (std::abs(value) < (unit.empty() ? 9999.5 : 999.95)) break;  // after rounding, it has four digits
    value /= 1000;
    unit = larger;
  }
  const bool whole = std::abs(value) < 1e4 && value == std::floor(value);
  std::string digits = whole ? fmt::format("{:.0f}", value + 0.0) : fmt::format("{:#.4g}", value);  // -0 is 0
  if (!whole && std::abs(value) >= 999.95 && digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits + unit;
}

std::string signed_digits(double value) {
  return (value > 0 ? "+" : "") + four_digits(value);
}

std::string heading(std::string_view words) {
  return fmt::format("<h2>{}</h2>\n", escaped(words));
}

std::string remark(std::string_view words) {
  return fmt::format("<p class=\"soft\">{}</p>\n", escaped(words));
}

std::string figure_grid(const std::string& figures) {
  return figures.empty() ? "" : "<div class=\"charts\">\n" + figures + "</div>\n";
}

std::string table(const Rows& rows, std::string_view kind) {
  constexpr std::size_t most_on_a_phone = 4;  // columns
  const std::string_view name = kind.empty() && rows[0].size() > most_on_a_phone ? "wide" : kind;
  std::string html = name.empty() ? "<table>\n" : fmt::format("<table class=\"{}\">\n", name);
  html += "<thead><tr>";
  for (const std::string& cell : rows[0]) html += fmt::format("<th>{}</th>", escaped(cell));
  html += "</tr></thead>\n<tbody>\n";
  for (std::size_t row = 1; row < rows.size(); ++row) {
    html += "<tr>";
    for (std::size_t column = 0; column < rows[row].size(); ++column) {
      const std::string text = escaped(rows[row][column]);
      std::string attribute;
      if (name == "wide") attribute = fmt::format(" data-label=\"{}\"", escaped(rows[0][column]));
      if (name == "heat" && column > 0 && text != "-") attribute = fmt::format(" style=\"--share:{}\"", text);
      html += fmt::format("<td{}>{}</td>", attribute, text);
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

std::string page_head(std::string_view first_bytes, std::string_view title) {
  return fmt::format(
      "{}<head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n",
      first_bytes, escaped(title), style);
}

}  // namespace ringtrain
