// The page's files under reports/web, embedded when the program is built.
#pragma once
#include <string_view>

namespace reports {

extern const std::string_view kPageHtml;  // holds {{title}}, {{style}}, {{data}}, {{script}}, once each
extern const std::string_view kStyleCss;
extern const std::string_view kPageJs;  // all scripts, in order

// The page of a comparison; the same style and marks.
extern const std::string_view kComparePageHtml;
extern const std::string_view kComparePageJs;

}  // namespace reports
