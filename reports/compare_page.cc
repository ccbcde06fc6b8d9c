#include "reports/compare_page.h"

#include "reports/json_writer.h"
#include "reports/page_template.h"
#include "reports/web_assets.h"

namespace reports {
namespace {

constexpr std::size_t kNoteLimit = 4'000;

void write_side(JsonWriter& json, std::string_view key, const harness::Side& side) {
  json.key(key).begin_object().field("name", side.name).field("cases", side.cases.size());
  json.field("created_at", side.sweep.created_at).end_object();
}

void write_fields(JsonWriter& json, std::string_view key, const std::vector<harness::FieldDifference>& all) {
  json.key(key).begin_array();
  for (const auto& d : all) json.begin_object().field("field", d.field).field("a", d.a).field("b", d.b).end_object();
  json.end_array();
}

void write_texts(JsonWriter& json, std::string_view key, const std::vector<std::string>& all) {
  json.key(key).begin_array();
  for (const std::string& text : all) json.value(std::string_view(text), kNoteLimit);
  json.end_array();
}

void write_compared(JsonWriter& json, const harness::ComparedCase& c, const harness::CaseRecord& a,
                    const harness::CaseRecord& b) {
  json.begin_object().field("label", c.label).field("id_a", a.id).field("id_b", b.id);
  json.field("status_a", harness::name_of(a.status)).field("status_b", harness::name_of(b.status));
  json.field("step_ns_a", a.step_ns).field("step_ns_b", b.step_ns);
  json.field("peak_bytes_a", a.peak_bytes).field("peak_bytes_b", b.peak_bytes);
  if (c.both_measured) {
    json.field("verdict", harness::name_of(c.effect.verdict)).field("effect", c.effect.effect);
    json.field("effect_low", c.effect.low).field("effect_high", c.effect.high).field("coverage", c.effect.coverage);
    json.field("margin", c.effect.margin).field("interleaved", c.effect.interleaved);
    json.field("samples_a", a.samples.size()).field("samples_b", b.samples.size());
  }
  if (!c.note.empty()) json.field("note", c.note);
  json.field("gate_failed", c.gate_failed).field("gate_undecided", c.gate_undecided).end_object();
}

}  // namespace

std::string compare_json(const harness::Comparison& c, const harness::Side& a, const harness::Side& b,
                         const harness::CompareOptions& options) {
  JsonWriter json;
  json.begin_object();
  write_side(json, "a", a);
  write_side(json, "b", b);
  write_fields(json, "unlike", c.unlike);
  write_fields(json, "warnings", c.warnings);
  json.key("cases").begin_array();
  for (const harness::ComparedCase& one : c.cases) write_compared(json, one, a.cases[one.a], b.cases[one.b]);
  json.end_array();
  write_texts(json, "only_a", c.only_a);
  write_texts(json, "only_b", c.only_b);
  write_texts(json, "notes", c.notes);
  write_texts(json, "statuses", harness::status_texts(c, a, b));
  json.key("numerics").value(std::string_view(harness::numerics_text(c)), kNoteLimit);
  json.key("gate");
  options.gate >= 0 ? json.value(options.gate) : json.null();
  json.field("gate_failed", c.gate_failed).field("gate_undecided", c.gate_undecided);
  if (options.gate >= 0) json.field("gate_text", harness::gate_text(c));
  json.end_object();
  return json.text();
}

std::string compare_html(const harness::Comparison& c, const harness::Side& a, const harness::Side& b,
                         const harness::CompareOptions& options) {
  return filled_page(kComparePageHtml, "Comparison: " + a.name + ", " + b.name, compare_json(c, a, b, options),
                     kComparePageJs);
}

}  // namespace reports
