# cmake -DOUT=web_assets.cc -DWEB=reports/web -P EmbedWeb.cmake: the page's files as one C++ source.
# Raw string literals of 12,000 characters: compilers limit the length of one literal, neighbours are joined.
set(scripts util.js data.js prose.js trust.js lines.js heat.js bars.js frontier.js predicted.js svg_pen.js timeline.js samples.js case.js table.js app.js)
set(compare_scripts util.js compare.js)

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

# One function around all scripts, so that their names stay theirs.
function(join_scripts variable)
  set(js "(() => {\n'use strict';\n")
  foreach(script IN LISTS ARGN)
    file(READ "${WEB}/${script}" text)
    string(APPEND js "${text}")
  endforeach()
  set(${variable} "${js}})();\n" PARENT_SCOPE)
endfunction()

file(READ "${WEB}/page.html" html)
file(READ "${WEB}/compare.html" compare_html)
file(READ "${WEB}/style.css" css)
join_scripts(js ${scripts})
join_scripts(compare_js ${compare_scripts})

add_literal(html_literal "${html}")
add_literal(css_literal "${css}")
add_literal(js_literal "${js}")
add_literal(compare_html_literal "${compare_html}")
add_literal(compare_js_literal "${compare_js}")
file(WRITE "${OUT}" "// Made by EmbedWeb.cmake from reports/web.
#include \"reports/web_assets.h\"

namespace reports {
const std::string_view kPageHtml =
${html_literal};
const std::string_view kStyleCss =
${css_literal};
const std::string_view kPageJs =
${js_literal};
const std::string_view kComparePageHtml =
${compare_html_literal};
const std::string_view kComparePageJs =
${compare_js_literal};
}  // namespace reports
")
