// What ranks exchange about a step apart from gradients: mistakes, which every rank is to hear of,
// and checksums, which must be equal. All functions are collective: every rank calls them at the
// same point of the same step.
#pragma once

#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/work.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::reducer {

// Collective. The text of each rank.
std::vector<std::string> gather_texts(const std::string& mine, ProcessGroup& group);

// Collective, blocks. When a rank's text is not empty, all ranks throw the same UsageError: the
// first one's text with its rank, and which other ranks have one.
void throw_if_any(const std::string& mistake, ProcessGroup& group);

// The mistakes of a model on a GPU, whose host waits for no other in a step: a rank logs one and
// tells of it in the background, and all hear of it at the end of the next backward.
class LateMistakes {
public:
    // Collective. Tells of this backward's; throws as throw_if_any for those of the one before.
    void tell_and_hear(const std::string& mistake, ProcessGroup& group);

private:
    struct Told {
        std::string mistake;
        std::array<std::int32_t, 1> wrong{};  // ranks, once the work is done
        Work work;
    };
    std::array<Told, 2> told_;  // in turn
    std::size_t now_ = 0;
};

// Collective, blocks. Compares checksums over ranks: of all values, of the gradients that are
// averages now (`averaged` by parameter, 0 or 1; empty: all), and on a GPU of what each rank has
// launched there, in its order. Throws a UsageError that names the first parameter that differs
// after `step`.
void require_equal_models(std::span<const Parameter> parameters,
                          std::span<const std::uint8_t> averaged, std::uint64_t step,
                          ProcessGroup& group);

}  // namespace ddp::reducer
