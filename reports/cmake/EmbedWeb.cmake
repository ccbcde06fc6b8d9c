# cmake -DOUT=web_assets.cc -DWEB=reports/web -P EmbedWeb.cmake: the page's files as one C++ source.
# Raw string literals of 12,000 characters: compilers limit the length of one literal, neighbours are joined.
set(scripts util.js data.js prose.js lines.js bars.js timeline.js case.js table.js app.js)

function(add_literal variable text)
  set(body "\"\"\n")
  string(LENGTH "${text}" length)
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 12000 piece)
    string(APPEND body "R\"SHARDSCOPE(${piece})SHARDSCOPE\"\n")
    math(EXPR at "${at} + 12000")
  endwhile()
  set(${variable} "${body}" PARENT_SCOPE)
endfunction()

file(READ "${WEB}/page.html" html)
file(READ "${WEB}/style.css" css)
set(js "(() => {\n'use strict';\n")
foreach(script IN LISTS scripts)
  file(READ "${WEB}/${script}" text)
  string(APPEND js "${text}")
endforeach()
string(APPEND js "})();\n")

add_literal(html_literal "${html}")
add_literal(css_literal "${css}")
add_literal(js_literal "${js}")
file(WRITE "${OUT}" "// Made by EmbedWeb.cmake from reports/web.
#include \"reports/web_assets.h\"

namespace reports {
const std::string_view kPageHtml =
${html_literal};
const std::string_view kStyleCss =
${css_literal};
const std::string_view kPageJs =
${js_literal};
}  // namespace reports
")
