#!/usr/bin/env bash
# package_test.sh CASE SOURCE_DIR BUILD_DIR: uses ddp from outside, in a folder that is removed.
set -euo pipefail
case_name=$1 source_dir=$2 build_dir=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=${DDP_TEST_PREFIX:-$work/prefix}  # where ddp is installed already

fail() { echo "FAILED: $*" >&2; exit 1; }
install_ddp() { [ -n "${DDP_TEST_PREFIX:-}" ] || cmake --install "$build_dir" --prefix "$prefix" >"$work/install.log"; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }
package_config() { find "$prefix" -name ddp.pc -printf '%h'; }

FindPackageBuildsAndTestsTheConsumer() {
    install_ddp
    cmake -G Ninja -S "$source_dir/examples/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/configure.log"
    cmake --build "$work/build" -j2
    ctest --test-dir "$work/build" --output-on-failure --no-tests=error
    "$work/build/sum_ranks" 0
    ! "$work/build/sum_ranks" 7 || fail "a wrong sum was accepted"
    mkdir "$work/c"
    cat >"$work/c/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES C)
find_package(ddp CONFIG REQUIRED)
add_executable(c_trainer $source_dir/examples/13_c_trainer.c)
target_link_libraries(c_trainer PRIVATE ddp::runtime m)
EOF
    cmake -G Ninja -S "$work/c" -B "$work/c/build" -DCMAKE_PREFIX_PATH="$prefix" >>"$work/configure.log"
    cmake --build "$work/c/build"
    "$prefix/bin/ddp-launch" --nproc-per-node=2 "$work/c/build/c_trainer" | grep '2 ranks, the same weights' >/dev/null ||
        fail "the program in C did not train"
}

