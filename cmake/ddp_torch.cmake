# ddp_find_torch(<found> <reason>): makes ddp::torch, ddp for programs of LibTorch, out of the Torch
# that find_package finds; sets <found> and <found>_VERSION, and <reason> where it did not. Says nothing.
# Part of the installed package too: ddp itself links no torch, so that each program brings its own.
function(ddp_find_torch found reason)
  set(${found} OFF PARENT_SCOPE)
  set(${reason} "find_package(Torch) found none; is its folder in CMAKE_PREFIX_PATH?" PARENT_SCOPE)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # Torch's package reports all that it looks for
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    return()
  endif()
  if(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    set(${reason} "Torch in ${TORCH_INSTALL_PREFIX} was built with libstdc++'s ABI of before C++11; take its cxx11-abi package" PARENT_SCOPE)
    return()
  endif()
  add_library(ddp::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(ddp::torch INTERFACE ddp::runtime ${TORCH_LIBRARIES})
  if(TARGET torch_cuda)
    target_compile_definitions(ddp::torch INTERFACE DDP_TORCH_HAS_CUDA)
  endif()
  set(${found} ON PARENT_SCOPE)
  set(${found}_VERSION "${Torch_VERSION}" PARENT_SCOPE)
endfunction()
