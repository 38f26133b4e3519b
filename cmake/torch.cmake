# Whether this build has ddp::torch, for the tests, examples and tools that use LibTorch:
# DDP_HAS_TORCH. The headers are installed in any case.
include(cmake/ddp_torch.cmake)

set(DDP_WITH_TORCH AUTO CACHE STRING "The LibTorch adapter's tests, example and benchmark (AUTO, ON, OFF)")
set_property(CACHE DDP_WITH_TORCH PROPERTY STRINGS AUTO ON OFF)

set(DDP_HAS_TORCH OFF)
if(DDP_WITH_TORCH)  # AUTO too
  ddp_find_torch(DDP_HAS_TORCH ddp_no_torch)
  if(NOT DDP_HAS_TORCH AND NOT DDP_WITH_TORCH STREQUAL AUTO)
    message(FATAL_ERROR "DDP_WITH_TORCH is ${DDP_WITH_TORCH}, but ${ddp_no_torch} (Debian: libtorch-dev)")
  endif()
endif()
if(DDP_HAS_TORCH AND CMAKE_CXX_COMPILER_ID MATCHES Clang AND DDP_HAS_TORCH_VERSION VERSION_LESS 2)
  target_compile_options(ddp::torch INTERFACE
    "SHELL:$<$<COMPILE_LANGUAGE:CXX>:-include ${PROJECT_SOURCE_DIR}/cmake/vector_for_torch.hpp>")
endif()
message(STATUS "ddp: LibTorch: ${DDP_HAS_TORCH}")