PkgConfigBuildsAProgram() {
    install_ddp
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(package_config)
    # shellcheck disable=SC2046
    c++ -std=c++20 "$source_dir/examples/consumer/sum_ranks.cpp" $(pkg-config --cflags --libs ddp) \
        -o "$work/sum_ranks"
    "$prefix/bin/ddp-launch" --nproc_per_node=2 "$work/sum_ranks" 1
    # shellcheck disable=SC2046
    cc -std=c99 "$source_dir/examples/13_c_trainer.c" $(pkg-config --cflags --libs --static ddp) -o "$work/c_trainer"
    "$prefix/bin/ddp-launch" --nproc_per_node=2 "$work/c_trainer" | grep '2 ranks, the same weights' >/dev/null ||
        fail "the program in C did not train"
    local file
    for file in man/man1/ddp-{launch,bench,doctor}.1 bash-completion/completions/ddp-launch zsh/site-functions/_ddp-launch \
        fish/vendor_completions.d/ddp-launch.fish; do
        [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
    done
}

# The consumer brings functions of spdlog's names with other layouts and results.
LinksBesideAnotherSpdlog() {
    install_ddp
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(package_config)
    # shellcheck disable=SC2046
    c++ -std=c++20 "$source_dir/tests/package/other_spdlog.cpp" \
        $(pkg-config --cflags --libs ddp) -o "$work/other_spdlog"
    DDP_LOG_LEVEL=debug "$work/other_spdlog" 2>"$work/stderr"
    grep -q 'backends] shm for 1 ranks' "$work/stderr" || fail "ddp's own log line is missing"
    local library
    library=$(find "$prefix" -name libddp.a)
    ! nm -C "$library" | grep -E ' (spdlog|fmt::v[0-9]+::.*spdlog)::' ||
        fail "libddp.a defines or wants symbols of spdlog"
}

# A project that asks for the LibTorch adapter.
make_torch_project() {
    install_ddp
    cat >"$work/main.cpp" <<EOF
#include <ddp/torch.hpp>

#include <torch/torch.h>

int main() {
    auto group = ddp::init_process_group();
    ddp::libtorch::DistributedDataParallel model{torch::nn::Linear(3, 2), group};
    model(torch::ones({1, 3})).sum().backward();
    return model->bias.grad().sum().item<float>() == 2 ? 0 : 1;
}
EOF
    cat >"$work/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES CXX)
find_package(ddp CONFIG REQUIRED COMPONENTS torch)
add_executable(main main.cpp)
target_link_libraries(main PRIVATE ddp::torch)
EOF
}

ComponentTorchBuildsALibTorchProgram() {
    make_torch_project
    local ccache=()
    if command -v ccache >/dev/null; then ccache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
    cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" "${ccache[@]}" >"$work/configure.log"
    cmake --build "$work/build"
    OMP_NUM_THREADS=1 "$prefix/bin/ddp-launch" --nproc_per_node=2 "$work/build/main"
}

ComponentTorchIsRefusedWithoutTorch() {
    make_torch_project
    ! cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON >"$work/configure.log" 2>&1 || fail "it was found"
    grep -q 'find_package(Torch) found none' "$work/configure.log" ||
        fail "the message does not say what is missing: $(cat "$work/configure.log")"
}

ComponentThatThereIsNotIsNamed() {
    make_torch_project
    sed -i 's/COMPONENTS torch/COMPONENTS pytorch/' "$work/CMakeLists.txt"
    ! cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
        >"$work/configure.log" 2>&1 || fail "it was found"
    tr -s ' \n' '  ' <"$work/configure.log" | grep -q 'no component "pytorch"; there is: torch' ||
        fail "the message does not say what there is: $(cat "$work/configure.log")"
}

ACompilerOfAnOlderStandardIsRefused() {
    install_ddp
    echo '#include <ddp/ddp.hpp>' >"$work/old.cpp"
    ! c++ -std=c++17 -I"$prefix/include" -fsyntax-only "$work/old.cpp" 2>"$work/stderr" ||
        fail "it compiles"
    grep -m1 error "$work/stderr" | grep -q 'ddp needs C++20' ||
        fail "the first error is another one: $(grep -m1 error "$work/stderr")"
}

AddSubdirectoryBuildsSharedWithoutLauncherAndBoost() {
    cat >"$work/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES CXX)
set(BUILD_SHARED_LIBS ON)
set(DDP_BUILD_LAUNCHER OFF)
add_subdirectory($source_dir ddp)
add_executable(sum_ranks $source_dir/examples/consumer/sum_ranks.cpp)
target_link_libraries(sum_ranks PRIVATE ddp::runtime)
ddp_start_fast(sum_ranks)
EOF
    export CCACHE_NOHASHDIR=1  # the folder is another each time
    local ccache=()
    if command -v ccache >/dev/null; then ccache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache); fi
    cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON "${ccache[@]}" \
        -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g" -DCMAKE_CUDA_ARCHITECTURES=75-virtual \
        -DDDP_WARNINGS_AS_ERRORS="$(cached DDP_WARNINGS_AS_ERRORS)" \
        >"$work/configure.log"
    cmake --build "$work/build" -j2 --target sum_ranks
    "$work/build/sum_ranks" 0
    ! ldd "$work/build/sum_ranks" | grep -E 'boost|spdlog|fmt' || fail "a foreign library is linked"
    readelf -d "$work/build/sum_ranks" | grep 'NEEDED.*libstdc++' >/dev/null || fail "it has a standard library beside libddp.so's"
    ldd "$work/build/sum_ranks" | grep 'libddp\.so\.' >/dev/null || fail "libddp.so is not linked"
    ! nm -DC --defined-only "$work"/build/ddp/runtime/libddp.so | grep -E ' (nlohmann|ddp::shm)::|::Impl::' ||
        fail "libddp.so exports what is not ddp's interface"
    ! nm -D --defined-only "$work"/build/ddp/runtime/libddp.so | grep -vE ' (ddp_[a-z_]+@@DDP_0|_Z(|T[ISVT]|T[hv][n0-9_]*_|GV|GVZ|Z)N[KOR]*3ddp.*@@DDP_0|DDP_0)$' ||
        fail "libddp.so exports what is not ddp's, as the CUDA runtime, which a program may bring itself"
    if [ -n "${DDP_REQUIRE_INTEROP:-}" ] || command -v abidw >/dev/null; then
        check_abi "$work/build/ddp/runtime/libddp.so"
    else
        echo "no abidw: the ABI is not compared; tools/install-deps.sh --interop installs it"
    fi
}

