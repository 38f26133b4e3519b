// Reads a state dictionary, of either format, and writes it as safetensors: convert_state IN OUT.
#include <ddp/state_dict.hpp>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    try {
        ddp::write_state_dict(argv[2], ddp::read_state_dict(argv[1]));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
