# Run by CPack on what it has staged: compresses manual pages and changelogs, and strips static libraries, which
# `cmake --install --strip` leaves alone.
file(GLOB_RECURSE pages "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/moeplan.1" "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/changelog")
file(GLOB_RECURSE archives "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*.a")
if(pages)
  execute_process(COMMAND gzip -9 --no-name ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
if(archives)
  execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${archives} COMMAND_ERROR_IS_FATAL ANY)
endif()
