// Escapes: one function for each language that this program writes foreign text into. Foreign is all that did not stand
// in this program's own source: names, reasons, paths, values of a results.db, of a spec, of a trace. Text that is put
// together for another program to read takes foreign parts through these functions only. (CSV: reports/csv.h, JSON: a
// library, in a page reports/json_writer.h.) Bytes that are not UTF-8 become U+FFFD, except in a shell's word.
#pragma once
#include <string>
#include <string_view>

namespace fsdp {

// Characters that act instead of being shown: controls but for line feed and tab, marks that turn, hide or break text
// (U+061C, U+200B, U+200E, U+200F, U+2028 to U+202E, U+2060 to U+2069, U+FEFF, U+FFF9 to U+FFFB, U+E0000 to U+E007F).
bool acts(char32_t c);

// For a terminal: what acts is written as \u001b. Inside a string of JSON that is the same string still.
std::string terminal_text(std::string_view text);

// The same in one line: line feeds and tabs are written as \u000a and \u0009.
std::string one_line(std::string_view text);

// Comments of Python: "# " before each line of `text`, a line feed after it. Python ends a line at a carriage return
// too, and obeys an encoding that a comment declares: neither comes through.
std::string python_comment(std::string_view text);
// A literal with its quotes. ASCII, so that no encoding matters.
std::string python_string(std::string_view text);
// The same as a part of an f-string's body, without quotes.
std::string python_format_text(std::string_view text);

// A scalar of YAML or JSON in double quotes.
std::string yaml_string(std::string_view text);

// Text of an HTML or SVG element, or of an attribute in double or single quotes.
std::string html_text(std::string_view text);

// A word as a POSIX shell takes it: as it is when it is plain, else in single quotes.
std::string shell_quoted(std::string_view word);

}  // namespace fsdp
