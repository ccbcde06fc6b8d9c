// The frame of a page: marks replaced by texts. Each mark is looked for in the template only, never in what was put in.
#pragma once
#include <string>
#include <string_view>

namespace reports {

// `page` holds {{title}}, {{style}}, {{data}}, {{script}} in this order. `title` is escaped here; `data` is JSON as
// JsonWriter writes it.
std::string filled_page(std::string_view page, const std::string& title, const std::string& data,
                        std::string_view script);

}  // namespace reports
