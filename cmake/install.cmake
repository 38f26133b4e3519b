# What `cmake --install` copies: the library, its headers, ddp-launch, ddp-bench and ddp-doctor with their manual pages, the CMake package
# `ddp` and ddp.pc. A user needs none of ddp's own dependencies, and libgloo only to
# run backend gloo.
include(CMakePackageConfigHelpers)

set(ddp_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddp)

install(TARGETS ddp_runtime EXPORT ddp-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(DDP_BUILD_LAUNCHER)
  install(TARGETS ddp-launch ddp_launcher EXPORT ddp-targets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(DDP_BUILD_TOOLS)
  install(TARGETS ddp-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(DDP_BUILD_LAUNCHER)
    install(TARGETS ddp-doctor RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ddp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The static library leaves the CUDA runtime to whoever links it; the shared one has it inside.
set(ddp_find_cuda "")
if(DDP_HAS_CUDA AND NOT BUILD_SHARED_LIBS)
  set(ddp_find_cuda "find_dependency(CUDAToolkit ${CUDAToolkit_VERSION_MAJOR})  # cudart_static\n")
endif()
install(EXPORT ddp-targets NAMESPACE ddp:: DESTINATION ${ddp_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ddp-config.cmake.in
  ${PROJECT_BINARY_DIR}/ddp-config.cmake INSTALL_DESTINATION ${ddp_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddp-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ddp-config.cmake
  ${PROJECT_BINARY_DIR}/ddp-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/ddp_add_test.cmake
  ${PROJECT_SOURCE_DIR}/cmake/ddp_start_fast.cmake
  ${PROJECT_SOURCE_DIR}/cmake/ddp_torch.cmake
  DESTINATION ${ddp_cmake_dir})

file(RELATIVE_PATH ddp_pc_to_prefix
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(ddp_pc_libs "")
if(CMAKE_DL_LIBS AND NOT BUILD_SHARED_LIBS)
  set(ddp_pc_libs "-l${CMAKE_DL_LIBS} ")
endif()
if(DDP_HAS_CUDA AND NOT BUILD_SHARED_LIBS)
  set(ddp_pc_libs "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt ${ddp_pc_libs}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/ddp.pc.in ${PROJECT_BINARY_DIR}/ddp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ddp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
