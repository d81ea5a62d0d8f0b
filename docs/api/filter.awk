# Turns the comments of a header into Doxygen's, on their way to it, by the headers' own rules. The comment that opens a
# file is that of its first type, unless this has one. A comment documents all declarations up to the next empty line or
# comment. A comment behind a member is the member's. Lines keep their numbers.
NR == 1 { opening = 1 }
opening && /^\/\// { opened = opened substr($0, 3); print; next }
{ opening = 0 }
/^ *$/ || /^ *(public|private|protected):/ || /^}/ { text = ""; open = 0; depth_of_body = 0; behind = 0; print; next }
/^ *\/\/\// {
  if (!commented) text = ""
  commented = 1; behind = 0
  line = $0
  sub(/^ *\/\/\/ ?/, "", line)
  text = text " " line
  print
  next
}
/^ *\/\// {  # of a member's comment, the next line; else a word to who maintains the file
  if (behind) sub(/\/\/ /, "///< ")
  print
  next
}
{ behind = 0; was_commented = commented; commented = 0 }
/^(class|struct|enum class) [A-Za-z]+.*{ *$/ {
  if (!was_commented && opened != "") $0 = "/**" opened " */ " $0
  if (opened != "") opened = ""
  text = ""; open = 0
  print
  next
}
/^[#}]/ || /^namespace/ || /^template/ { print; next }
{
  begins = open == 0 && depth_of_body == 0
  own = 0
  if (begins && match($0, /[;}{] +\/\/ /) && !/NOLINT/ && !was_commented) { sub(/ \/\/ /, " ///< "); behind = 1; own = 1 }
  if (begins && !was_commented && !own && text != "" && /[A-Za-z_]/) $0 = "/**" text " */" $0
  code = $0
  gsub(/\/\*.*\*\//, "", code); sub(/\/\/.*/, "", code)
  depth_of_body += gsub(/{/, "{", code) - gsub(/}/, "}", code)
  if (depth_of_body < 0) depth_of_body = 0
  open = (depth_of_body == 0 && code !~ /[;}] *$/) ? 1 : 0
  print
}
