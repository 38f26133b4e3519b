// All of ddp's public face in a source for nvcc, used a little: a world of one, and a kernel that
// is compiled and never launched, as there may be no GPU.
#include <ddp/ddp.hpp>

#include <vector>

__global__ void twice(float* values) { values[threadIdx.x] *= 2; }

int main() {
    return ddp::run_worker([] {
        auto group = ddp::init_process_group({.backend = ddp::Backend::shm});
        std::vector<float> values{1, 2, 3};
        std::vector<ddp::Parameter> parameters{{"values", values, {}}};
        group.all_reduce(values).wait();
        const ddp::Stream stream = cudaStream_t{};
        const void* kernel = reinterpret_cast<const void*>(&twice);
        if (values.at(2) != 3 || stream.handle() != nullptr || kernel == nullptr) {
            throw ddp::UsageError("the sum over one rank is another one");
        }
    });
}
