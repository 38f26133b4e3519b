# How every target of ddp is compiled, and the two functions that make them: ddp_add_room for a
# folder of the library, ddp_add_unit_test for a folder of tests.

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(DDP_CCACHE ccache)
  mark_as_advanced(DDP_CCACHE)
  if(DDP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # As ccache wants it for precompiled headers.
    set(sloppiness pch_defines,time_macros)
    if(NOT "$ENV{CCACHE_SLOPPINESS}" STREQUAL "")
      string(APPEND sloppiness ",$ENV{CCACHE_SLOPPINESS}")
    endif()
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=${sloppiness} ${DDP_CCACHE})
  endif()
endif()

# Linked privately by all of ddp's own targets; never exported.
add_library(ddp_settings INTERFACE)
add_library(ddp::settings ALIAS ddp_settings)
target_compile_features(ddp_settings INTERFACE cxx_std_20)
target_compile_options(ddp_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wconversion
  # Which GCC does not count among conversions.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>>
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # Of a .cu file the compiler sees what nvcc makes of it, which is neither pedantic nor ours.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<BOOL:${DDP_WARNINGS_AS_ERRORS}>:$<IF:$<COMPILE_LANGUAGE:CUDA>,-Werror=all-warnings,-Werror>>)
if(DDP_SANITIZE)
  set(ddp_sanitizers
    -fsanitize=${DDP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # This check opens a pipe, and some tests leave no descriptor for one.
    -fno-sanitize=vptr
    # ThreadSanitizer knows no fences; ours order futexes, not data. GCC 12 sees uninitialised members inside libstdc++ once it
    # instruments.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan$<SEMICOLON>-Wno-maybe-uninitialized>)
  target_compile_options(ddp_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${ddp_sanitizers}>)
  # Where a program lies is known when it is linked: the sanitizers' tables have a million pointers, which each start of a test
  # would else relocate (57 ms against 31).
  target_link_options(ddp_settings INTERFACE -fsanitize=${DDP_SANITIZE}
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  # A hundred programs, each with all of the sanitizers' runtime.
  find_program(DDP_LLD ld.lld)
  mark_as_advanced(DDP_LLD)
  if(DDP_LLD)
    target_link_options(ddp_settings INTERFACE -fuse-ld=lld)
  endif()
endif()

option(DDP_UNITY_BUILD "Compile the sources of a room or a test program six at a time" ON)

# Six sources as one: they include the same headers, and reading these takes longer than the rest. What then looks like a name
# hidden by another, or a type of a header in an anonymous namespace, is neither. Linked, as such options come last.
add_library(ddp_together INTERFACE)
target_compile_options(ddp_together INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow$<SEMICOLON>$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>>)
function(ddp_compile_together name)
  if(DDP_UNITY_BUILD)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:ddp_together>)
  endif()
endfunction()

# ddp_add_room(NAME SOURCES file... [LINKS target...]): the object library ddp::NAME.
function(ddp_add_room name)
  cmake_parse_arguments(PARSE_ARGV 1 room "" "" "SOURCES;LINKS")
  add_library(ddp_${name} OBJECT ${room_SOURCES})
  add_library(ddp::${name} ALIAS ddp_${name})
  target_include_directories(ddp_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/runtime ${PROJECT_SOURCE_DIR})
  target_compile_features(ddp_${name} PUBLIC cxx_std_20)
  set_target_properties(ddp_${name} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(ddp_${name} PRIVATE $<BUILD_INTERFACE:ddp_settings> ${room_LINKS})
  ddp_compile_together(ddp_${name})
endfunction()

# Where ddp-launch is, for a program that launches and does not link ddp::launcher.
function(ddp_use_launcher name)
  if(DDP_BUILD_LAUNCHER)
    target_compile_definitions(${name} PRIVATE DDP_LAUNCH_PATH="$<TARGET_FILE:ddp-launch>")
    add_dependencies(${name} ddp-launch)
  endif()
endfunction()

# ddp_add_to_gpu_bundle(TARGET...): what tools/gpu-check.sh takes to a machine with a GPU, in its bin/,
# with libraries in lib/ beside it.
function(ddp_add_to_gpu_bundle)
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
    set_property(GLOBAL APPEND PROPERTY ddp_gpu_bundle ${target})
  endforeach()
endfunction()

# The list of them for the script, and a target that builds them; after all have been named.
function(ddp_write_gpu_bundle)
  get_property(targets GLOBAL PROPERTY ddp_gpu_bundle)
  set(files "")
  foreach(target IN LISTS targets)
    string(APPEND files "$<TARGET_FILE:${target}>\n")
  endforeach()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/gpu-bundle.txt CONTENT "${files}")
  file(WRITE ${PROJECT_BINARY_DIR}/gpu-bundle-made-of.txt
    "CUDA ${CUDAToolkit_VERSION}\nNCCL's header ${DDP_NCCL_VERSION}\n")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/gpu-bundle-needs.txt
    CONTENT "cudart $<TARGET_FILE:CUDA::cudart_static>\n")
  add_custom_target(ddp_gpu_bundle DEPENDS ${targets} ddp_runtime)
endfunction()

# Without optimization, which takes half the time: for programs that test, of which nobody waits for
# what they compute themselves. Sanitized without lines, too, a seventh of it: the functions of a report say enough of a test.
function(ddp_compile_plainly name)
  target_compile_options(${name} PRIVATE
    "$<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O0;-g1>")
  if(DDP_SANITIZE MATCHES address)
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O0;-g0>")
  endif()
endfunction()

# Lets ccache take what a target with precompiled headers compiles.
function(ddp_cache_with_headers name)
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()

# ddp_add_unit_test(NAME SOURCES file... [LINKS target...] [LABEL label] [TIMEOUT seconds]
# [PROCESSORS number] [COST seconds] [PREFIX text] [RANKS] [SERIAL] [SOAK] [OPTIMIZED] [ONE_BY_ONE]): one GoogleTest
# program; each of its tests is a test of ctest, named Suite.Name after the prefix. PROCESSORS: beside one of
# them so many fewer than ctest's -j run. COST: of the longest, where that is long: ctest starts it early, not to wait for it alone
# in the end. RANKS: it uses ddp/testing.hpp; ctest has its
# tests only where ddp-launch is built. SERIAL: none of them beside another test. SOAK: it has tests
# named Suite.Soak..., which run long and only when asked for (ctest -L soak). OPTIMIZED: what its own
# code computes takes long. ONE_BY_ONE: its sources use one name for different things.
function(ddp_add_unit_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "RANKS;SERIAL;SOAK;OPTIMIZED;ONE_BY_ONE" "LABEL;TIMEOUT;PROCESSORS;COST;PREFIX" "SOURCES;LINKS")
  if(test_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "ddp_add_unit_test: what is ${test_UNPARSED_ARGUMENTS}?")
  endif()
  if(NOT test_LABEL)
    set(test_LABEL unit)
  endif()
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 60)
  endif()
  if(NOT test_PROCESSORS)
    set(test_PROCESSORS 1)
  endif()
  if(NOT test_COST)
    set(test_COST 0)
  endif()
  add_executable(${name} ${test_SOURCES})
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/runtime ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE
    ddp::settings ${test_LINKS} ddp::internal GTest::gtest_main GTest::gmock)
  if(test_OPTIMIZED)  # by -O1: -O2 takes half as long again to compile
    target_compile_options(${name} PRIVATE "$<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
  else()
    ddp_compile_plainly(${name})
  endif()
  if(NOT test_ONE_BY_ONE)
    ddp_compile_together(${name})
  endif()
  if(TARGET ddp_test_headers AND NOT test_OPTIMIZED AND NOT test_LINKS MATCHES torch)  # whose definitions change the headers
    target_precompile_headers(${name} REUSE_FROM ddp_test_headers)
    ddp_cache_with_headers(${name})
  endif()
  set_target_properties(${name} PROPERTIES
    CXX_EXTENSIONS OFF
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  if(test_RANKS)
    ddp_use_launcher(${name})
    if(NOT DDP_BUILD_LAUNCHER)
      message(STATUS "ddp: ctest leaves out ${name}: its tests need ddp-launch (DDP_BUILD_LAUNCHER)")
      return()
    endif()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "-*.Soak*"
    TEST_PREFIX "${test_PREFIX}"
    PROPERTIES LABELS ${test_LABEL} TIMEOUT ${test_TIMEOUT} PROCESSORS ${test_PROCESSORS}
      COST ${test_COST} RUN_SERIAL "${test_SERIAL}")
  if(test_SOAK)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "*.Soak*"
      TEST_LIST ${name}_soak
      PROPERTIES LABELS soak TIMEOUT 4500 RUN_SERIAL TRUE)
  endif()
endfunction()
