# Whether this build has the Gloo backend: DDP_HAS_GLOO. Not through Gloo's own package: its targets name what its builder
# had (CUDA, MPI).
include(cmake/late_library.cmake)
set(DDP_WITH_GLOO AUTO CACHE STRING "The Gloo backend, for several hosts (AUTO, ON, OFF; needs libgloo)")
set_property(CACHE DDP_WITH_GLOO PROPERTY STRINGS AUTO ON OFF)
ddp_find_late_library(GLOO gloo gloo/transport/tcp/device.h libgloo-dev)
message(STATUS "ddp: backend gloo: ${DDP_HAS_GLOO}")

# Whether its messages can go over UCX: DDP_HAS_UCX.
set(DDP_WITH_UCX AUTO CACHE STRING "UCX between hosts (AUTO, ON, OFF; needs libucp, and libgloo)")
set_property(CACHE DDP_WITH_UCX PROPERTY STRINGS AUTO ON OFF)
ddp_find_late_library(UCX ucp ucp/api/ucp.h libucx-dev)
if(DDP_HAS_UCX AND NOT DDP_HAS_GLOO)
  set(DDP_HAS_UCX OFF)
  if(NOT DDP_WITH_UCX STREQUAL AUTO)
    message(FATAL_ERROR "DDP_WITH_UCX is ${DDP_WITH_UCX}, but backend gloo, whose messages it would move, is not there")
  endif()
endif()
message(STATUS "ddp: UCX between hosts: ${DDP_HAS_UCX}")
