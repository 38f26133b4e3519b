# ddp_start_fast(<target>)
#
# Links a worker program with libstdc++ and libgcc inside it: each rank then has a C library to load
# and nothing else, which takes a third off the time from its exec to its main. For programs whose
# other libraries are C ones or static: a shared library in C++ (LibTorch) brings its own libstdc++,
# and objects and exceptions of both must not meet. So backend gloo refuses such a program. Its own
# addresses are fixed at link time: nothing to relocate at start, of the CUDA runtime above all.
# Where ddp itself is a shared library nothing is done.
function(ddp_start_fast target)
  if(NOT ARGC EQUAL 1 OR NOT TARGET "${target}")
    message(FATAL_ERROR "ddp_start_fast: '${ARGV}' is not one target")
  endif()
  set(kind STATIC_LIBRARY)
  if(TARGET ddp::runtime)
    get_target_property(kind ddp::runtime TYPE)
  endif()
  if(NOT DDP_SANITIZE AND NOT kind STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -no-pie -Wl,--gc-sections)
  endif()
endfunction()
