// Grids, worked off block by block on the thread of a stream.
#include "standin_cuda/kernels.hpp"

#include "standin_cuda/fibres.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace ddp::standin_cuda {
namespace {

thread_local Fibres fibres;
thread_local bool in_fibre = false;
thread_local std::set<void*> poisoned;  // in this block
std::atomic<unsigned> launches = 0;

uint3 at(unsigned index, dim3 size) {
    return {index % size.x, index / size.x % size.y, index / size.x / size.y};
}

}  // namespace

void synchronise_block() {
    if (!in_fibre) {
        std::fprintf(stderr,
                     "stand-in CUDA: __syncthreads in a kernel that is not registered as "
                     "synchronising\n");
        std::abort();
    }
    const Place own = place;
    fibres.synchronise();
    place = own;
}

void poison_shared(void* variable, std::size_t bytes) {
    if (poisoned.insert(variable).second) std::memset(variable, 0xff, bytes);
}

// Blocks and threads run forwards in one launch and backwards in the next: their order means
// nothing.
void run_grid(const std::function<void()>& thread, bool synchronises, dim3 grid, dim3 block) {
    const bool backwards = launches.fetch_add(1) % 2 == 1;
    const unsigned blocks = grid.x * grid.y * grid.z;
    const unsigned threads = block.x * block.y * block.z;
    const auto ordered = [backwards](unsigned index, unsigned count) {
        return backwards ? count - 1 - index : index;
    };
    place.grid_size = grid;
    place.block_size = block;
    for (unsigned b = 0; b < blocks; ++b) {
        poisoned.clear();
        const uint3 block_at = at(ordered(b, blocks), grid);
        if (synchronises) {
            in_fibre = true;
            fibres.run(threads, [&](unsigned index) {
                place.block = block_at;
                place.thread = at(index, block);
                thread();
            });
            in_fibre = false;
            continue;
        }
        place.block = block_at;
        for (unsigned t = 0; t < threads; ++t) {
            place.thread = at(ordered(t, threads), block);
            thread();
        }
    }
}

}  // namespace ddp::standin_cuda
