# Language, warnings, sanitizers. Sets stet_warnings and stet_sanitize.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Assertions stay on in every build, so NDEBUG goes.
foreach(type RELEASE RELWITHDEBINFO MINSIZEREL)
    string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${type} "${CMAKE_C_FLAGS_${type}}")
endforeach()

set(stet_warnings
    $<$<COMPILE_LANGUAGE:C>:-Wall>
    $<$<COMPILE_LANGUAGE:C>:-Wextra>
    $<$<COMPILE_LANGUAGE:C>:-Wpedantic>
    $<$<COMPILE_LANGUAGE:C>:-Wshadow>
    $<$<COMPILE_LANGUAGE:C>:-Wconversion>
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
if(STET_WERROR)
    list(APPEND stet_warnings -Werror)
endif()

if(STET_SANITIZE STREQUAL "address")
    set(stet_sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(STET_SANITIZE STREQUAL "thread")
    set(stet_sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(STET_SANITIZE STREQUAL "")
    set(stet_sanitize)
else()
    message(FATAL_ERROR "STET_SANITIZE is \"${STET_SANITIZE}\"; it can be address, thread or empty")
endif()
