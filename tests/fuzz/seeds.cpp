// libFuzzer calls this before it reads its corpus: the seeds go to the folder that DDP_FUZZ_SEEDS
// names.
#include "fuzz/seeds.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    const char* const folder = std::getenv("DDP_FUZZ_SEEDS");
    if (folder == nullptr) return 0;
    int number = 0;
    for (const std::string& seed : ddp::fuzz::seeds()) {
        const std::string path = std::string(folder) + "/seed-" + std::to_string(number++);
        std::ofstream(path, std::ios::binary) << seed;
    }
    return 0;
}
