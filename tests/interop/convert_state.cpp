// Reads a state dictionary, of either format, and writes it as safetensors, or as a .pth file where
// OUT is so named: convert_state IN OUT.
#include <ddp/state_dict.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    try {
        const auto state = ddp::read_state_dict(argv[1]);
        const std::filesystem::path out = argv[2];
        (out.extension() == ".pth" ? ddp::write_torch_state_dict : ddp::write_state_dict)(out,
                                                                                          state);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
