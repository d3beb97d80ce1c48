# What `cmake --install` puts under a prefix: models, executor and headers as the package that find_package(moeplan) finds. It may
# be moved, and names nothing of the source or build tree.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(MOEPLAN_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/moeplan")
set(MOEPLAN_HEADER_DIR "${CMAKE_INSTALL_INCLUDEDIR}/moeplan")

# For libraries of extensions, which link nothing of ours (docs/extending.md).
find_package(tl-expected REQUIRED)
add_library(moeplan_headers INTERFACE)
add_library(moeplan::headers ALIAS moeplan_headers)
target_link_libraries(moeplan_headers INTERFACE tl::expected $<BUILD_INTERFACE:moeplan_settings>)
target_compile_definitions(moeplan_headers INTERFACE MOEPLAN_VERSION="${PROJECT_VERSION}")
target_compile_features(moeplan_headers INTERFACE cxx_std_20)
set_target_properties(moeplan_headers PROPERTIES EXPORT_NAME headers)
install(TARGETS moeplan_headers EXPORT moeplanTargets INCLUDES DESTINATION "${MOEPLAN_HEADER_DIR}")

foreach(name models executor)
  set_target_properties(moeplan_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(moeplan_${name} INTERFACE cxx_std_20)
  install(TARGETS moeplan_${name} EXPORT moeplanTargets
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT executor
          INCLUDES DESTINATION "${MOEPLAN_HEADER_DIR}")
  install(DIRECTORY ${name} DESTINATION "${MOEPLAN_HEADER_DIR}" COMPONENT executor
          FILES_MATCHING PATTERN "*.h" PATTERN cuda EXCLUDE)  # That is no part of the executor's library.
endforeach()

install(EXPORT moeplanTargets NAMESPACE moeplan:: DESTINATION "${MOEPLAN_PACKAGE_DIR}" COMPONENT executor)

get_property(MOEPLAN_OPTIONAL_LIBRARIES GLOBAL PROPERTY MOEPLAN_OPTIONAL_LIBRARIES)
configure_package_config_file(cmake/moeplanConfig.cmake.in "${CMAKE_BINARY_DIR}/moeplanConfig.cmake"
                              INSTALL_DESTINATION "${MOEPLAN_PACKAGE_DIR}")
# Before 1.0.0 a minor version may change what is built on it.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/moeplanConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/moeplanConfig.cmake" "${CMAKE_BINARY_DIR}/moeplanConfigVersion.cmake"
        DESTINATION "${MOEPLAN_PACKAGE_DIR}" COMPONENT executor)
