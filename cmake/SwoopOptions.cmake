# What can be chosen when configuring, and the compile flags that follow. Included by the root before any target.
# An optional library that is found defines SWOOP_HAVE_X; without it the calls that need it answer "built without …".

option(SWOOP_TESTS "build the unit tests (cmocka)" ON)
option(SWOOP_CHECKS "add the long checks (sanitizers, fuzzing, linters, packages, …) to ctest; for `make check`" OFF)
option(SWOOP_WERROR "treat warnings as errors" OFF)
option(SWOOP_FUZZ "build the libFuzzer targets tests/fuzz/fuzz_*.c (clang)" OFF)
set(SWOOP_SANITIZE "" CACHE STRING "sanitizers for everything, e.g. \"address;undefined\" or \"thread\"")
option(SWOOP_WITH_CUDA "NVIDIA devices (nothing when building, the driver and NVRTC at run time)" ON)
option(SWOOP_WITH_OPENCL "OpenCL devices (headers when building, the ICD loader at run time)" ON)
option(SWOOP_WITH_YAML "YAML run files (libcyaml)" ON)
option(SWOOP_WITH_JSON "JSON: safetensors, checkpoints, run folders (jansson)" ON)
option(SWOOP_WITH_ZLIB "gzip-compressed IDX and deflated NPZ (zlib)" ON)

# -O2 with line tables: backtraces, valgrind and profilers name lines, and the stripped library does not grow by it.
if(CMAKE_C_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG" CACHE STRING "flags of the Release build" FORCE)
endif()

add_library(swoop_flags INTERFACE)
target_compile_options(swoop_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(SWOOP_WERROR)
  target_compile_options(swoop_flags INTERFACE -Werror)
endif()
target_compile_definitions(swoop_flags INTERFACE _GNU_SOURCE)

if(SWOOP_SANITIZE)
  list(JOIN SWOOP_SANITIZE "," swoop_sanitizers)
  add_compile_options(-fsanitize=${swoop_sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${swoop_sanitizers})
endif()
if(SWOOP_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SWOOP_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)

# oneDNN, whose package is called dnnl everywhere. Its C API broke between 2.x and 3.x; both are served. Only
# its headers are built against: the library is opened at run time (src/backend/cpu/dnn_load.h). Its own CMake
# file is passed over: Debian's asks for OpenCL's headers, which nothing here needs.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl_version.h)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN is missing: apt install libdnnl-dev")
endif()
file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" dnnl_VERSION "${dnnl_lines}")
string(REPLACE ";" "." dnnl_VERSION "${dnnl_VERSION}")
if(dnnl_VERSION VERSION_LESS 2.6)
  message(FATAL_ERROR "oneDNN ${dnnl_VERSION} is too old: 2.6 or later is needed")
endif()

pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

# swoop_use_optional(NAME "apt package" "pkg-config module"): adds PkgConfig::NAME to swoop_optional_libs if wanted.
set(swoop_optional_libs "")
set(swoop_optional_modules "")
function(swoop_use_optional name package module)
  if(NOT SWOOP_WITH_${name})
    message(STATUS "swoop is built without ${module} (SWOOP_WITH_${name}=OFF)")
    return()
  endif()
  pkg_check_modules(${name} IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} is missing: apt install ${package}, or configure with -DSWOOP_WITH_${name}=OFF")
  endif()
  target_compile_definitions(swoop_flags INTERFACE SWOOP_HAVE_${name}=1)
  set(swoop_optional_libs ${swoop_optional_libs} PkgConfig::${name} PARENT_SCOPE)
  set(swoop_optional_modules ${swoop_optional_modules} ${module} PARENT_SCOPE)
endfunction()
swoop_use_optional(YAML libcyaml-dev libcyaml)
swoop_use_optional(JSON libjansson-dev jansson)
swoop_use_optional(ZLIB zlib1g-dev zlib)

if(SWOOP_WITH_CUDA)
  target_compile_definitions(swoop_flags INTERFACE SWOOP_HAVE_CUDA=1)
endif()
if(SWOOP_WITH_CUDA OR SWOOP_WITH_OPENCL)
  set(SWOOP_WITH_GPU ON) # what the two share
endif()

# Of OpenCL only the headers are needed: the ICD loader is opened at run time (src/backend/opencl/cl_load.c).
if(SWOOP_WITH_OPENCL)
  find_path(OPENCL_INCLUDE_DIR CL/cl.h)
  if(NOT OPENCL_INCLUDE_DIR)
    message(FATAL_ERROR "OpenCL's headers are missing: apt install opencl-c-headers, or configure with -DSWOOP_WITH_OPENCL=OFF")
  endif()
  target_compile_definitions(swoop_flags INTERFACE SWOOP_HAVE_OPENCL=1)
endif()

message(STATUS "oneDNN ${dnnl_VERSION}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
