# What CPack packs for Debian 12: moeplan, the command with its simulator, service units and examples; libmoeplan-dev, what
# find_package(moeplan) finds; and, where nvcc is, moeplan-cuda, apart because Debian has no CUDA to depend on.
#
#   cmake --preset release && cmake --build --preset release && cpack --config build/CPackConfig.cmake -B build/packages

set(packaging "${PROJECT_SOURCE_DIR}/deploy/debian")
set(MOEPLAN_PACKAGE_CONTACT "moeplan maintainers <maintainers@moeplan.invalid>" CACHE STRING "Whom the packages name")

# ---- What is installed -----------------------------------------------------------------------------------------------

# executor/backends.cc looks in ../lib/moeplan from the command.
install(TARGETS moeplan RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT command)
if(TARGET moeplan_sim)
  install(TARGETS moeplan_sim LIBRARY DESTINATION lib/moeplan COMPONENT command)
endif()
if(TARGET moeplan_cuda)
  install(TARGETS moeplan_cuda LIBRARY DESTINATION lib/moeplan COMPONENT cuda OPTIONAL)
endif()

file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/*.md")
install(FILES README.md CHANGELOG.md ${pages} DESTINATION share/doc/moeplan COMPONENT command)
install(DIRECTORY deploy/examples deploy/front deploy/kubernetes deploy/monitoring deploy/slurm deploy/testbeds
        DESTINATION share/moeplan USE_SOURCE_PERMISSIONS COMPONENT command)
install(FILES "${packaging}/moeplan.1" DESTINATION share/man/man1 COMPONENT command)

# Absolute paths and Debian's own files: in the packages only, not with `cmake --install`.
install(FILES deploy/systemd/moeplan-planner.service deploy/systemd/moeplan-front.service
              deploy/systemd/moeplan-agent.service
        DESTINATION /lib/systemd/system COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES deploy/systemd/moeplan-planner deploy/systemd/moeplan-front deploy/systemd/moeplan-agent
        DESTINATION /etc/default COMPONENT debian EXCLUDE_FROM_ALL)
string(TIMESTAMP MOEPLAN_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH where that is set.
foreach(part IN ITEMS debian:moeplan debian-dev:libmoeplan-dev debian-cuda:moeplan-cuda)
  string(REGEX MATCH "^(.*):(.*)$" part "${part}")
  set(component "${CMAKE_MATCH_1}")
  set(MOEPLAN_PACKAGE "${CMAKE_MATCH_2}")
  configure_file("${packaging}/changelog.in" "${CMAKE_BINARY_DIR}/debian/${MOEPLAN_PACKAGE}/changelog" @ONLY)
  install(FILES "${packaging}/copyright" "${CMAKE_BINARY_DIR}/debian/${MOEPLAN_PACKAGE}/changelog"
          DESTINATION "share/doc/${MOEPLAN_PACKAGE}" COMPONENT ${component} EXCLUDE_FROM_ALL)
  if(EXISTS "${packaging}/${MOEPLAN_PACKAGE}.lintian-overrides")
    install(FILES "${packaging}/${MOEPLAN_PACKAGE}.lintian-overrides"
            DESTINATION share/lintian/overrides RENAME "${MOEPLAN_PACKAGE}" COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endforeach()

# ---- The packages ----------------------------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moeplan)
set(CPACK_PACKAGE_CONTACT "${MOEPLAN_PACKAGE_CONTACT}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/DebianFiles.cmake")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_COMPONENTS_ALL command debian executor debian-dev)
set(CPACK_COMPONENT_COMMAND_GROUP moeplan)
set(CPACK_COMPONENT_DEBIAN_GROUP moeplan)
set(CPACK_COMPONENT_EXECUTOR_GROUP dev)
set(CPACK_COMPONENT_DEBIAN-DEV_GROUP dev)
set(CPACK_COMPONENT_CUDA_GROUP cuda)
set(CPACK_COMPONENT_DEBIAN-CUDA_GROUP cuda)
if(TARGET moeplan_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda debian-cuda)
endif()

set(CPACK_DEBIAN_MOEPLAN_PACKAGE_NAME moeplan)
set(CPACK_DEBIAN_MOEPLAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MOEPLAN_PACKAGE_DEPENDS "adduser, init-system-helpers (>= 1.54~)")
if(MOEPLAN_OPENBLAS_INCLUDE)
  string(APPEND CPACK_DEBIAN_MOEPLAN_PACKAGE_DEPENDS ", libopenblas0")  # Opened at run time.
endif()
set(CPACK_DEBIAN_MOEPLAN_PACKAGE_SUGGESTS "moeplan-cuda, haproxy, prometheus, slurm-client, iproute2")
set(CPACK_DEBIAN_MOEPLAN_PACKAGE_CONTROL_EXTRA
    "${packaging}/conffiles;${packaging}/postinst;${packaging}/prerm;${packaging}/postrm")
set(CPACK_DEBIAN_MOEPLAN_DESCRIPTION
"planner of Mixture-of-Experts training schedules
moeplan measures a GPU cluster, keeps what it learned, and tells a
Mixture-of-Experts training job how to run each MoE layer: which schedule,
how many chunks, which all-to-all, on which layout.
.
This package has the command, the simulator of clusters, and units of the
planner service, of the front that other machines reach it through (with
haproxy), and of the agent that measures a node.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libmoeplan-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libexpected-dev")
foreach(library IN LISTS MOEPLAN_OPTIONAL_LIBRARIES)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", lib${library}-dev")
endforeach()
if(MOEPLAN_OPENBLAS_INCLUDE)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libopenblas0")  # Opened at run time.
endif()
set(CPACK_DEBIAN_DEV_DESCRIPTION
"executor of Mixture-of-Experts training schedules (development)
What a training job links to run the plans of moeplan: headers, static
libraries and the CMake package moeplan with the targets moeplan::models,
moeplan::executor and moeplan::headers.")

set(CPACK_DEBIAN_CUDA_PACKAGE_NAME moeplan-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION contrib/science)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)  # cuBLAS and NCCL belong to no package of Debian's.
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "moeplan (= ${PROJECT_VERSION}), libc6, libgcc-s1, libstdc++6")
if(TARGET moeplan_cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS
      "libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}, libnccl2")
endif()
set(CPACK_DEBIAN_CUDA_DESCRIPTION
"CUDA backend of moeplan
Measures and runs plans on NVIDIA GPUs and NCCL. Needs the driver, cuBLAS
and NCCL of NVIDIA's repository.")

include(CPack)
