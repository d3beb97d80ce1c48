# CPack packs these packages for Debian 12: moeplan, the command with its simulator, service units and examples; libmoeplan0, the C
# interface; python3-moeplan, the Python package, which runs layers with that library; libmoeplan-dev, what a C compiler and
# find_package(moeplan) find; and, where nvcc is, moeplan-cuda, apart because Debian has no CUDA to depend on.
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

# From here on: in the packages only, not with `cmake --install`.

# The library lies where Debian's loader looks for it. The link without a number is for compilers.
if(TARGET moeplan_c)
  set(library_dir lib)
  if(CMAKE_LIBRARY_ARCHITECTURE)
    string(APPEND library_dir "/${CMAKE_LIBRARY_ARCHITECTURE}")
  endif()
  install(TARGETS moeplan_c
          LIBRARY DESTINATION "${library_dir}" COMPONENT library NAMELINK_COMPONENT debian-dev EXCLUDE_FROM_ALL)
endif()

# The modules, compiled where they are installed (postinst), and what tells pip and importlib.metadata of them. The package
# runs layers with the library of libmoeplan0.
if(TARGET moeplan_python)
  set(python_dir lib/python3/dist-packages)
  get_target_property(modules moeplan_python MOEPLAN_MODULES)
  foreach(module IN LISTS modules)
    cmake_path(GET module PARENT_PATH folder)
    install(FILES "${PROJECT_BINARY_DIR}/python/${module}"
            DESTINATION "${python_dir}/${folder}" COMPONENT python EXCLUDE_FROM_ALL)
  endforeach()
  get_target_property(requirements moeplan_python MOEPLAN_REQUIREMENTS)
  list(TRANSFORM requirements PREPEND "Requires-Dist: " OUTPUT_VARIABLE MOEPLAN_REQUIRES_DIST)
  list(JOIN MOEPLAN_REQUIRES_DIST "\n" MOEPLAN_REQUIRES_DIST)
  get_target_property(MOEPLAN_SUMMARY moeplan_python MOEPLAN_SUMMARY)
  get_target_property(MOEPLAN_REQUIRES_PYTHON moeplan_python MOEPLAN_REQUIRES_PYTHON)
  configure_file("${packaging}/python3-moeplan/METADATA.in" "${CMAKE_BINARY_DIR}/debian/python3-moeplan/METADATA" @ONLY)
  install(FILES "${packaging}/python3-moeplan/INSTALLER" "${CMAKE_BINARY_DIR}/debian/python3-moeplan/METADATA"
          DESTINATION "${python_dir}/moeplan-${PROJECT_VERSION}.dist-info" COMPONENT python EXCLUDE_FROM_ALL)
endif()

# Absolute paths and Debian's own files.
install(FILES deploy/systemd/moeplan-planner.service deploy/systemd/moeplan-front.service
              deploy/systemd/moeplan-agent.service
        DESTINATION /lib/systemd/system COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES deploy/systemd/moeplan-planner deploy/systemd/moeplan-front deploy/systemd/moeplan-agent
        DESTINATION /etc/default COMPONENT debian EXCLUDE_FROM_ALL)
string(TIMESTAMP MOEPLAN_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH where that is set.
foreach(part IN ITEMS debian:moeplan debian-library:libmoeplan0 debian-python:python3-moeplan debian-dev:libmoeplan-dev
                      debian-cuda:moeplan-cuda)
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
set(CPACK_COMPONENT_LIBRARY_GROUP library)
set(CPACK_COMPONENT_DEBIAN-LIBRARY_GROUP library)
set(CPACK_COMPONENT_PYTHON_GROUP python)
set(CPACK_COMPONENT_DEBIAN-PYTHON_GROUP python)
set(CPACK_COMPONENT_CUDA_GROUP cuda)
set(CPACK_COMPONENT_DEBIAN-CUDA_GROUP cuda)
if(TARGET moeplan_c)
  list(APPEND CPACK_COMPONENTS_ALL library debian-library)
endif()
if(TARGET moeplan_c AND TARGET moeplan_python)
  list(APPEND CPACK_COMPONENTS_ALL python debian-python)
endif()
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

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libmoeplan0)  # The number is that of the library's own name.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_MULTIARCH same)
if(MOEPLAN_OPENBLAS_INCLUDE AND NOT MOEPLAN_OPENBLAS_ARCHIVE)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS libopenblas0)  # Opened at run time, where the library has none of its own.
endif()
# Before 1.0.0 versions may differ in the interface under one name: who links the library depends on this very version.
configure_file("${packaging}/libmoeplan0/shlibs.in" "${CMAKE_BINARY_DIR}/debian/libmoeplan0/shlibs" @ONLY)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
    "${packaging}/libmoeplan0/triggers;${CMAKE_BINARY_DIR}/debian/libmoeplan0/shlibs")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION
"executor of Mixture-of-Experts training schedules (C interface)
Runs the plans of moeplan in a training job, forward and backward, on the
host: one MoE layer on one rank, from C or from any language that calls C.
.
This package has the shared library.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-moeplan)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS python3-torch)
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
    "${packaging}/python3-moeplan/postinst;${packaging}/python3-moeplan/prerm")
if(TARGET moeplan_python)
  # "grpcio>=1.48" is python3-grpcio (>= 1.48).
  set(depends "python${MOEPLAN_REQUIRES_PYTHON}" ${requirements})
  list(TRANSFORM depends REPLACE "^python>=(.*)$" "python3 (>= \\1)")
  list(TRANSFORM depends REPLACE "^([a-z]+)>=(.*)$" "python3-\\1 (>= \\2)")
  list(APPEND depends "libmoeplan0 (= ${PROJECT_VERSION})")
  list(JOIN depends ", " CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS)
endif()
set(CPACK_DEBIAN_PYTHON_DESCRIPTION
"planner of Mixture-of-Experts training schedules (Python 3)
Asks a planner of moeplan from a training job, keeps the job going when there
is none, and, with PyTorch, runs the job's MoE layers under the plan.
.
This package has the Python package moeplan; its layers run on the host.")

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
if(TARGET moeplan_c)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libmoeplan0 (= ${PROJECT_VERSION})")
endif()
set(CPACK_DEBIAN_DEV_DESCRIPTION
"executor of Mixture-of-Experts training schedules (development)
What a training job links to run the plans of moeplan: headers, the link to
the C interface's shared library, static libraries and the CMake package
moeplan with the targets moeplan::models, moeplan::executor and
moeplan::headers.")

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
