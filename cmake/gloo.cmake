# Whether this build has the Gloo backend: DDP_HAS_GLOO. Only its headers are built with; the shared
# library is loaded at run time by its name, DDP_GLOO_SONAME. Not through Gloo's own package: its
# targets name what its builder had (CUDA, MPI).
set(DDP_WITH_GLOO AUTO CACHE STRING "The Gloo backend, for several hosts (AUTO, ON, OFF; needs libgloo)")
set_property(CACHE DDP_WITH_GLOO PROPERTY STRINGS AUTO ON OFF)

set(DDP_HAS_GLOO OFF)
if(DDP_WITH_GLOO)  # AUTO too
  find_library(DDP_GLOO_LIBRARY ${CMAKE_SHARED_LIBRARY_PREFIX}gloo${CMAKE_SHARED_LIBRARY_SUFFIX})
  find_path(DDP_GLOO_INCLUDE_DIR gloo/transport/tcp/device.h)
  mark_as_advanced(DDP_GLOO_LIBRARY DDP_GLOO_INCLUDE_DIR)
  if(DDP_GLOO_LIBRARY AND DDP_GLOO_INCLUDE_DIR)
    set(DDP_HAS_GLOO ON)
    execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${DDP_GLOO_LIBRARY} OUTPUT_VARIABLE ddp_gloo_facts)
    if(ddp_gloo_facts MATCHES "SONAME +([^ \n]+)")
      set(DDP_GLOO_SONAME ${CMAKE_MATCH_1})
    else()
      get_filename_component(DDP_GLOO_SONAME ${DDP_GLOO_LIBRARY} NAME)
    endif()
  elseif(NOT DDP_WITH_GLOO STREQUAL AUTO)
    message(FATAL_ERROR "DDP_WITH_GLOO is ${DDP_WITH_GLOO}, but there is no libgloo.so (Debian: libgloo-dev)")
  endif()
endif()
message(STATUS "ddp: backend gloo: ${DDP_HAS_GLOO}")
