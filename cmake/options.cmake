# Everything that can be chosen when configuring.
option(STET_SQLITE "build the SQLite store" ON)
option(STET_TESTS "build the test programs" ON)
option(STET_WERROR "warnings are errors" OFF)
option(STET_MUTANTS "with planted bugs: only to test the tests (make mutants)" OFF)
set(STET_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")
set_property(CACHE STET_SANITIZE PROPERTY STRINGS "" address thread)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "type of build" FORCE)
endif()
