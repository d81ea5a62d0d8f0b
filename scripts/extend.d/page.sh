# shellcheck shell=bash disable=SC2154
# The page of an extension, from what its evaluations wrote; sourced by scripts/extend, which sets output, short_length,
# to, from, how, model, texts, needles and foretold.

# rows FILE.json: prints "length CONTEXT NLL" for each context and "position CONTEXT FIRST LAST NLL" for each bucket.
rows() {
  tr -d ' ",' <"$1" | awk -F: '
    $1 == "tasks" { exit }
    $1 == "context_length" { context = $2 }
    $1 == "first" { first = $2 }
    $1 == "last" { last = $2 }
    $1 == "nll" && first != "" { print "position", context, first, last, $2; first = "" ; next }
    $1 == "nll" { print "length", context, $2 }'
}

# paired CONTEXT FILE CONTEXT FILE: prints "DIFFERENCE LOW HIGH DOCUMENTS" of the second nll minus the first on the same
# targets: 95 % by Student's t over documents. Both files are those of evaluate --per-token.
paired() {
  awk -v first="$1" -v second="$3" '
    function value(key,   rest) { rest = substr($0, index($0, "\"" key "\":") + length(key) + 3); return rest + 0 }
    /"context_length":/ {
      context = value("context_length")
      if (context != (FILENAME == ARGV[1] ? first : second) && ARGV[1] != ARGV[2]) next
      if (context != first && context != second) next
      document = value("document"); weight = value("weight"); seen[document] = 1
      if (FILENAME == ARGV[1] && context == first) { below[document] += weight; sum[document] -= weight * value("nll") }
      if (FILENAME == ARGV[2] && context == second) sum[document] += weight * value("nll")
    }
    END {
      for (document in seen) { n++; y += sum[document]; x += below[document] }
      mean = y / x
      for (document in seen) { part = (sum[document] - mean * below[document]); squares += part * part }
      nu = n - 1; z = 1.959964
      t = nu > 0 ? z + (z^3 + z) / (4 * nu) + (5 * z^5 + 16 * z^3 + 3 * z) / (96 * nu^2) : 0
      half = nu > 0 ? t * sqrt(n / nu * squares) / x : 0
      printf "%.4f %.4f %.4f %d\n", mean, mean - half, mean + half, n
    }' "$2" "$4"
}

# verdict WHAT BOUND CONTEXT FILE CONTEXT FILE: prints whether the second is no worse than the first plus BOUND.
verdict() {
  local what=$1 bound=$2 difference low high documents
  shift 2
  read -r difference low high documents < <(paired "$@")
  awk -v what="$what" -v bound="$bound" -v d="$difference" -v low="$low" -v high="$high" -v n="$documents" 'BEGIN {
    interval = n >= 20 ? sprintf("[%+.4f, %+.4f]", low, high) : "no interval: fewer than 20 documents"
    holds = n >= 20 ? high <= bound : d <= bound
    printf "%s: %+.4f nats (%s; at most %+.2f is wanted): %s\n", what, d, interval, bound, holds ? "holds" : "DOES NOT HOLD" }'
}

# curves: prints an SVG of nll against position, of the windows of the longest context.
curves() {
  for name in before scaled after; do rows "$output/$name.json" | awk -v name="$name" -v to="$to" '
    $1 == "position" && $2 == to && $4 >= 64 { print name, $3, $4, $5 }'; done | awk -v from="$from" '
    { name = $1; log_ = (log($2) + log($3 + 1)) / 2 / log(2); n = ++count[name]; x[name, n] = log_; y[name, n] = $4
      if (low == "" || $4 < low) low = $4
      if ($4 > high) high = $4
      if (left == "" || log($2) / log(2) < left) left = log($2) / log(2)
      if (log($3 + 1) / log(2) > right) right = log($3 + 1) / log(2) }
    function across(v) { return 60 + (v - left) / (right - left) * 560 }
    function down(v) { return 20 + (high - v) / (high - low + 1e-9) * 260 }
    END {
      print "<svg viewBox=\"0 0 640 330\" role=\"img\" aria-label=\"nll by position\" xmlns=\"http://www.w3.org/2000/svg\" font-size=\"12\">"
      for (v = int(low); v <= high; v += high - low > 2 ? 1 : 0.25) if (v >= low)
        printf "<line x1=\"60\" x2=\"620\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ccc\"/><text x=\"52\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", down(v), down(v), down(v) + 4, v
      for (v = int(left + 0.999); v <= right; v++)
        printf "<text x=\"%.1f\" y=\"300\" text-anchor=\"middle\">%d</text>\n", across(v), 2 ^ v
      printf "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"20\" y2=\"280\" stroke=\"#888\" stroke-dasharray=\"4 4\"/>\n", across(log(from) / log(2)), across(log(from) / log(2))
      print "<text x=\"340\" y=\"322\" text-anchor=\"middle\">position in the window; the dashed line is what the model knew</text>"
      split("before scaled after", names, " "); split("#c0392b #e08e0b #1f6fb2", colours, " ")
      for (k = 1; k <= 3; k++) {
        line = ""
        for (i = 1; i <= count[names[k]]; i++) line = line sprintf("%.1f,%.1f ", across(x[names[k], i]), down(y[names[k], i]))
        printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>", colours[k], line
        printf "<text x=\"%d\" y=\"14\" fill=\"%s\">%s</text>\n", 120 + 140 * (k - 1), colours[k], names[k]
      }
      print "</svg>"
    }'
}

