// From a user's text to the canonical text of one setting. Each function throws fsdp::ConfigError with a sentence that
// says what is wrong and what would be right; the settings table puts the setting's name in front.
#pragma once
#include <string>

namespace harness::checks {

std::string device(const std::string& text);
std::string model(const std::string& text);
std::string overrides(const std::string& text);  // "layers=8,dim=512", keys in a fixed order
std::string positive(const std::string& text);   // 1 ... 2^31-1
std::string natural(const std::string& text);    // 0 ... 2^31-1
std::string seed(const std::string& text);
std::string seq(const std::string& text);             // "model" or positive
std::string ranks_per_node(const std::string& text);  // "auto" or positive
std::string accumulate_sync(const std::string& text);
std::string wrap(const std::string& text);
std::string strategy(const std::string& text);
std::string reshard(const std::string& text);
std::string backward_prefetch(const std::string& text);
std::string max_inflight(const std::string& text);
std::string communicator(const std::string& text);
std::string param_dtype(const std::string& text);
std::string reduce_dtype(const std::string& text);
std::string output_dtype(const std::string& text);
std::string buffer_dtype(const std::string& text);
std::string layout(const std::string& text);
std::string checkpoint(const std::string& text);
std::string optimizer(const std::string& text);
std::string clip(const std::string& text);
std::string nccl_ctas(const std::string& text);
std::string nccl_buffers(const std::string& text);
std::string collectives(const std::string& text);
std::string wire(const std::string& text);
std::string memory_budget(const std::string& text);
std::string arrival_skew(const std::string& text);  // ranks in ascending order
std::string step_timeout(const std::string& text);
std::string word(const std::string& text);  // any text that is not empty

}  // namespace harness::checks
