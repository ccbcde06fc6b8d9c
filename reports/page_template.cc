#include "reports/page_template.h"

#include <utility>
#include <vector>

#include "fsdp/core/escape.h"
#include "reports/web_assets.h"

namespace reports {
namespace {

// Each mark is looked for in the template only, never in what was put in.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string_view>>& parts) {
  std::string out;
  std::size_t at = 0;
  for (const auto& [mark, text] : parts) {
    const std::size_t found = page.find(mark, at);
    if (found == std::string_view::npos) continue;
    out.append(page.substr(at, found - at)).append(text);
    at = found + mark.size();
  }
  return out.append(page.substr(at));
}

}  // namespace

std::string filled_page(std::string_view page, const std::string& title, const std::string& data,
                        std::string_view script) {
  return filled(
      page,
      {{"{{title}}", fsdp::html_text(title)}, {"{{style}}", kStyleCss}, {"{{data}}", data}, {"{{script}}", script}});
}

}  // namespace reports
