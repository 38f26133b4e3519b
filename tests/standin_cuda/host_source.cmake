# cmake -D IN=file.cu -D OUT=file -P host_source.cmake: a .cu file in C++, which knows no launch in angle
# brackets; a variable in shared memory is filled with bytes that are no number (kernel_language.hpp).
file(READ ${IN} text)
string(REGEX REPLACE "([A-Za-z_0-9]+)<<<([^>]*)>>>\\(" "::ddp::standin_cuda::Launch(\\2)(\\1, " text "${text}")
string(REGEX REPLACE "(__shared__ [^;]* ([A-Za-z_0-9]+)\\[[^;]*;)" "\\1 ::ddp::standin_cuda::poison_shared(&\\2, sizeof \\2);" text "${text}")
file(WRITE ${OUT} "#line 1 \"${IN}\"\n${text}")
