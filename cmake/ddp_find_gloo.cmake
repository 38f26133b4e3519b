# Finds libgloo as the target ddp::libgloo, for ddp's own build and for those who link an installed
# libddp.a. Not through Gloo's own package: its targets name what its builder had (CUDA, MPI).
find_library(DDP_GLOO_LIBRARY gloo)
find_path(DDP_GLOO_INCLUDE_DIR gloo/transport/tcp/device.h)
mark_as_advanced(DDP_GLOO_LIBRARY DDP_GLOO_INCLUDE_DIR)
if(DDP_GLOO_LIBRARY AND NOT TARGET ddp::libgloo)
  add_library(ddp::libgloo UNKNOWN IMPORTED GLOBAL)
  set_target_properties(ddp::libgloo PROPERTIES IMPORTED_LOCATION ${DDP_GLOO_LIBRARY})
  if(DDP_GLOO_INCLUDE_DIR)
    set_target_properties(ddp::libgloo PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES ${DDP_GLOO_INCLUDE_DIR})
  endif()
endif()
