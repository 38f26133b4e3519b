# Whether this build has the Gloo backend: DDP_HAS_GLOO.
set(DDP_WITH_GLOO AUTO CACHE STRING "The Gloo backend, for several hosts (AUTO, ON, OFF; needs libgloo)")
set_property(CACHE DDP_WITH_GLOO PROPERTY STRINGS AUTO ON OFF)

set(DDP_HAS_GLOO OFF)
if(DDP_WITH_GLOO)  # AUTO too
  include(ddp_find_gloo)
  if(TARGET ddp::libgloo AND DDP_GLOO_INCLUDE_DIR)
    set(DDP_HAS_GLOO ON)
  elseif(NOT DDP_WITH_GLOO STREQUAL AUTO)
    message(FATAL_ERROR "DDP_WITH_GLOO is ${DDP_WITH_GLOO}, but there is no libgloo (Debian: libgloo-dev)")
  endif()
endif()
message(STATUS "ddp: backend gloo: ${DDP_HAS_GLOO}")
