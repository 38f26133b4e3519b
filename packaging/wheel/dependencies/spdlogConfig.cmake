# Headers alone, which lie in DDP_HEADERS.
if(NOT TARGET spdlog::spdlog_header_only)
  add_library(spdlog::spdlog_header_only INTERFACE IMPORTED GLOBAL)
endif()
