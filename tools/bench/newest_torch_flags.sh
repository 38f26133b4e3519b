# Sourced: how to build against the PyTorch of a Python environment, without Torch's own CMake files, which ask for a CUDA
# toolkit where that PyTorch can use GPUs.
#
# newest_torch_flags PYTHON BUILD: sets the arrays compile_flags and link_flags, the latter with ddp's library of that build.
newest_torch_flags() {
    local at ddp_needs=()
    at=$("$1" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
    read -ra ddp_needs < <(sed -n 's/^Libs: .* -lddp //p' "$2/ddp.pc") || {  # CUDA's runtime too, where it is built with
        echo "newest_torch_flags.sh: $2/ddp.pc does not say what ddp needs; build ddp there first" >&2
        return 2
    }
    compile_flags=(-Iinclude -isystem "$at/include" -isystem "$at/include/torch/csrc/api/include")
    link_flags=("$2/runtime/libddp.a" "${ddp_needs[@]}" -L"$at/lib" -Wl,-rpath,"$at/lib"
        -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -Wl,--as-needed -Wl,--allow-shlib-undefined)
}