# Earlier programs run with the library; and one whose interface has changed is refused.
check_abi() {
    "$source_dir/tools/abi.sh" check "$1" >&2 || fail "programs of an earlier libddp.so do not run with this one"
    mkdir -p "$work/abi"
    abi_refuses "$1" 'programs that were linked with libddp.so.0 may not run' 's/ddp_barrier/ddp_is_gone/g'
    local struct
    for struct in ReducerOptions ddp_tensor; do
        abi_refuses "$1" 'programs that were linked with libddp.so.0 may not run' \
            "s/\(class-decl name='$struct' size-in-bits='\)[0-9]*/\164/"
    done
    abi_refuses "$1" 'that is new' "/<elf-symbol name='ddp_barrier'/d; /<function-decl name='ddp_barrier'/,/<\/function-decl>/d"
}
# abi_refuses LIBRARY WHY EDIT: beside a description that was edited so.
abi_refuses() {
    xz -dc "$source_dir/packaging/abi/libddp.so.0.abi.xz" | sed "$3" | xz -0 >"$work/abi/libddp.so.0.abi.xz"
    ! DDP_ABI_FOLDER=$work/abi "$source_dir/tools/abi.sh" check "$1" >"$work/abi.log" 2>&1 || fail "no change is seen: $3"
    grep -q "$2" "$work/abi.log" || fail "$(cat "$work/abi.log")"
}

SoakTheConsumerIsBuiltByEachCompilerAndStandard() {
    install_ddp
    local compiler standard
    for compiler in g++ clang++; do
        for standard in 20 23; do
            echo "$compiler, C++$standard"
            cmake -G Ninja -S "$source_dir/examples/consumer" -B "$work/$compiler$standard" -DCMAKE_PREFIX_PATH="$prefix" \
                -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_STANDARD="$standard" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/configure.log"
            cmake --build "$work/$compiler$standard" -j2
            ctest --test-dir "$work/$compiler$standard" --output-on-failure --no-tests=error
        done
    done
}

# The consumer as it is, whose find_package() gets what was fetched.
SoakFetchContentBuildsTheConsumerFromTheTarball() {
    local tarball
    tarball=$source_dir/$("$source_dir/tools/release.sh" --snapshot)
    cat >"$work/fetch.cmake" <<EOF
include(FetchContent)
set(DDP_WITH_CUDA OFF)
FetchContent_Declare(ddp URL "$tarball" URL_HASH SHA256=$(sha256sum "$tarball" | cut -d ' ' -f 1) OVERRIDE_FIND_PACKAGE)
EOF
    local ccache=()
    if command -v ccache >/dev/null; then ccache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
    cmake -G Ninja -S "$source_dir/examples/consumer" -B "$work/build" -DCMAKE_PROJECT_TOP_LEVEL_INCLUDES="$work/fetch.cmake" \
        -DCMAKE_BUILD_TYPE=Release "${ccache[@]}" >"$work/configure.log"
    cmake --build "$work/build" -j2
    ctest --test-dir "$work/build" --output-on-failure --no-tests=error
}

# As far as rattler-build goes without conda's channels: what it makes of the recipe.
SoakTheCondaRecipeIsRendered() {
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" --disable-pip-version-check install --quiet py-rattler-build==0.73.0
    DDP_TARBALL=/ddp.tar.gz DDP_TARBALL_SHA256=$(printf '%064d' 0) "$work/venv/bin/python" - "$source_dir/packaging/conda/recipe.yaml" <<'END' ||
import sys
from rattler_build import Stage0Recipe, VariantConfig
stdlib = VariantConfig.from_yaml('c_stdlib: [sysroot]\nc_stdlib_version: ["2.28"]\n')
(variant,) = Stage0Recipe.from_file(sys.argv[1]).render(stdlib)
recipe = variant.recipe.to_dict()
assert recipe["source"][0]["url"] == "file:///ddp.tar.gz", recipe["source"]
assert "gxx_linux-64" in recipe["requirements"]["build"], recipe["requirements"]
print(recipe["package"])
END
        fail "rattler-build does not take the recipe"
}

"$case_name"
