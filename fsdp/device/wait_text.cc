#include "fsdp/device/wait_text.h"

#include "fsdp/core/seconds.h"

namespace fsdp {
namespace {

std::string describe(const WorkTag& tag) {
  std::string text(name_of(tag.kind));
  if (tag.unit != kNoUnit) text += " of unit " + std::to_string(tag.unit);
  if (tag.pass != Pass::kNone) text += ", " + std::string(name_of(tag.pass));
  return text;
}

}  // namespace

TimeoutError timed_out(const std::string& where, Nanos timeout, const WorkTag& tag) {
  return TimeoutError("[" + where + "] waited " + seconds(timeout) + " for " + describe(tag) +
                      "; a peer is missing or step_timeout is too short");
}

}  // namespace fsdp
