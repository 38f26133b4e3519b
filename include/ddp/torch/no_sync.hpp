// NoSync: gradients that stay on this rank.
#pragma once

#include <ddp/reducer.hpp>
#include <ddp/torch/detail/torch_reducer.hpp>

namespace ddp::libtorch {

// While it lives, backward averages nothing: gradients accumulate on this rank. The first backward
// after it averages the sum. All ranks must do the same.
class [[nodiscard]] NoSync {
public:
    // Made by DistributedDataParallel::no_sync.
    explicit NoSync(detail::TorchReducer& reducer)
        : guard_(reducer.reducer().no_sync()), reducer_(reducer) {
        reducer_.set_no_sync(true);
    }
    ~NoSync() { reducer_.set_no_sync(false); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

private:
    Reducer::NoSync guard_;
    detail::TorchReducer& reducer_;
};

}  // namespace ddp::libtorch
