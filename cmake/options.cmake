# Everything that can be chosen when configuring.
option(STET_SQLITE "build the SQLite store" ON)
set(STET_POSTGRES AUTO CACHE STRING "build the PostgreSQL store: ON, OFF, or AUTO: if libpq is there")
set_property(CACHE STET_POSTGRES PROPERTY STRINGS AUTO ON OFF)
option(STET_TESTS "build the test programs" ON)
option(STET_WERROR "warnings are errors" OFF)
option(STET_MUTANTS "with planted bugs: only to test the tests (make mutants)" OFF)
set(STET_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")
set_property(CACHE STET_SANITIZE PROPERTY STRINGS "" address thread)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "type of build" FORCE)
endif()