# escaped: of text within HTML.
escaped() { sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g'; }

# table: prints nll by context of the three evaluations.
table() {
  echo "<table><tr><th>context</th><th>before</th><th>scaled, untrained</th><th>after</th></tr>"
  for name in before scaled after; do cat "$output/$name-short.json" "$output/$name.json" | rows /dev/stdin | awk -v name="$name" '$1 == "length" { print name, $2, $3 }'; done |
    awk '{ nll[$1, $2] = $3; if ($1 == "before") order[++n] = $2 }
      END { for (i = 1; i <= n; i++) printf "<tr><td>%d</td><td>%.4f</td><td>%.4f</td><td>%.4f</td></tr>\n", order[i],
        nll["before", order[i]], nll["scaled", order[i]], nll["after", order[i]] }'
  echo "</table>"
}

# minutes FILE: prints the seconds in a file as minutes.
minutes() { awk '{ printf "%d min %d s", $1 / 60, $1 % 60 }' "$1" 2>/dev/null || echo unknown; }

# answers NAME: prints "CONTEXT NLL" for each context in which NAME's evaluation looked for needles.
answers() {
  tr -d ' ",' <"$output/$1.json" | awk -F: '
    $1 == "tasks" { inside = 1; context = "" }
    inside && $1 == "context_length" { context = $2 }
    inside && $1 == "nll" && context != "" { sum[context] += $2; count[context]++ }
    END { for (context in sum) print context, sum[context] / count[context] }' | sort -n
}

# needle_table: prints how well numbers in the text are found, before and after.
needle_table() {
  echo "<table><tr><th>context</th><th>before</th><th>after</th></tr>"
  join <(answers before | sort) <(answers after | sort) | sort -n |
    awk '{ printf "<tr><td>%d</td><td>%.4f</td><td>%.4f</td></tr>\n", $1, $2, $3 }'
  echo "</table>"
}

{
  verdict "the context of $to against that of $((to / 2)), after" 0.02 "$((to / 2))" "$output/after.jsonl" "$to" \
    "$output/after.jsonl"
  verdict "the context of $short_length, after against before" 0.03 "$short_length" "$output/before-short.jsonl" \
    "$short_length" "$output/after-short.jsonl"
  verdict "the context of $to, after against scaled alone" 0 "$to" "$output/scaled.jsonl" "$to" "$output/after.jsonl"
} | tee "$output/verdicts.txt"

"$bin/report" "$output/run" --plan "$output/plan-train.json" --output "$output/run.html" >/dev/null
{
  cat <<TEXT
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>From $from to $to tokens</title>
<style>body{font:15px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}td,th{padding:.2em 1em;text-align:right}
pre{overflow:auto;background:#f5f5f5;padding:1em;font-size:12px}svg{width:100%}</style></head><body>
<h1>From $from to $to tokens</h1>
TEXT
  printf '<p>%s; %s. Trained on %s. Evaluated on %s: what it was not trained on.</p>\n' "$model" "$how" "${texts[*]}" \
    "${held_out[*]:-the validation part of these}" | escaped | sed -e 's/&lt;\(\/*p\)>/<\1>/g'
  echo "<h2>nll by position</h2>"
  curves
  echo "<h2>nll by context, on the same targets</h2>"
  table
  if [ "$needles" -gt 0 ]; then
    echo "<h2>nll of four numbers that stand in the text</h2>"
    needle_table
  fi
  echo "<pre>"
  escaped <"$output/verdicts.txt"
  echo "</pre><h2>Foretold and taken</h2><p>Foretold: $foretold."
  # A call that is killed has not told how long its evaluation took.
  find "$output" -name '*.seconds' -exec cat {} + | awk '{ sum += $1 } END { print sum + 0 }' >"$output/evaluated"
  echo "Taken: training $(minutes "$output/trained"), the evaluations $(minutes "$output/evaluated") (if there were" \
    "several calls, what was not ended by force).</p>"
  echo "<p>The run itself: <a href=\"run.html\">run.html</a>.</p>"
  for name in {before,scaled,after}{-short,}; do
    echo "<h2>Evaluation: $name</h2><pre>"
    escaped <"$output/$name.txt"
    echo "</pre>"
  done
  echo "</body></html>"
} >"$output/index.html.new"
mv -- "$output/index.html.new" "$output/index.html"
say "Done: $output/index.html, and the model in $output/model"
