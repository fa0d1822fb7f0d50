# stet_embed(OUT SCRIPT FILE… SCRIPT FILE… …): a C source that has the scripts, each the bytes of its files in a row,
# as stet__redis_scripts and stet__redis_script_lengths. Made when configuring; a changed file configures anew.
function(stet_embed out)
    set(arrays "")
    set(names "")
    set(lengths "")
    set(number 0)
    set(script "")
    foreach(word ${ARGN} SCRIPT)
        if(NOT word STREQUAL "SCRIPT")
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${word})
            file(READ ${word} bytes HEX)
            string(APPEND script "${bytes}")
        elseif(script)
            string(LENGTH "${script}" length)
            math(EXPR length "${length} / 2")
            string(REGEX REPLACE "(..)" "0x\\1," script "${script}")
            string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" script "${script}")
            string(APPEND arrays "static const unsigned char script_${number}[] = {\n${script}\n};\n\n")
            string(APPEND names "    script_${number},\n")
            string(APPEND lengths "    ${length},\n")
            math(EXPR number "${number} + 1")
            set(script "")
        endif()
    endforeach()
    file(CONFIGURE OUTPUT ${out} CONTENT
"/* Made by cmake/embed.cmake. */
#include \"store/redis.h\"

${arrays}const unsigned char *const stet__redis_scripts[REDIS_SCRIPTS] = {
${names}};

const size_t stet__redis_script_lengths[REDIS_SCRIPTS] = {
${lengths}};
" @ONLY)
endfunction()
