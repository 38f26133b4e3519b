# Finds a library that ddp loads at run time, by its name: only its headers are built with. Sets DDP_HAS_<NAME> (from
# DDP_WITH_<NAME>: AUTO, ON or OFF), DDP_<NAME>_LIBRARY, DDP_<NAME>_INCLUDE_DIR and DDP_<NAME>_SONAME.
#
#   ddp_find_late_library(GLOO gloo gloo/transport/tcp/device.h libgloo-dev)
macro(ddp_find_late_library name library header package)
  set(DDP_HAS_${name} OFF)
  if(DDP_WITH_${name})  # AUTO too
    find_library(DDP_${name}_LIBRARY ${CMAKE_SHARED_LIBRARY_PREFIX}${library}${CMAKE_SHARED_LIBRARY_SUFFIX})
    find_path(DDP_${name}_INCLUDE_DIR ${header})
    mark_as_advanced(DDP_${name}_LIBRARY DDP_${name}_INCLUDE_DIR)
    if(DDP_${name}_LIBRARY AND DDP_${name}_INCLUDE_DIR)
      set(DDP_HAS_${name} ON)
      execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${DDP_${name}_LIBRARY} OUTPUT_VARIABLE ddp_library_facts)
      if(ddp_library_facts MATCHES "SONAME +([^ \n]+)")
        set(DDP_${name}_SONAME ${CMAKE_MATCH_1})
      else()
        get_filename_component(DDP_${name}_SONAME ${DDP_${name}_LIBRARY} NAME)
      endif()
    elseif(NOT DDP_WITH_${name} STREQUAL AUTO)
      message(FATAL_ERROR "DDP_WITH_${name} is ${DDP_WITH_${name}}, but there is no lib${library}.so (Debian: ${package})")
    endif()
  endif()
endmacro()
