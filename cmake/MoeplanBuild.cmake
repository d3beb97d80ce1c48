# Compiler settings and the one way a library of ours is declared.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(MOEPLAN_CCACHE ccache)
if(MOEPLAN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # With precompiled headers ccache needs the first two sloppiness settings to hit. An object does not depend on the
  # folder of its build, but for the name of that folder in its debug information.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_NOHASHDIR=1 "${MOEPLAN_CCACHE}")
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

if(CMAKE_UNITY_BUILD)
  # Several source files are compiled as one, which halves the time of a build from nothing. GCC takes a source file that
  # is included for a header, in which a class had better have no member of a type without linkage.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

find_package(Threads REQUIRED)

add_library(moeplan_settings INTERFACE)
target_include_directories(moeplan_settings INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(moeplan_settings INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
if(MOEPLAN_WERROR)
  target_compile_options(moeplan_settings INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
endif()
if(MOEPLAN_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(MOEPLAN_SANITIZE STREQUAL "thread")
  # Protobuf's headers lay maps out otherwise when they see this macro, and Debian's library was not built so.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -U__SANITIZE_THREAD__)
  add_link_options(-fsanitize=thread)
elseif(MOEPLAN_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MOEPLAN_SANITIZE is fuzzer, which only Clang has; found ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(MOEPLAN_SANITIZE)
  message(FATAL_ERROR "MOEPLAN_SANITIZE is '${MOEPLAN_SANITIZE}', expected address, thread, fuzzer or nothing")
endif()
if(MOEPLAN_SANITIZE)
  add_compile_definitions(MOEPLAN_SANITIZED)  # For tests that hold a time.
endif()

# moeplan_library(NAME SOURCES ... PUBLIC ... PRIVATE ...): a static library moeplan_NAME with the alias moeplan::NAME.
function(moeplan_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(moeplan_${name} STATIC ${ARG_SOURCES})
  add_library(moeplan::${name} ALIAS moeplan_${name})
  # The settings are ours: who links the installed library brings its own.
  target_link_libraries(moeplan_${name} PUBLIC $<BUILD_INTERFACE:moeplan_settings> ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()
