# Headers, both libraries, pkg-config and CMake packages. All of it can be moved after installing:
# paths inside are relative to the files themselves.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# Two export sets: a program that links the shared library must not need SQLite's headers.
install(TARGETS stet EXPORT stet-shared
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS stet_static EXPORT stet-static
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS stet_test EXPORT stet-test
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(stet_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stet)
foreach(set stet-shared stet-static stet-test)
    install(EXPORT ${set} NAMESPACE stet:: DESTINATION ${stet_cmake_dir})
endforeach()

configure_package_config_file(cmake/stet-config.cmake.in ${PROJECT_BINARY_DIR}/stet-config.cmake
    INSTALL_DESTINATION ${stet_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stet-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stet-config.cmake ${PROJECT_BINARY_DIR}/stet-config-version.cmake
    DESTINATION ${stet_cmake_dir})

# LIBDIR and INCLUDEDIR may be absolute when a distribution sets them; then they stay so.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(stet_pc_prefix ${CMAKE_INSTALL_PREFIX})
    set(stet_pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
    file(RELATIVE_PATH stet_pc_up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
    string(REGEX REPLACE "/$" "" stet_pc_up "${stet_pc_up}")
    set(stet_pc_prefix "\${pcfiledir}/${stet_pc_up}")
    set(stet_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(stet_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
    set(stet_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
set(stet_pc_private "-lpthread")
if(STET_SQLITE)
    set(stet_pc_private "-lsqlite3 ${stet_pc_private}")
endif()
if(STET_WITH_POSTGRES)
    set(stet_pc_private "-lpq ${stet_pc_private}")
endif()
if(STET_WITH_REDIS)
    set(stet_pc_private "-lhiredis ${stet_pc_private}")
endif()
if(STET_WITH_RABBITMQ)
    set(stet_pc_private "-lrabbitmq ${stet_pc_private}")
endif()
configure_file(cmake/stet.pc.in ${PROJECT_BINARY_DIR}/stet.pc @ONLY)
configure_file(cmake/stet-test.pc.in ${PROJECT_BINARY_DIR}/stet-test.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/stet.pc ${PROJECT_BINARY_DIR}/stet-test.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
