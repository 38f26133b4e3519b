// What a rank holds beside parameters, in memory that stays where it is, as a Reducer wants it: the
// module's buffers, and with logical ranks the state of torch's random generators. Not for users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/torch/tensor.hpp>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

struct NamedBuffer {
    std::string name;
    torch::Tensor tensor;  // the module's
};

class RankMemory {
public:
    RankMemory(std::vector<NamedBuffer> buffers, const std::set<std::string>& random_devices) {
        const torch::NoGradGuard no_grad;
        for (NamedBuffer& buffer : buffers) {
            const torch::Tensor memory = buffer.tensor.detach().contiguous();
            buffers_.push_back({std::move(buffer), memory});
        }
        keep_buffers_in_place();
        for (const std::string& device : random_devices) {
            generators_.push_back(
                {device, at::globalContext().defaultGenerator(c10::Device(device)), {}});
            generators_.back().state = state_of(generators_.back().generator);
        }
    }

    RankState state() const {
        RankState state;
        for (const Buffer& buffer : buffers_) {
            state.buffers.push_back({buffer.module.name, view(buffer.memory)});
        }
        for (const Random& random : generators_) {
            state.random_state.push_back({random.device, view(random.state)});
        }
        return state;
    }

    std::vector<torch::Tensor> buffers() const {
        std::vector<torch::Tensor> tensors;
        for (const Buffer& buffer : buffers_) tensors.push_back(buffer.memory);
        return tensors;
    }

    // A program may have given a buffer other memory, as torch::load does. Throws UsageError when
    // it is another tensor now.
    void keep_buffers_in_place() {
        const torch::NoGradGuard no_grad;
        for (Buffer& buffer : buffers_) {
            torch::Tensor& tensor = buffer.module.tensor;
            if (tensor.sizes() != buffer.memory.sizes() ||
                tensor.scalar_type() != buffer.memory.scalar_type() ||
                tensor.device() != buffer.memory.device()) {
                throw UsageError("libtorch: buffer " + buffer.module.name + " is " +
                                 describe(tensor) + ", but was " + describe(buffer.memory) +
                                 " when the module was wrapped");
            }
            if (tensor.data_ptr() == buffer.memory.data_ptr() && tensor.is_contiguous()) continue;
            buffer.memory.copy_(tensor);
            tensor.set_data(buffer.memory);
        }
    }

    void save_generators() {
        for (Random& random : generators_) random.state.copy_(state_of(random.generator));
    }
    void load_generators() {
        for (Random& random : generators_) {
            const std::lock_guard lock(random.generator.mutex());
            random.generator.set_state(random.state);
        }
    }

    // Collective. Logical rank l begins with rank 0's seed + 1 + l. `of_all` ends with the random
    // state of all logical ranks, a row each, in the order of state().
    void seed_all(ProcessGroup& group, const std::vector<NamedTensor>& of_all) {
        for (std::size_t i = 0; i < generators_.size(); ++i) {
            at::Generator& generator = generators_[i].generator;
            std::array<std::int64_t, 1> seed{seed_of(generator)};
            group.broadcast(seed, Root{}, {}, CallSite{}).wait();
            const TensorView& rows = of_all[of_all.size() - generators_.size() + i].tensor;
            const auto bytes = static_cast<std::size_t>(rows.shape[1]);
            const std::lock_guard lock(generator.mutex());
            const torch::Tensor before = generator.get_state();
            for (std::int64_t l = 0; l < rows.shape[0]; ++l) {
                generator.set_current_seed(static_cast<std::uint64_t>(seed[0] + 1 + l));
                const torch::Tensor state = generator.get_state();
                std::memcpy(
                    static_cast<std::byte*>(rows.data) + static_cast<std::size_t>(l) * bytes,
                    state.data_ptr(), bytes);
            }
            generator.set_state(before);
        }
    }

private:
    struct Buffer {
        NamedBuffer module;
        torch::Tensor memory;  // shared with the module's
    };
    struct Random {
        std::string device;
        at::Generator generator;
        torch::Tensor state;  // bytes
    };

    static torch::Tensor state_of(at::Generator& generator) {
        const std::lock_guard lock(generator.mutex());
        return generator.get_state();
    }
    static std::int64_t seed_of(at::Generator& generator) {
        const std::lock_guard lock(generator.mutex());
        return static_cast<std::int64_t>(generator.current_seed());
    }

    std::vector<Buffer> buffers_;
    std::vector<Random> generators_;
};

}  // namespace ddp::libtorch::detail
