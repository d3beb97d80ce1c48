# Runs npm ci, and says what to do where it cannot.
execute_process(COMMAND "${NPM}" ci --no-audit --no-fund --loglevel=error RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "npm ci ended with ${result}: the dashboard's packages could not be fetched (is the npm registry reachable?); "
    "to build without the dashboard configure with -D MOEPLAN_WEB=OFF")
endif()
